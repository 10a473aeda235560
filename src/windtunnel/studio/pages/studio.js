// The views of the studio: an editor, a run that is watched, the history, a comparison, a live program.
"use strict";

const VIEWS = ["edit", "run", "history", "compare", "live"];
const CHECK_AFTER_MS = 250;
const $ = (id) => document.getElementById(id);
const state = { run: null, events: null, live: null, group: null, liveGroup: null, chosen: new Set() };

function say(text) { $("status").textContent = text; }

function made(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let reply;
  try { reply = await fetch(path, options); } catch { throw new Error("the studio does not answer: is it still running?"); }
  const content = await reply.json();
  if (!reply.ok) throw new Error(content.error);
  return content;
}

function guarded(work) {
  return async (...given) => { try { await work(...given); } catch (error) { say(error.message); } };
}

const show = guarded(async () => {
  const [view, rest] = location.hash.slice(1).split("/", 2);
  const wanted = VIEWS.includes(view) ? view : "edit";
  for (const name of VIEWS) $(name).hidden = name !== wanted;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${wanted}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (wanted === "run" && rest && decodeURIComponent(rest) !== state.run) await openRun(decodeURIComponent(rest));
  if (wanted === "history") await listRuns();
  if (wanted === "compare" && rest) await compareRuns(rest.split(",").map(decodeURIComponent));
  if (wanted === "live") watchProgram(); else endLive();
});

// The editor.

let checking = 0;

function drawLines(bad = new Set()) {
  const count = $("text").value.split("\n").length, lines = $("lines");
  lines.replaceChildren();
  for (let number = 1; number <= count; number++) lines.append(made("span", `${number}\n`, bad.has(number) ? { class: "bad" } : {}));
  lines.scrollTop = $("text").scrollTop;
}

const check = guarded(async () => {
  const mine = ++checking, found = await ask("/api/check", edited());
  if (mine !== checking) return;
  drawLines(new Set(found.faults.map((fault) => fault.line)));
  $("faults").replaceChildren(...found.faults.map((fault) => {
    const item = made("li", null), button = made("button", fault.says, { type: "button" });
    button.addEventListener("click", () => goTo(fault.line));
    item.append(button);
    return item;
  }));
  $("start").disabled = found.faults.length > 0;
  const faults = found.faults.length;
  say(faults ? `${faults} fault${faults > 1 ? "s" : ""}` : [`${found.name}, seed ${found.seed}: ready to run`, ...found.notes].join("; "));
});

function edited() { return { text: $("text").value, file: $("file").value || "scenario.yaml" }; }

function goTo(line) {
  const text = $("text");
  text.focus();
  if (line === null) return;
  const before = text.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.setSelectionRange(before, before + (text.value.split("\n")[line - 1] ?? "").length);
  text.scrollTop = Math.max(0, (line - 5) * 19.5);
}

const openFile = guarded(async () => {
  $("start").disabled = true; // until it is the text of this file that would be run
  say("reading");
  $("text").value = (await ask(`/api/text?file=${encodeURIComponent($("file").value)}`)).text;
  drawLines();
  await check();
});

const start = guarded(async () => {
  if ($("start").disabled) return;
  $("start").disabled = true;
  try {
    const { id } = await ask("/api/runs", edited());
    watchRun(id);
    location.hash = `#run/${encodeURIComponent(id)}`;
  } finally { $("start").disabled = false; }
});

// A run: charts while it goes on, everything when it has ended.

const CHARTS = [
  ["Requests per second", [["arrived", "arrived", true], ["completed", "completed", true]]],
  ["Requests queued and running", [["waiting", "queued", false], ["running", "running", false]]],
  ["Output tokens per second", [["output_tokens", "tokens", true]]],
  ["Replicas", [["replicas_ready", "ready", false], ["replicas_wanted", "wanted", false]]],
];

function newCharts() {
  state.group = new ChartGroup($("charts"));
  for (const [title, lines] of CHARTS) state.group.add(title, lines.map(([, name]) => name));
  $("zoom-help").hidden = false;
}

// Totals become rates: the increase since the sample before.
function pushSample(sample, before) {
  const passed = sample.time - (before?.time ?? 0);
  CHARTS.forEach(([, lines], place) => state.group.charts[place].push(sample.time, lines.map(([key, , rate]) => rate ? (sample[key] - (before?.[key] ?? 0)) / (passed || 1) : sample[key])));
}

function clearRun(title) {
  state.events?.close();
  state.events = null;
  $("run-title").textContent = title;
  $("tiles").replaceChildren();
  $("explanation").textContent = "";
  for (const id of ["why", "report", "partial", "bar", "stop"]) $(id).hidden = true;
}

function watchRun(id) {
  state.run = id;
  clearRun(id);
  newCharts();
  $("bar").hidden = $("stop").hidden = false;
  $("stop").disabled = false;
  $("bar").removeAttribute("value");
  say(`${id} is starting`);
  let before = null;
  const events = state.events = new EventSource(`/api/runs/${encodeURIComponent(id)}/progress`);
  events.onmessage = guarded(async (event) => {
    const line = JSON.parse(event.data);
    if (line.at) {
      for (const sample of line.at.samples) { pushSample(sample, before); before = sample; }
      state.group.draw();
      if (line.at.writing) {
        $("bar").value = 1;
        $("stop").disabled = true;
        say(`${id} has ended after ${duration(line.at.now)}: writing its results`);
        return;
      }
      if (line.at.of) $("bar").value = Math.min(1, line.at.now / line.at.of);
      say(`${id}: ${duration(line.at.now)} simulated, ${line.at.ended.toLocaleString("en")} of ${line.at.arrived.toLocaleString("en")} requests ended`);
      return;
    }
    events.close();
    if (line.failed) {
      clearRun(`${id} ${line.stopped ? "was stopped" : "failed"}`);
      $("partial").textContent = line.failed;
      $("partial").hidden = false;
      say(line.stopped ? "the run was stopped" : "the run failed");
      return;
    }
    await openRun(id);
  });
  events.onerror = () => { if (events.readyState === EventSource.CLOSED) say("the studio does not answer: is it still running?"); };
}

async function openRun(id) {
  const found = await ask(`/api/runs/${encodeURIComponent(id)}`);
  state.run = id;
  clearRun(`${found.name}, seed ${found.seed}`);
  $("report").hidden = false;
  $("report").href = `/runs/${encodeURIComponent(id)}/report`;
  if (found.partial) { $("partial").textContent = `The results are partial: ${found.partial}`; $("partial").hidden = false; }
  $("tiles").replaceChildren(...found.tiles.map((tile) => {
    const box = made("div", null), value = made("dd", null);
    value.append(made("b", tile.figure), made("span", tile.note));
    box.append(made("dt", tile.name), value);
    return box;
  }));
  newCharts();
  const series = found.series, keys = Object.keys(series);
  // A finished run has increases per sample in its timeline, not totals. The last interval may be too short for a rate.
  const usual = series.time[0];
  series.time.forEach((time, place) => {
    const since = time - (place ? series.time[place - 1] : 0), passed = since < usual / 2 ? NaN : since;
    CHARTS.forEach(([, lines], number) => state.group.charts[number].push(time, lines.map(([key, , rate]) => keys.includes(key) ? (rate ? series[key][place] / passed : series[key][place]) : NaN)));
  });
  state.group.draw();
  const asked = [...found.slow.map((one) => [`request ${one.request}: ${duration(one.took)} ${one.upto}; ${one.why}`, { request: one.request }]),
    ...found.lost.map((one) => [one.says, { request: one.request }]),
    ...found.decisions.map((one) => [one.says ?? one.what, one.ids?.length ? { decision: one.ids[0] } : null])].filter(([, query]) => query);
  $("slow").replaceChildren(...asked.map(([text, query]) => {
    const item = made("li", null), button = made("button", text, { type: "button" });
    button.addEventListener("click", () => explain(query));
    item.append(button);
    return item;
  }));
  $("why").hidden = false;
  say(`${id} has ended`);
}

const explain = guarded(async (query) => {
  $("explanation").textContent = "";
  const found = await ask(`/api/runs/${encodeURIComponent(state.run)}/explain?${new URLSearchParams(query)}`);
  $("explanation").textContent = found.text;
  $("explanation").scrollIntoView({ block: "nearest" });
});

// The history, and runs side by side.

async function listRuns() {
  const runs = await ask("/api/runs");
  $("runs").tBodies[0].replaceChildren(...runs.map((run) => {
    const row = made("tr", null), choose = made("input", null, { type: "checkbox", "aria-label": `choose ${run.id}` });
    choose.checked = state.chosen.has(run.id);
    choose.addEventListener("change", () => { if (choose.checked) state.chosen.add(run.id); else state.chosen.delete(run.id); mayCompare(); });
    const link = made("a", run.id, { href: `#run/${encodeURIComponent(run.id)}` });
    const cells = [choose, link, `${run.completed.toLocaleString("en")} of ${run.arrived.toLocaleString("en")}${run.partial ? ", partial" : ""}`,
      run.ttft_p99, run.cost, new Date(run.written * 1000).toLocaleString()];
    cells.forEach((cell, place) => { const td = made("td", null, place > 1 && place < 5 ? { class: "num" } : {}); td.append(cell); row.append(td); });
    return row;
  }));
  for (const id of state.chosen) if (!runs.some((run) => run.id === id)) state.chosen.delete(id);
  mayCompare();
  say(`${runs.length} run${runs.length === 1 ? "" : "s"}`);
}

function mayCompare() { $("hold").disabled = state.chosen.size < 2 || state.chosen.size > 4; }

async function compareRuns(names) {
  const found = await ask(`/api/compare?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`);
  const head = made("tr", null);
  head.append(made("th", "figure", { scope: "col" }), ...found.runs.map((name) => made("th", name, { scope: "col", class: "num" })));
  $("compared").tHead.replaceChildren(head);
  const rows = [];
  let group = null;
  for (const one of found.rows) {
    if (one.values.every((value) => value === null)) continue;
    if (one.group !== group) {
      const title = made("tr", null, { class: "group" });
      title.append(made("th", group = one.group, { colspan: found.runs.length + 1, scope: "colgroup" }));
      rows.push(title);
    }
    const row = made("tr", null), known = one.values.filter((value) => value !== null);
    const best = one.better === "higher" ? Math.max(...known) : Math.min(...known);
    const differ = new Set(one.texts).size > 1 && known.length > 1;
    row.append(made("th", one.figure, { scope: "row" }), ...one.texts.map((text, place) => made("td", text, { class: differ && one.values[place] === best ? "num better" : "num" })));
    rows.push(row);
  }
  $("compared").tBodies[0].replaceChildren(...rows);
  $("compare-help").textContent = "The better value of each figure is green. These are single runs: windtunnel compare adds seeds and confidence intervals.";
  say(`${found.runs.length} runs`);
}

// A running program.

function endLive() { state.live?.close(); state.live = null; }

function watchProgram() {
  endLive();
  const clock = (time) => new Date(time * 1000).toLocaleTimeString();
  const group = state.liveGroup = new ChartGroup($("live-charts"), clock), charts = new Map();
  const events = state.live = new EventSource(`/api/attached/${$("program").selectedIndex}`);
  events.onmessage = (event) => {
    const line = JSON.parse(event.data);
    $("live-error").hidden = !line.error;
    $("live-error").textContent = line.error ?? "";
    for (const [name, lines] of Object.entries(line.charts ?? {})) {
      if (!charts.has(name)) charts.set(name, group.add(name, []));
      charts.get(name).pushNamed(line.time, lines);
    }
    group.draw();
    say(line.error ? "no answer" : `read at ${clock(line.time)}`);
  };
}

// Begin.

$("text").addEventListener("input", () => { drawLines(); clearTimeout(state.timer); state.timer = setTimeout(check, CHECK_AFTER_MS); });
$("text").addEventListener("scroll", () => { $("lines").scrollTop = $("text").scrollTop; });
$("file").addEventListener("change", openFile);
$("start").addEventListener("click", start);
$("stop").addEventListener("click", guarded(async () => { $("stop").disabled = true; await ask(`/api/runs/${encodeURIComponent(state.run)}/stop`, {}); say("stopping"); }));
$("ask").addEventListener("click", () => explain({ request: $("request").value.trim() }));
$("request").addEventListener("keydown", (event) => { if (event.key === "Enter") explain({ request: $("request").value.trim() }); });
$("hold").addEventListener("click", () => { location.hash = `#compare/${[...state.chosen].map(encodeURIComponent).join(",")}`; });
$("program").addEventListener("change", watchProgram);
document.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !$("edit").hidden) { event.preventDefault(); start(); } });
addEventListener("hashchange", show);

guarded(async () => {
  const { files, attached } = await ask("/api/files");
  $("file").replaceChildren(...files.map((file) => made("option", file)));
  $("program").replaceChildren(...attached.map((url) => made("option", url)));
  $("live-link").hidden = !attached.length;
  if (files.length) {
    const first = files.find((file) => /(^|\/)first\.yaml$/.test(file));
    if (first) $("file").value = first;
    await openFile();
  } else { drawLines(); }
  await show();
})();
