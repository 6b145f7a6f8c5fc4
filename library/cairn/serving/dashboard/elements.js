"use strict";
/* What the pages are made of: elements whose text is only ever set as text, and the theme. */

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node[key] = value; else if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter(child => child !== null && child !== undefined));
  return node;
}

const drawing = svg => new DOMParser().parseFromString(svg, "text/html").body.firstChild;

const LABELS = {
  loss: "Loss", held_out_bpb: "Held-out bits per byte", tokens_per_second: "Tokens per second",
  grad_norm: "Gradient norm", learning_rate: "Learning rate", peak_memory_bytes: "Peak memory, bytes", step_seconds: "Seconds per step", tokens: "Tokens per step",
};
const label = name => LABELS[name] || (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ").replaceAll(".", " · ");

const column = (text, side) => h("th", { class: side || "", scope: "col" }, text);
const nothing = text => h("div", { class: "panel empty" }, text);

function tile(value, text) {
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, text));
}

function dot(hue) {
  const node = h("i", { class: "dot" });
  node.style.background = hue;
  return node;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const themes = ["auto", "light", "dark"];
function applyTheme() {
  const theme = localStorage.getItem("theme") || "auto";
  document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  document.querySelector("#theme").textContent = `theme: ${theme}`;
}
document.querySelector("#theme").onclick = () => {
  localStorage.setItem("theme", themes[(themes.indexOf(localStorage.getItem("theme") || "auto") + 1) % 3]);
  applyTheme();
};
dark.onchange = applyTheme;
applyTheme();
