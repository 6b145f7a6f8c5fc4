/* Line charts as SVG, drawn to the width they get, with a crosshair that reads every curve at a step. */

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 8;
const colour = index => `var(--c${index % COLOURS})`;

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/* Four significant digits at most, large numbers with k or M. */
function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e-", "e−");
  return trim(value);
}

function trim(value) {
  return String(Number(value.toPrecision(4)));
}

/* Round values that cover low to high in about `count` steps of 1, 2 or 5. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(factor => factor * power >= rough) * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low === high) { low -= Math.abs(low) * 0.05 || 0.5; high += Math.abs(high) * 0.05 || 0.5; }
  return [low, high];
}

const pathOf = (points, x, y) => points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");

/* A place for a plot, which `drawIn(holder, width)` draws, again when its width changes. */
function responsive(height, drawIn) {
  const holder = document.createElement("div");
  holder.className = "plot";
  holder.style.height = `${height}px`;
  let drawn = 0;
  new ResizeObserver(() => {
    if (holder.clientWidth && holder.clientWidth !== drawn) drawIn(holder, drawn = holder.clientWidth);
  }).observe(holder);
  return holder;
}

/* A chart of curves [{name, points: [[step, value]], colour, faded}]. */
const chart = (curves, height = 170) => responsive(height, (holder, width) => draw(holder, curves, width, height));

function draw(holder, curves, width, height) {
  const shown = curves.filter(curve => curve.points.length);
  const all = shown.flatMap(curve => curve.points);
  if (!all.length) { holder.replaceChildren(Object.assign(document.createElement("p"), { className: "soft", textContent: "no values yet" })); return; }
  const [x0, x1] = extent(all.map(p => p[0])), [low, high] = extent(all.map(p => p[1]));
  const margin = (high - low) * 0.06, y0 = low - margin, y1 = high + margin;
  const rows = ticks(y0, y1, Math.max(3, Math.round(height / 34)));
  const left = 10 + 6.4 * Math.max(...rows.map(value => figure(value).length)), right = 8, top = 6, bottom = 20;
  const x = value => left + (value - x0) / (x1 - x0) * (width - left - right);
  const y = value => height - bottom - (value - y0) / (y1 - y0) * (height - bottom - top);
  const plot = svg("svg", { width, height, role: "img", "aria-label": shown.map(curve => curve.name).join(", ") });
  for (const value of rows) {
    plot.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    plot.append(svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, figure(value)));
  }
  for (const value of ticks(x0, x1, Math.max(2, Math.round(width / 75))).filter(Number.isInteger))
    plot.append(svg("text", { x: x(value), y: height - 4, "text-anchor": "middle" }, figure(value)));
  for (const curve of shown) drawCurve(plot, curve, shown.length === 1, x, y, height - bottom);
  holder.replaceChildren(plot);
  addCrosshair(holder, plot, shown, { x, y, x0, x1, left, right, width, height, bottom, top });
}

function drawCurve(plot, curve, alone, x, y, floor) {
  const line = pathOf(curve.points, x, y), first = curve.points[0], last = curve.points.at(-1);
  if (alone && curve.points.length > 1)
    plot.append(svg("path", { class: "area", d: `${line}L${x(last[0])} ${floor}L${x(first[0])} ${floor}Z`, style: `fill:${curve.colour}` }));
  plot.append(svg("path", { d: line, class: curve.faded ? "faded" : "", style: `stroke:${curve.colour}` }));
  plot.append(svg("circle", { cx: x(last[0]), cy: y(last[1]), r: curve.faded ? 2.5 : 3.2, style: `fill:${curve.colour}`, opacity: curve.faded ? 0.5 : 1 }));
}

function addCrosshair(holder, plot, curves, frame) {
  const cross = svg("line", { class: "cross", y1: frame.top, y2: frame.height - frame.bottom, visibility: "hidden" });
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  plot.append(cross);
  holder.append(tip);
  const hide = () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); };
  holder.onpointerleave = hide;
  holder.onpointermove = event => {
    const at = event.clientX - holder.getBoundingClientRect().left;
    const wanted = frame.x0 + (at - frame.left) / (frame.width - frame.left - frame.right) * (frame.x1 - frame.x0);
    const step = nearest(curves.flatMap(curve => curve.points.map(p => p[0])), wanted);
    const read = curves.map(curve => ({ curve, point: curve.points.find(p => p[0] === step) })).filter(r => r.point);
    read.sort((a, b) => a.point[1] - b.point[1]);
    tip.replaceChildren(Object.assign(document.createElement("div"), { className: "soft", textContent: `step ${step}` }),
      ...read.slice(0, 10).map(({ curve, point }) => tipLine(curve, point[1], curves.length > 1)));
    const place = frame.x(step);
    cross.setAttribute("x1", place); cross.setAttribute("x2", place); cross.setAttribute("visibility", "visible");
    tip.hidden = false;
    tip.style.left = place > frame.width / 2 ? "" : `${place + 12}px`;
    tip.style.right = place > frame.width / 2 ? `${frame.width - place + 12}px` : "";
    tip.style.top = "6px";
  };
}

function tipLine(curve, value, named) {
  const line = document.createElement("div");
  const dot = Object.assign(document.createElement("i"), { className: "dot" });
  dot.style.background = curve.colour;
  line.append(dot, named ? curve.name : "", Object.assign(document.createElement("b"), { textContent: figure(value) }));
  return line;
}

function nearest(values, wanted) {
  return values.reduce((best, value) => Math.abs(value - wanted) < Math.abs(best - wanted) ? value : best);
}

/* A curve the size of a word. */
function spark(points, width = 110, height = 26) {
  const plot = svg("svg", { class: "spark", width, height, "aria-hidden": "true" });
  if (points.length < 2) return plot;
  const [x0, x1] = extent(points.map(p => p[0])), [y0, y1] = extent(points.map(p => p[1]));
  plot.append(svg("path", { d: pathOf(points, v => 2 + (v - x0) / (x1 - x0) * (width - 4), v => height - 3 - (v - y0) / (y1 - y0) * (height - 6)) }));
  return plot;
}
