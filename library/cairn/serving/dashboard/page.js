/* The page: asks the service every two seconds, and draws again only what has changed. Text is only ever set as text. */

const REFRESH_MS = 2000;
const FIRST = ["loss", "held_out_bpb", "tokens_per_second", "grad_norm", "learning_rate"];
const opened = { runs: new Set(), adapters: new Set(), searches: null };
const seen = {};

const rank = name => { const at = FIRST.findIndex(first => name === first || name.endsWith(`.${first}`)); return at < 0 ? FIRST.length : at; };
const bpbOf = values => Object.entries(values).find(([name]) => /(^|_)bpb$|bits_per_byte$/.test(name))?.[1];
const status = text => h("span", { class: `status ${text.split(" ")[0]}` }, text);
const plain = value => Array.isArray(value) ? value.map(plain).join(", ") : typeof value === "number" ? figure(value) : String(value ?? "–");

function ago(seconds) {
  if (seconds < 5) return "just now";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([size]) => seconds >= size) || [1, "s"];
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

function progress(step, steps) {
  const share = steps ? Math.min(100, 100 * step / steps) : 0;
  const bar = h("div", {}, h("div", {}));
  bar.firstChild.style.width = `${share}%`;
  return h("div", { class: "progress" }, steps ? bar : null, h("span", {}, steps ? `${step} / ${steps}` : `${step}`));
}

function drawTiles(all) {
  const running = all.runs.filter(run => run.status === "running").length;
  const trials = all.searches.reduce((sum, search) => sum + search.trials.length, 0);
  const versions = all.adapters.reduce((sum, adapter) => sum + adapter.versions.length, 0);
  const best = all.runs.map(run => [bpbOf(run.latest), run.name]).filter(pair => pair[0] !== undefined).sort((a, b) => a[0] - b[0])[0];
  document.querySelector("#tiles").replaceChildren(
    tile(String(all.runs.length), running ? `runs, ${running} running` : "runs"),
    tile(best ? figure(best[0]) : "–", best ? `bits per byte, ${best[1]}` : "bits per byte, held out"),
    tile(String(all.searches.length), `searches, ${trials} trials`),
    tile(String(all.adapters.length), `adapters, ${versions} versions`));
}

/* A row that opens a detail under itself with a click or the Enter key. */
function openable(kind, name, cells, detail) {
  const toggle = () => { opened[kind].has(name) ? opened[kind].delete(name) : opened[kind].add(name); seen[kind] = null; refresh(); };
  const open = opened[kind].has(name);
  const row = h("tr", { class: `link${open ? " open" : ""}`, tabindex: "0", "aria-expanded": String(open), onclick: toggle,
    onkeydown: event => { if (event.key === "Enter") toggle(); } }, cells);
  return open ? [row, h("tr", {}, h("td", { class: "detail", colspan: cells.length }, detail()))] : [row];
}

function drawRuns(all, details) {
  const rows = all.runs.flatMap(run => openable("runs", run.name, [
    h("td", { class: "name" }, run.name, h("small", {}, [run.stage, run.method, run.model].filter(Boolean).join(" · "))),
    h("td", {}, status(run.status)), h("td", {}, progress(run.step, run.steps)), h("td", {}, spark(run.spark)),
    h("td", { class: "right" }, figure(run.latest.loss)), h("td", { class: "right" }, figure(bpbOf(run.latest))),
    h("td", { class: "right" }, figure(run.latest.tokens_per_second)), h("td", { class: "right soft" }, ago(all.time - run.updated)),
  ], () => runDetail(details[run.name])));
  const head = [column("Run"), column("Status"), column("Steps"), column("Loss curve"), column("Loss", "right"),
    column("Bits per byte", "right"), column("Tokens/s", "right"), column("Updated", "right")];
  fill("runs", rows, head, "No runs yet. Start one: cairn train RECIPE.yaml");
}

function runDetail(run) {
  if (!run) return h("p", { class: "soft" }, "loading");
  const names = Object.keys(run.curves).sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  const charts = names.map((name, i) => h("div", { class: "chart" },
    h("h4", {}, label(name), h("span", {}, figure(run.curves[name].at(-1)[1]))),
    chart([{ name: label(name), points: run.curves[name], colour: colour(i) }])));
  return [
    run.unreadable_lines ? h("p", { class: "problem" }, `lines of metrics.jsonl that cannot be read: ${run.unreadable_lines}`) : null,
    charts.length ? h("div", { class: "charts" }, charts) : h("p", { class: "soft" }, "No metrics yet."),
    run.maps.map(map => h("div", { class: "map" }, h("h4", {}, map.title), h("div", { class: "scroll" }, drawing(map.svg)))),
    h("details", { class: "recipe" }, h("summary", {}, "Recipe"), h("pre", {}, JSON.stringify(run.recipe, null, 2))),
  ].flat().filter(Boolean);
}

function drawSearches(all, details) {
  const panels = all.searches.map(search => {
    const full = details[search.name];
    const counts = Object.entries(search.counts).map(([name, count]) => `${count} ${name}`).join(", ");
    const chosen = opened.searches === null ? all.searches[0].name : opened.searches;
    const toggle = () => { opened.searches = chosen === search.name ? "" : search.name; seen.searches = null; refresh(); };
    const heading = h("div", { style: "display:flex;justify-content:space-between;align-items:center;gap:1rem" },
      h("h3", {}, search.name), h("button", { type: "button", onclick: toggle }, full ? "close" : "open"));
    const text = h("p", {}, `${search.trials.length} of ${search.planned} trials: ${counts || "none yet"}. ${search.mode === "min" ? "Lowest" : "Highest"} ${search.metric} wins.`);
    if (!full) return h("div", { class: "panel" }, h("div", { style: "padding:.9rem 1.15rem .1rem" }, heading, text));
    const hues = huesOf(full);
    const curves = full.trials.map(trial => ({ name: trial.id, points: trial.curve, colour: hues[trial.id], faded: trial.status === "stopped early" }));
    return h("div", { class: "panel search" },
      h("div", { class: "left" }, heading, text, h("div", { class: "chart" }, h("h4", {}, label(search.metric), h("span", {}, "by step")), chart(curves, 260))),
      h("div", { class: "scroll" }, trialTable(full)));
  });
  document.querySelector("#searches .body").replaceChildren(...(panels.length ? panels : [nothing("No searches yet. Start one: cairn search RECIPE.yaml")]));
}

function trialTable(search) {
  const keys = Object.keys(search.space), hues = huesOf(search);
  const rows = search.trials.map((trial, i) => h("tr", { class: i === 0 && trial.value !== null ? "best" : "" },
    h("td", {}, h("span", { style: "display:inline-flex;align-items:center;gap:.55rem" }, dot(hues[trial.id]), h("code", {}, trial.id))),
    h("td", {}, status(trial.status)),
    h("td", { class: "right" }, h("b", {}, figure(trial.value))),
    h("td", { class: "right soft" }, `${trial.step}${search.steps ? ` / ${search.steps}` : ""}`),
    keys.map(key => h("td", { class: "right" }, plain(trial.parameters[key])))));
  const head = [column("Trial"), column("Status"), column(label(search.metric), "right"), column("Step", "right"), ...keys.map(key => column(key, "right"))];
  return h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
}

/* A trial keeps its colour while its rank changes. */
const huesOf = search => Object.fromEntries(search.trials.map(trial => trial.id).sort().map((id, i) => [id, colour(i)]));

function drawAdapters(all) {
  const rows = all.adapters.flatMap(adapter => {
    const card = adapter.versions[0];
    if (!card) return [h("tr", {}, h("td", { class: "name" }, adapter.name), h("td", { colspan: 6, class: "problem" }, adapter.problem))];
    const aliases = Object.entries(adapter.aliases).map(([alias, version]) => h("span", { class: "tag" }, `${alias} → ${version}`));
    return openable("adapters", adapter.name, [
      h("td", { class: "name" }, adapter.name), h("td", {}, `@${card.version}`), h("td", {}, aliases.length ? aliases : "–"),
      h("td", {}, card.method + (card.rank ? `, rank ${card.rank}` : "")), h("td", {}, card.stage || "–"),
      h("td", { class: "soft" }, card.base.path.split("/").at(-1)), h("td", { class: "right" }, figure(bpbOf(card.metrics))),
      h("td", { class: "right soft" }, ago(all.time - Date.parse(card.created) / 1000)),
    ], () => versionTable(adapter));
  });
  const head = [column("Adapter"), column("Newest"), column("Aliases"), column("Method"), column("Stage"), column("Base"),
    column("Bits per byte", "right"), column("Published", "right")];
  fill("adapters", rows, head, "Nothing published yet. Set storage.publish in a recipe, then train.");
}

function versionTable(adapter) {
  return adapter.versions.map((card, i) => {
    const facts = { reference: card.reference, run: card.run, parent: card.parent, base: card.base.path, targets: card.targets.join(", "),
      metrics: Object.entries(card.metrics).map(([name, value]) => `${name} ${figure(value)}`).join(", "),
      files: Object.keys(card.files).join(", "), created: card.created };
    const lines = Object.entries(facts).filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
    return h("dl", { style: i ? "margin-top:1.2rem" : "" }, lines);
  });
}

function fill(section, rows, head, empty) {
  const table = h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
  document.querySelector(`#${section} .body`).replaceChildren(rows.length ? h("div", { class: "panel scroll" }, table) : nothing(empty));
}

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function detailsOf(kind, names) {
  const found = await Promise.all(names.map(async name => [name, await ask(`api/${kind}/${encodeURIComponent(name)}`)]));
  return Object.fromEntries(found);
}

/* Draw a section when its data differ from what is on the screen (ages alone: every half minute). */
function update(kind, all, data, drawSection) {
  const key = JSON.stringify([data, Math.floor(all.time / 30)]);
  if (seen[kind] !== key) { seen[kind] = key; drawSection(); }
}

async function refresh() {
  const all = await ask("api/overview");
  const search = opened.searches === null ? all.searches[0]?.name : opened.searches;
  const runs = await detailsOf("runs", all.runs.map(run => run.name).filter(name => opened.runs.has(name)));
  const searches = await detailsOf("searches", all.searches.map(found => found.name).filter(name => name === search));
  document.querySelector("#storage").textContent = all.storage;
  drawTiles(all);
  update("runs", all, [all.runs, runs], () => drawRuns(all, runs));
  update("searches", all, [all.searches, searches], () => drawSearches(all, searches));
  update("adapters", all, all.adapters, () => drawAdapters(all));
}

async function keepFresh() {
  const live = document.querySelector("#live");
  try {
    await refresh();
    live.className = "";
    live.lastChild.textContent = `live, ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    live.className = "lost";
    live.lastChild.textContent = "no answer, trying again";
    console.error(error);
  }
  setTimeout(keepFresh, document.hidden ? 5 * REFRESH_MS : REFRESH_MS);
}

for (const name of new URLSearchParams(location.search).getAll("run")) opened.runs.add(name);
keepFresh();
