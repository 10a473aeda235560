"use strict";
(() => {
  const data = JSON.parse(document.getElementById("hover").textContent);
  const tip = document.getElementById("tip");
  const cursors = [...document.querySelectorAll(".cursor")];
  const parts = (big, name, small, unit) => small ? `${big} ${name} ${small} ${unit}` : `${big} ${name}`;
  const seconds = (t) => {
    if (t < 59.5) return `${+t.toPrecision(3)} s`;
    const whole = Math.round(t), minutes = Math.round(t / 60);
    return whole < 3600 ? parts(Math.floor(whole / 60), "min", whole % 60, "s") : parts(Math.floor(minutes / 60), "h", minutes % 60, "min");
  };
  const value = (v, unit) => v === null ? "none" : unit === "%" ? `${Math.round(100 * v)}%`
    : v >= 1e9 ? `${+(v / 1e9).toPrecision(3)} G${unit}` : v >= 1e6 ? `${+(v / 1e6).toPrecision(3)} M${unit}`
    : v >= 1e4 ? `${+(v / 1e3).toPrecision(3)} k${unit}` : `${+v.toPrecision(3)}${unit}`;

  function say(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const right = x + 16 + box.width > innerWidth;
    tip.style.left = `${Math.max(4, right ? x - box.width - 14 : x + 14)}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 4))}px`;
  }
  function hush() {
    tip.hidden = true;
    for (const line of cursors) line.classList.remove("on");
  }
  // What all charts show of the run, in shares of it: the whole, or what was zoomed to.
  let low = 0, high = 1;
  const SVG = document.querySelector("svg")?.namespaceURI;
  const LEAST = 0.002, STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const whole = (share) => low + share * (high - low);
  const shown = (share) => (share - low) / (high - low);
  const moving = [...document.querySelectorAll(".plot .tint, .plot .band, .plot .trouble-span, .plot .trouble, .plot .mark")]
    .map((element) => [element, parseFloat(element.getAttribute("x1") ?? element.getAttribute("x")) / 100,
      parseFloat(element.getAttribute("width") ?? "0") / 100]);
  const curves = [...document.querySelectorAll(".plot > svg")].map((svg) => [svg, svg.viewBox.baseVal.width]);
  const grids = [...document.querySelectorAll(".plot line.upright"), ...document.querySelectorAll(".time-axis text")];
  const notice = document.getElementById("zoomed");
  let drawn = [];

  function place(element, start, width) {
    const left = shown(start), right = shown(start + width);
    const from = Math.max(left, 0), to = Math.min(right, 1);
    element.style.display = from <= to ? "" : "none";
    if (element.tagName === "line") {
      element.setAttribute("x1", `${100 * left}%`);
      element.setAttribute("x2", `${100 * left}%`);
    } else {
      element.setAttribute("x", `${100 * from}%`);
      element.setAttribute("width", `${100 * Math.max(to - from, 0)}%`);
    }
  }
  function tick(svg, name, at, text) {
    const element = document.createElementNS(SVG, name);
    const x = `${100 * shown(at)}%`;
    if (name === "text") {
      element.setAttribute("class", "tick");
      element.setAttribute("x", x);
      element.setAttribute("y", "12");
      element.setAttribute("text-anchor", shown(at) < 0.04 ? "start" : shown(at) > 0.96 ? "end" : "middle");
      element.textContent = text;
    } else {
      element.setAttribute("class", "grid");
      for (const [key, value] of [["x1", x], ["x2", x], ["y1", "8"], ["y2", "100"]]) element.setAttribute(key, value);
    }
    svg.insertBefore(element, svg.querySelector("svg"));
    drawn.push(element);
  }
  function ticks() {
    const span = (high - low) * data.end;
    const most = Math.max(2, Math.min(8, Math.floor(document.querySelector(".plot").clientWidth / 90)));
    const power = 10 ** Math.floor(Math.log10(span / most));
    const step = span / most <= 1 ? [1, 2, 5, 10].map((n) => n * power).find((n) => span / n <= most)
      : STEPS.find((n) => span / n <= most) ?? 86400 * Math.ceil(span / most / 86400);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    for (let n = Math.ceil(low * data.end / step - 1e-9); n * step <= high * data.end * (1 + 1e-12); n++) {
      const t = n * step;
      for (const svg of document.querySelectorAll(".time-axis")) tick(svg, "text", t / data.end, digits ? `${t.toFixed(digits)} s` : seconds(t));
      for (const svg of document.querySelectorAll(".plot")) tick(svg, "line", t / data.end);
    }
  }
  function zoom(from, to) {
    const wide = Math.min(1, Math.max(LEAST, to - from));
    low = Math.min(Math.max(0, from), 1 - wide);
    high = low + wide;
    const all = wide === 1;
    hush();
    for (const [element, start, width] of moving) place(element, start, width);
    for (const [svg, across] of curves) svg.setAttribute("viewBox", `${across * low} 0 ${across * wide} 100`);
    for (const image of document.querySelectorAll(".map image")) {
      image.setAttribute("x", `${-100 * low / wide}%`);
      image.setAttribute("width", `${100 / wide}%`);
    }
    for (const element of drawn) element.remove();
    drawn = [];
    for (const element of grids) element.style.display = all ? "" : "none";
    if (!all) ticks();
    notice.hidden = all;
    document.body.classList.toggle("zoomed", !all);
    notice.querySelector("span").textContent = `${seconds(low * data.end)} to ${seconds(high * data.end)}`;
  }
  function brush(plot) {
    let start = null, box = null, area = null;
    const stop = () => { area?.remove(); start = area = null; };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !event.isPrimary) return;
      box = plot.getBoundingClientRect();
      start = within(event, box);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = within(event, box);
      if (!area) {
        area = plot.appendChild(document.createElementNS(SVG, "rect"));
        area.setAttribute("class", "brush");
        area.setAttribute("height", "100%");
      }
      area.setAttribute("x", `${100 * Math.min(start, now)}%`);
      area.setAttribute("width", `${100 * Math.abs(now - start)}%`);
    });
    plot.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const ends = [whole(start), whole(within(event, box))].sort((a, b) => a - b);
      const wanted = Math.abs(within(event, box) - start) > 0.01;
      stop();
      if (wanted) zoom(...ends);
    });
    plot.addEventListener("pointercancel", stop);
    plot.addEventListener("dblclick", () => zoom(0, 1));
  }
  // Keys of a chart: + and - zoom around the cursor, 0 shows all.
  function keyed(event, share) {
    const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (event.key === "0") zoom(0, 1);
    else if (factor) {
      const middle = whole(share), wide = factor * (high - low);
      zoom(middle - wide / 2, middle + wide / 2);
    } else return false;
    event.preventDefault();
    return true;
  }
  function mark(share) {
    for (const line of cursors) {
      line.setAttribute("x1", `${100 * share}%`);
      line.setAttribute("x2", `${100 * share}%`);
      line.classList.add("on");
    }
  }
  function nearest(times, t) {
    let low = 0, high = times.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < t) low = middle + 1; else high = middle;
    }
    return low > 0 && t - times[low - 1] < times[low] - t ? low - 1 : low;
  }
  function decided(share, plot) {
    const near = 600 / plot.getBoundingClientRect().width;  // six pixels, in percent
    const over = 100 * whole(share), by = near * (high - low);
    const marks = data.charts[+plot.dataset.chart].marks.filter(([x]) => Math.abs(x - over) <= by);
    const faults = data.faults.filter(([x, width]) => over >= x - by && over <= x + width + by);
    return [...marks.map(([, says]) => says), ...faults.map(([, , says]) => says)];
  }
  function at(share, x, y, plot) {
    const t = whole(share) * data.end;
    const lines = [seconds(t)];
    const told = decided(share, plot);
    if (told.length) {
      mark(share);
      say([seconds(t), ...told].join("\n"), x, y);
      return;
    }
    for (const chart of data.charts) {
      const i = nearest(chart.t, t);
      for (const [name, values] of chart.lines) lines.push(`${name} ${value(values[i], chart.unit)}`);
    }
    mark(share);
    say(lines.join("\n"), x, y);
  }
  const within = (event, box) => Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));

  if (notice) notice.querySelector("button").addEventListener("click", () => zoom(0, 1));
  for (const plot of document.querySelectorAll(".plot")) {
    let share = 0.5;
    brush(plot);
    plot.addEventListener("pointermove", (event) => {
      share = within(event, plot.getBoundingClientRect());
      at(share, event.clientX, event.clientY, plot);
    });
    plot.addEventListener("pointerleave", hush);
    plot.addEventListener("blur", hush);
    plot.addEventListener("keydown", (event) => {
      if (keyed(event, share)) return;
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) { if (event.key === "Escape") hush(); return; }
      event.preventDefault();
      const next = share + way / 100;
      if (next < 0 || next > 1) zoom(low + way * (high - low) / 4, high + way * (high - low) / 4);
      share = Math.min(1, Math.max(0, next));
      const box = plot.getBoundingClientRect();
      at(share, box.left + share * box.width, box.top + 20, plot);
    });
  }

  const map = document.querySelector(".map");
  if (map) {
    const columns = +map.dataset.columns, rows = +map.dataset.rows;
    let column = columns >> 1, row = 0;
    const cell = (x, y) => {
      const { cells } = data.heat, i = row * columns + column;
      mark(shown((column + 0.5) / columns));
      say(`${data.heat.rows[row]} at ${seconds(data.heat.t[column])}\n${cells.waiting[i]} waiting\n`
        + `${cells.running[i]} running\nKV ${cells.kv_used[i]}%`, x, y);
    };
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      column = Math.min(columns - 1, Math.floor(whole(within(event, box)) * columns));
      row = Math.min(rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * rows)));
      cell(event.clientX, event.clientY);
    });
    map.addEventListener("pointerleave", hush);
    map.addEventListener("blur", hush);
    brush(map);
    map.addEventListener("keydown", (event) => {
      if (keyed(event, shown((column + 0.5) / columns))) return;
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!way) { if (event.key === "Escape") hush(); return; }
      event.preventDefault();
      column = Math.min(columns - 1, Math.max(0, column + way[0]));
      row = Math.min(rows - 1, Math.max(0, row + way[1]));
      const box = map.getBoundingClientRect();
      const seen = shown((column + 0.5) / columns);
      if (seen < 0 || seen > 1) zoom(low + way[0] * (high - low) / 4, high + way[0] * (high - low) / 4);
      cell(box.left + shown((column + 0.5) / columns) * box.width, box.top + (row + 1) / rows * box.height);
    });
  }

  for (const bar of document.querySelectorAll(".bar")) {
    bar.addEventListener("pointermove", (event) => say(bar.dataset.says, event.clientX, event.clientY));
    bar.addEventListener("pointerleave", hush);
    bar.querySelector("title").remove();  // the browser's own tip would say it twice
  }
})();
