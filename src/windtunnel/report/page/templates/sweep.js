"use strict";
(() => {
  const data = JSON.parse(document.getElementById("hover").textContent);
  const tip = document.getElementById("tip");
  const SVG = "http://www.w3.org/2000/svg";
  const short = (v) => Math.abs(v) >= 1e9 ? `${+(v / 1e9).toPrecision(3)} G` : Math.abs(v) >= 1e6 ? `${+(v / 1e6).toPrecision(3)} M`
    : Math.abs(v) >= 1e4 ? `${+(v / 1e3).toPrecision(3)} k` : `${+v.toPrecision(3)}`;
  const dollars = (v) => `$${v >= 1 || !v ? v.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : v >= 0.1 ? v.toFixed(3).replace(/0$/, "") : +v.toPrecision(3)}`;
  const value = (v, unit) => unit === "share" ? `${+(100 * v).toFixed(v > 0.99 && v < 1 ? 2 : 1)}%` : unit === "$" ? dollars(v)
    : unit === "s" ? (Math.abs(v) < 1e-3 ? `${+(v * 1e6).toPrecision(3)} us` : Math.abs(v) < 1 ? `${+(v * 1e3).toPrecision(3)} ms` : `${short(v)} s`)
    : unit === "requests/s" || unit === "tokens/s" ? `${short(v)}/s` : `${short(v)}${unit.startsWith("/") || !unit || unit === "requests" ? (unit.startsWith("/") ? unit : "") : unit}`;
  const make = (kind, where, attributes, text) => {
    const node = document.createElementNS(SVG, kind);
    for (const name in attributes) node.setAttribute(name, attributes[name]);
    if (text !== undefined) node.textContent = text;
    where.append(node);
    return node;
  };
  function say(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, x + 16 + box.width > innerWidth ? x - box.width - 14 : x + 14)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 4))}px`;
  }

  // Figures and fronts
  const metric = (name) => data.metrics.findIndex((one) => one.name === name);
  const mean = (point, m) => point.figures[m] && point.figures[m][0];
  const choices = { x: metric(data.x), y: metric(data.y) };
  const known = (m) => data.points.some((point) => mean(point, m) !== null);
  for (const side of ["x", "y"]) {
    if (choices[side] < 0) choices[side] = data.metrics.findIndex((one, m) => known(m) && m !== choices[side === "x" ? "y" : "x"]);
  }
  function front() {
    const [x, y] = [choices.x, choices.y], ways = [data.metrics[x].better, data.metrics[y].better];
    if (!ways[0] || !ways[1] || x === y) return [];
    const cost = (point, m, way) => way === "lower" ? mean(point, m) : -mean(point, m);
    const placed = data.points.filter((point) => mean(point, x) !== null && mean(point, y) !== null)
      .map((point) => [cost(point, x, ways[0]), cost(point, y, ways[1]), point])
      .sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2].point - b[2].point);
    const found = [];
    let best = null;
    for (const one of placed) {
      if (!best || one[1] < best[1] || (one[0] === best[0] && one[1] === best[1])) { best = one; found.push(one[2]); }
    }
    return found;
  }
  function about(point) {
    const lines = [`point ${point.point}`, ...data.settings.map((setting, s) => `${setting.label} ${point.says[s]}`)];
    for (const m of [...new Set([choices.x, choices.y, ...data.shown.map(metric)])]) {
      if (m < 0 || mean(point, m) === null) continue;
      const { label, unit } = data.metrics[m], [middle, low, high] = point.figures[m];
      lines.push(`${label} ${value(middle, unit)}` + (low === null || low === high ? "" : ` (${value(low, unit)} to ${value(high, unit)})`));
    }
    return lines.join("\n");
  }

  // Scales
  function range(values) {
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
    return [low, high];
  }
  function ticks(low, high, most) {
    const power = 10 ** Math.floor(Math.log10((high - low) / most));
    const step = power * [1, 2, 5, 10].find((f) => (high - low) / (f * power) <= most);
    const found = [];
    for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) found.push(Math.abs(t) < step * 1e-9 ? 0 : t);
    return found;
  }
  const spread = (low, high) => [low - (high - low) * 0.04, high + (high - low) * 0.04];

  // The front
  const kept = new Map();  // by axis of the lines: the shares that pass
  const passes = (point) => axes().every((axis) => {
    const part = kept.get(axis.key);
    const share = axis.share(point);
    return !part || (share !== null && share >= part[0] - 1e-9 && share <= part[1] + 1e-9);
  });
  function drawFront() {
    const svg = document.getElementById("front"), height = 400;
    const width = svg.clientWidth || 800, left = 64, bottom = 46, top = 14, right = 16;
    svg.replaceChildren();
    svg.setAttribute("height", height);
    const [x, y] = [choices.x, choices.y];
    const placed = data.points.filter((point) => mean(point, x) !== null && mean(point, y) !== null);
    if (!placed.length) return;
    const [x0, x1] = spread(...range(placed.map((point) => mean(point, x))));
    const best = front();
    const ends = best.flatMap((point) => point.figures[y].slice(1)).filter((end) => end !== null);
    const [y0, y1] = spread(...range([...placed.map((point) => mean(point, y)), ...ends]));
    const across = (v) => left + (width - left - right) * (v - x0) / (x1 - x0);
    const up = (v) => height - bottom - (height - bottom - top) * (v - y0) / (y1 - y0);
    for (const t of ticks(x0, x1, width < 500 ? 4 : 7)) {
      make("line", svg, { class: "grid", x1: across(t), x2: across(t), y1: top, y2: height - bottom });
      make("text", svg, { class: "tick", x: across(t), y: height - bottom + 16, "text-anchor": "middle" }, value(t, data.metrics[x].unit));
    }
    for (const t of ticks(y0, y1, 6)) {
      make("line", svg, { class: "grid", x1: left, x2: width - right, y1: up(t), y2: up(t) });
      make("text", svg, { class: "tick", x: left - 8, y: up(t) + 4, "text-anchor": "end" }, value(t, data.metrics[y].unit));
    }
    const way = (m) => data.metrics[m].better ? `, ${data.metrics[m].better} is better` : "";
    make("text", svg, { class: "name", x: (left + width - right) / 2, y: height - 8, "text-anchor": "middle" }, data.metrics[x].label + way(x));
    make("text", svg, { class: "name", x: 14, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(top + height - bottom) / 2})` }, data.metrics[y].label + way(y));
    if (best.length > 1) {
      const steps = best.map((point, i) => (i ? `H${across(mean(point, x))}V${up(mean(point, y))}` : `M${across(mean(point, x))} ${up(mean(point, y))}`));
      make("path", svg, { class: "stairs", d: steps.join("") });
    }
    for (const point of placed) {
      const on = passes(point), [, low, high] = point.figures[y];
      if (low !== null && best.includes(point)) {
        make("line", svg, { class: `reach${on ? "" : " off"}`, x1: across(mean(point, x)), x2: across(mean(point, x)), y1: up(low), y2: up(high) });
      }
    }
    for (const point of [...placed].sort((a, b) => best.includes(a) - best.includes(b))) {
      const kind = `spot${best.includes(point) ? " front" : ""}${passes(point) ? "" : " off"}`;
      const spot = make("circle", svg, { class: kind, cx: across(mean(point, x)), cy: up(mean(point, y)), r: best.includes(point) ? 6 : 4.5, "data-point": point.point });
      spot.addEventListener("pointermove", (event) => { light(point); say(about(point), event.clientX, event.clientY); });
      spot.addEventListener("pointerleave", hush);
    }
    const text = best.length ? `${best.length} of ${placed.length} points are on the Pareto front.` : "One of the two figures has no better direction, so there is no Pareto front.";
    document.getElementById("front-says").textContent = text;
  }

  // The lines
  function axes() {
    const settings = data.settings.map((setting, s) => ({ key: `s${s}`, label: setting.label, words: setting.words, unit: setting.unit, of: (point) => point.at[s] }));
    const shown = [...new Set([choices.x, ...data.shown.map(metric), choices.y])].filter((m) => m >= 0 && known(m));
    const figures = shown.map((m) => ({ key: `m${m}`, label: data.metrics[m].label, words: null, unit: data.metrics[m].unit, of: (point) => mean(point, m) }));
    return [...settings, ...figures].map((axis) => {
      const [low, high] = range(data.points.map(axis.of).filter((v) => v !== null));
      return { ...axis, low, high, share: (point) => axis.of(point) === null ? null : (axis.of(point) - low) / (high - low) };
    });
  }
  function drawLines() {
    const svg = document.getElementById("lines"), height = 390, top = 54, bottom = 24;
    const width = svg.clientWidth || 800, all = axes();
    svg.replaceChildren();
    svg.setAttribute("height", height);
    const longest = Math.max(...(all[0].words || [""]).map((word) => word.length));
    const last = Math.max(...(all.at(-1).words || [""]).map((word) => word.length));
    const left = Math.max(36, Math.min(130, 14 + 6 * longest)), right = Math.max(36, Math.min(130, 14 + 6 * last));
    const at = (i) => all.length === 1 ? width / 2 : left + (width - left - right) * i / (all.length - 1);
    const down = (share) => height - bottom - (height - bottom - top) * share;
    const y = choices.y, best = front();
    const order = data.points.map((point) => mean(point, y)).filter((v) => v !== null).sort((a, b) => a - b);
    const grade = (point) => {
      if (mean(point, y) === null) return 0;
      const q = Math.min(4, Math.floor(5 * order.indexOf(mean(point, y)) / order.length));
      return data.metrics[y].better === "lower" ? 4 - q : q;
    };
    const sorted = data.points.map((point) => [grade(point), point]).sort((a, b) => a[0] - b[0]);
    for (const [q, point] of sorted) {
      const steps = all.map((axis, i) => axis.share(point) === null ? null : `${at(i)} ${down(axis.share(point))}`).filter((step) => step);
      const kind = `way q${q}${best.includes(point) ? " front" : ""}${passes(point) ? "" : " off"}`;
      const line = make("path", svg, { class: kind, d: `M${steps.join("L")}`, "data-point": point.point });
      line.addEventListener("pointermove", (event) => { light(point); say(about(point), event.clientX, event.clientY); });
      line.addEventListener("pointerleave", hush);
    }
    all.forEach((axis, i) => drawAxis(svg, axis, at(i), down, i === 0, all.length > 6 && i % 2 === 1));
    const count = data.points.filter(passes).length;
    document.getElementById("lines-say").textContent = kept.size ? `${count} of ${data.points.length} points pass.` : "";
    document.getElementById("all").hidden = !kept.size;
    for (const row of document.querySelectorAll("#points tbody tr")) {
      const point = data.points.find((one) => one.point === +row.dataset.point);
      row.hidden = Boolean(point && !passes(point));
    }
  }
  function drawAxis(svg, axis, x, down, first, low) {
    make("line", svg, { class: "rod", x1: x, x2: x, y1: down(0), y2: down(1) });
    make("text", svg, { class: "name", x, y: low ? 28 : 14, "text-anchor": "middle" }, axis.label);
    const labels = axis.words ? axis.words.map((word, w) => [w, word]) : [[axis.low], [axis.high]].map(([v]) => [v, value(v, axis.unit)]);
    labels.forEach(([v, text], i) => {
      const y = down((v - axis.low) / (axis.high - axis.low));
      if (axis.words) make("text", svg, { class: "tick end", x: first ? x - 8 : x + 8, y: y + 4, "text-anchor": first ? "end" : "start" }, text);
      else make("text", svg, { class: "tick end", x, y: i ? y - 7 : y + 15, "text-anchor": "middle" }, text);
    });
    const part = kept.get(axis.key);
    if (part) make("rect", svg, { class: "kept", x: x - 7, width: 14, y: down(part[1]), height: Math.max(2, down(part[0]) - down(part[1])) });
    const grip = make("rect", svg, { class: "grip", x: x - 11, width: 22, y: down(1) - 4, height: down(0) - down(1) + 8 });
    let start = null;
    const share = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.min(1, Math.max(0, (down(0) - (event.clientY - box.top)) / (down(0) - down(1))));
    };
    grip.addEventListener("pointerdown", (event) => {
      start = share(event);
      grip.setPointerCapture(event.pointerId);
    });
    grip.addEventListener("pointerup", (event) => {
      const end = share(event);
      if (Math.abs(end - start) < 0.02) kept.delete(axis.key); else kept.set(axis.key, [Math.min(start, end), Math.max(start, end)]);
      draw();
    });
    let shown = null;
    grip.addEventListener("pointermove", (event) => {
      if (start === null) return;
      if (!shown) shown = make("rect", svg, { class: "kept", x: x - 7, width: 14 });
      const [a, b] = [start, share(event)].sort((m, n) => m - n);
      shown.setAttribute("y", down(b));
      shown.setAttribute("height", Math.max(1, down(a) - down(b)));
    });
  }
  function light(point) {
    for (const node of document.querySelectorAll(".spot, .way")) node.classList.toggle("on", +node.dataset.point === point.point);
  }
  function hush() {
    tip.hidden = true;
    for (const node of document.querySelectorAll(".spot.on, .way.on")) node.classList.remove("on");
  }
  function draw() { drawFront(); drawLines(); }

  // What a reader can do
  const drawn = data.points.length > 1 && choices.x >= 0 && choices.y >= 0;
  if (drawn) {
    for (const section of document.querySelectorAll(".drawn")) section.hidden = false;
    for (const side of ["x", "y"]) {
      const list = document.getElementById(side);
      data.metrics.forEach((one, m) => { if (known(m)) list.append(new Option(one.name, m, m === choices[side], m === choices[side])); });
      list.addEventListener("change", () => { choices[side] = +list.value; draw(); });
    }
    document.getElementById("all").addEventListener("click", () => { kept.clear(); draw(); });
    draw();
    let width = document.getElementById("front").clientWidth;
    new ResizeObserver(([entry]) => {
      const now = Math.round(entry.contentRect.width);
      if (now !== width) { width = now; requestAnimationFrame(draw); }
    }).observe(document.getElementById("front"));
  }
  const table = document.getElementById("points");
  if (table) {
    [...table.tHead.rows[0].cells].forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const by = (row) => row.cells[column].dataset.by;
      const order = (a, b) => isNaN(by(a)) || isNaN(by(b)) ? by(a).localeCompare(by(b)) : by(a) - by(b);
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    }));
    table.addEventListener("pointerover", (event) => {
      const row = event.target.closest("tbody tr");
      const point = row && data.points.find((one) => one.point === +row.dataset.point);
      if (point) light(point); else hush();
    });
    table.addEventListener("pointerleave", hush);
  }
})();
