/* The page of a comparison: everything it shows stands in the document itself. */

const found = JSON.parse(document.querySelector("#comparison").textContent);
const meaning = found.meaning;
const entries = [...found.runs, found.base];
const hues = Object.fromEntries(found.runs.map((run, i) => [run.name, colour(i)]));
const hueOf = entry => hues[entry.name] && entry !== found.base ? hues[entry.name] : "var(--soft)";
const titleOf = entry => entry === found.base ? `${entry.name} (base)` : entry.name;
const named = entry => h("span", { class: "run" }, dot(hueOf(entry)), titleOf(entry));
const percent = value => value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`;

const COSTS = ["tokens", "seconds", "steps", "peak_memory_bytes"];
const WRITTEN = {
  accuracy: percent, accuracy_summed: percent, accuracy_reward: percent, ended: percent,
  peak_memory_bytes: value => value === null ? "–" : `${figure(value / 2 ** 30)} GiB`,
  seconds: value => value === null ? "–" : value < 120 ? `${figure(value)} s` : `${figure(value / 60)} min`,
};
const written = (name, value) => (WRITTEN[name] || figure)(value);

/* The best value of a figure among the runs; none where all are alike. */
function best(name) {
  const values = found.runs.map(run => run.figures[name]).filter(value => value !== null);
  return new Set(values).size > 1 ? Math[meaning[name].better](...values) : null;
}

function drawTiles() {
  const first = found.runs[0], yard = found.yardstick;
  document.querySelector("#tiles").replaceChildren(
    tile(written(found.by, first.figures[found.by]), `${meaning[found.by].label.toLowerCase()}, ${first.name}`),
    tile(String(found.runs.length), found.runs.length === 1 ? "run beside the base" : "runs beside the base"),
    tile(String(yard.pairs), "held-out pairs"),
    tile(String(yard.prompts), "answers of each model"));
}

function drawRanking() {
  const known = Object.keys(meaning).filter(name => entries.some(entry => entry.figures[name] !== null));
  const costs = known.filter(name => COSTS.includes(name)), worth = known.filter(name => !COSTS.includes(name));
  const words = known.flatMap(name => [h("dt", {}, meaning[name].label), h("dd", {}, meaning[name].meaning)]);
  document.querySelector("#ranking .body").replaceChildren(table(entries, worth), table(found.runs, costs),
    h("details", { class: "meaning" }, h("summary", {}, "What the figures mean, and what was measured"), h("dl", {}, words, yardstick())));
}

function table(rows, names) {
  const head = names.map(name => h("th", { class: `right${name === found.by ? " by" : ""}`, scope: "col", title: meaning[name].meaning }, meaning[name].label));
  return h("div", { class: "panel scroll" }, h("table", {}, h("thead", {}, h("tr", {}, column("Run"), head)), h("tbody", {}, rows.map(entry =>
    h("tr", { class: entry === found.base ? "base" : "" },
      h("td", { class: "name" }, named(entry), h("small", {}, [entry.stage, entry.method].filter(Boolean).join(" · ") || "as it was")),
      names.map(name => valueCell(entry, name)))))));
}

function valueCell(entry, name) {
  const value = entry.figures[name], wins = entry !== found.base && value !== null && value === best(name);
  const range = name === "accuracy" ? h("small", {}, ` ${entry.interval.map(end => (100 * end).toFixed(0)).join("–")}`) : null;
  return h("td", { class: `right${wins ? " win" : ""}` }, written(name, value), range);
}

function yardstick() {
  const yard = found.yardstick;
  const left = Object.entries(yard.left_out).map(([reason, count]) => `${count} ${reason}`).join(", ");
  const facts = {
    "Pairs": `${yard.pairs} of ${yard.pair_files.join(", ")}${left ? `; left out: ${left}` : ""}; the range is Wilson's 95 % interval`,
    "Sampling": `temperature ${yard.temperature}, at most ${yard.max_tokens} tokens`,
    "Documents": yard.documents ? `${yard.documents} of ${yard.document_files.join(", ")}, windows of ${yard.window} tokens` : "none",
    "Precision": yard.precision,
  };
  return Object.entries(facts).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]);
}

const panel = (title, text, ...content) => h("div", { class: "panel" }, h("h3", {}, title), h("p", {}, text), content);

function drawPlots() {
  const plots = [panel("Accuracy on held-out pairs", "with its 95 % interval; dashed: guessing", dotPlot(entries.map(entry => ({
    name: titleOf(entry), dots: [{ at: entry.figures.accuracy, hue: hueOf(entry), text: percent(entry.figures.accuracy), range: entry.interval }],
  })), { chance: 0.5, axis: percent, most: 1 }))];
  const scatters = [["kl_per_token", "accuracy", "Accuracy and distance", "up and to the left is better"],
    ["seconds", "accuracy", "Accuracy and time", "seconds in training steps"], ["answer_tokens", "margin", "Margin and length", "a margin bought with length stands far to the right"]];
  for (const [x, y, title, text] of scatters) {
    const points = found.runs.filter(run => run.figures[x] !== null && run.figures[y] !== null)
      .map(run => ({ name: run.name, x: run.figures[x], y: run.figures[y], hue: hueOf(run) }));
    if (points.length > 1) plots.push(panel(title, text, scatter(points, x, y)));
  }
  const subsets = Object.keys(found.base.bits_per_byte);
  if (subsets.length) plots.push(panel("Bits per byte", "by subset, lower is better; grey: the base", dotPlot(subsets.map(subset => ({
    name: subset, dots: [...entries].reverse().filter(entry => subset in entry.bits_per_byte).map(entry => ({ at: entry.bits_per_byte[subset], hue: hueOf(entry), title: titleOf(entry) })),
  })), { axis: figure })));
  document.querySelector("#plots .body").replaceChildren(h("div", { class: "plots" }, plots));
}

/* Rows [{name, dots: [{at, hue, text, range, title}]}] over one axis. */
function dotPlot(rows, { chance, axis, most }) {
  const height = rows.length * 28 + 26;
  return responsive(height, (holder, width) => {
    const values = rows.flatMap(row => row.dots.flatMap(point => [point.at, ...(point.range || [])]));
    const [low, high] = extent(chance === undefined ? values : [...values, chance]);
    const left = 16 + 6.6 * Math.max(...rows.map(row => row.name.length)), right = 52, margin = (high - low) * 0.05;
    const x0 = low - margin, x1 = most === undefined ? high + margin : Math.min(most, high + margin);
    const x = value => left + (value - x0) / (x1 - x0) * (width - left - right);
    const plot = svg("svg", { width, height, role: "img", "aria-label": rows.map(row => row.name).join(", ") });
    for (const value of ticks(x0, x1, Math.max(2, Math.round(width / 120)))) {
      plot.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: 0, y2: height - 22 }));
      plot.append(svg("text", { x: x(value), y: height - 6, "text-anchor": "middle" }, axis(value)));
    }
    if (chance !== undefined) plot.append(svg("line", { class: "chance", x1: x(chance), x2: x(chance), y1: 0, y2: height - 22 }));
    rows.forEach((row, i) => drawRow(plot, row, 14 + 28 * i, x, left, width));
    holder.replaceChildren(plot);
  });
}

function drawRow(plot, row, y, x, left, width) {
  plot.append(svg("text", { class: "label", x: left - 12, y: y + 4, "text-anchor": "end" }, row.name));
  for (const { at, hue, text, range, title } of row.dots) {
    if (range) plot.append(svg("line", { class: "whisker", x1: x(range[0]), x2: x(range[1]), y1: y, y2: y, style: `stroke:${hue}` }));
    plot.append(svg("circle", { cx: x(at), cy: y, r: 5, style: `fill:${hue}` }, svg("title", {}, `${title || row.name}: ${text || figure(at)}`)));
    if (text) plot.append(svg("text", { x: width, y: y + 4, "text-anchor": "end" }, text));
  }
}

/* Points [{name, x, y, hue}], each with its name beside it. */
function scatter(points, xName, yName, height = 240) {
  return responsive(height, (holder, width) => {
    const wide = (values, share) => { const [low, high] = extent(values), more = (high - low) * share; return [low - more, high + more]; };
    const [x0, x1] = wide(points.map(p => p.x), 0.12), [y0, y1] = wide(points.map(p => p.y), 0.15);
    const rows = ticks(y0, y1, 5), write = value => written(yName, value);
    const left = 16 + 6.4 * Math.max(...rows.map(value => write(value).length)), bottom = 36;
    const x = value => left + (value - x0) / (x1 - x0) * (width - left - 10), y = value => height - bottom - (value - y0) / (y1 - y0) * (height - bottom - 8);
    const plot = svg("svg", { width, height, role: "img", "aria-label": `${meaning[yName].label} by ${meaning[xName].label}` });
    for (const value of rows) {
      plot.append(svg("line", { class: "grid", x1: left, x2: width - 10, y1: y(value), y2: y(value) }));
      plot.append(svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, write(value)));
    }
    for (const value of ticks(x0, x1, Math.max(2, Math.round(width / 100))))
      plot.append(svg("text", { x: x(value), y: height - bottom + 15, "text-anchor": "middle" }, figure(value)));
    plot.append(svg("text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle" }, meaning[xName].label));
    const placed = points.map(point => ({ ...point, at: [x(point.x), y(point.y)] }));
    const taken = placed.map(({ at }) => [at[0] - 6, at[1] - 6, at[0] + 6, at[1] + 6]);
    for (const { name, hue, at } of placed) {
      plot.append(svg("circle", { cx: at[0], cy: at[1], r: 5.5, style: `fill:${hue}` }));
      const box = freePlace(at, 6.6 * name.length, taken, width);
      taken.push(box);
      plot.append(svg("text", { class: "label", x: box[0], y: box[3] - 2 }, name));
    }
    holder.replaceChildren(plot);
  });
}

/* Where the name of a point may stand, [left, top, right, bottom]: beside it, above or below, wherever nothing stands yet. */
function freePlace([x, y], length, taken, width) {
  const boxes = [[x + 10, y], [x - 10 - length, y], [x - length / 2, y - 15], [x - length / 2, y + 15], [x + 10, y - 12], [x + 10, y + 12]]
    .map(([left, middle]) => [left, middle - 6, left + length, middle + 6]).filter(box => box[0] > 0 && box[2] < width);
  const free = box => taken.every(other => box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]);
  return boxes.find(free) || boxes[0] || [x + 10, y - 6, x + 10 + length, y + 6];
}

const CURVES = ["held_out_accuracy", "held_out_margin", "held_out_loss", "accuracy", "loss", "tokens_per_second"];

function drawTraining() {
  const charts = CURVES.map(name => [name, found.runs.filter(run => (found.curves[run.name][name] || []).length > 1)]).filter(([, runs]) => runs.length)
    .map(([name, runs]) => h("div", { class: "chart" }, h("h4", {}, label(name), h("span", {}, "by step")),
      chart(runs.map(run => ({ name: run.name, points: found.curves[run.name][name], colour: hueOf(run) })))));
  const legend = h("p", { class: "soft" }, "Each stage's own figures: losses, margins and rewards of different stages are different things.");
  document.querySelector("#training .body").replaceChildren(charts.length
    ? h("div", { class: "panel padded" }, legend, h("div", { class: "charts" }, charts)) : nothing("No run has a metrics.jsonl."));
}

function drawAnswers() {
  const speaking = entries.filter(entry => entry.answers.length);
  document.querySelector("#answers .body").replaceChildren(...found.prompts.map((prompt, i) => h("div", { class: "panel padded" },
    h("pre", { class: "question mono" }, prompt),
    h("div", { class: "replies" }, speaking.map(entry => h("div", { class: "reply" }, h("h4", {}, named(entry)), h("div", {}, entry.answers[i])))))));
}

document.querySelector("#storage").textContent = found.base.name;
drawTiles(); drawRanking(); drawPlots(); drawTraining(); drawAnswers();
