// Line charts over a shared time axis: what is zoomed in one is zoomed in all of its group.
"use strict";

const HEIGHT = 150, LEFT = 52, RIGHT = 16, BOTTOM = 20, TOP = 8;
const LETTER = 7;  // width of one in the font of labels, at most
const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function brief(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + "G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + "M";
  if (size >= 1e5) return (value / 1e3).toPrecision(3) + "k";
  return (Number.isInteger(value) ? value : Number(value.toPrecision(3))).toLocaleString("en", { maximumSignificantDigits: 6 });
}

function duration(seconds) {
  if (seconds >= 7200) return brief(seconds / 3600) + " h";
  return seconds >= 120 ? brief(seconds / 60) + " min" : brief(seconds) + " s";
}

// Round numbers that cut a range into about `parts`.
function ticks(low, high, parts) {
  const span = high - low || 1, rough = span / parts, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

// Times that are round in the unit in which they are shown.
function timeTicks(low, high) {
  const [unit, name] = high >= 7200 ? [3600, "h"] : high >= 120 ? [60, "min"] : [1, "s"];
  return ticks(low / unit, high / unit, 4).map((at) => [at * unit, `${brief(at)} ${name}`]);
}

function clockTicks(clock) { return (low, high) => ticks(low, high, 4).map((at) => [at, clock(at)]); }

class ChartGroup {
  constructor(place, clock = null) {
    this.place = place;
    this.clock = clock ?? duration;
    this.ticks = clock ? clockTicks(clock) : timeTicks;
    this.charts = [];
    this.shown = null;
    place.replaceChildren();
  }

  add(title, names) {
    const chart = new Chart(this, title, names);
    this.charts.push(chart);
    this.place.append(chart.figure);
    return chart;
  }

  get whole() {
    const times = this.charts.flatMap((chart) => chart.times.length ? [chart.times[0], chart.times[chart.times.length - 1]] : []);
    return times.length ? [Math.min(...times), Math.max(...times)] : [0, 1];
  }

  get range() {
    const [low, high] = this.shown ?? this.whole;
    return high > low ? [low, high] : [low, low + 1];
  }

  zoom(low, high) {
    const [first, last] = this.whole, least = (last - first) / 1000;
    if (high - low < least) return;
    this.shown = low <= first && high >= last ? null : [Math.max(low, first), Math.min(high, last)];
    this.draw();
  }

  by(factor) {
    const [low, high] = this.range, middle = (low + high) / 2, half = (high - low) / 2 * factor;
    this.zoom(middle - half, middle + half);
  }

  move(share) {
    const [low, high] = this.range, [first, last] = this.whole;
    const step = Math.max(first - low, Math.min(last - high, (high - low) * share));
    this.zoom(low + step, high + step);
  }

  all() { this.shown = null; this.draw(); }
  draw() { for (const chart of this.charts) if (chart.times.length) chart.draw(); }
  point(time) { for (const chart of this.charts) chart.point(time); }
}

class Chart {
  constructor(group, title, names) {
    this.group = group;
    this.title = title;
    this.names = names;
    this.times = [];
    this.values = names.map(() => []);
    this.figure = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.caption.textContent = title;
    this.svg = shape("svg", { class: "chart", role: "img", tabindex: "0" });
    this.figure.append(this.caption, this.svg);
    this.listen();
    new ResizeObserver(() => { if (this.times.length && this.svg.clientWidth !== this.width) this.draw(); }).observe(this.svg);
  }

  push(time, values) {
    this.times.push(time);
    values.forEach((value, place) => this.values[place].push(value));
  }

  // Lines by name; one that comes later begins there, and one that is missing has a gap.
  pushNamed(time, lines) {
    for (const name of Object.keys(lines)) {
      if (this.names.includes(name)) continue;
      this.names.push(name);
      this.values.push(this.times.map(() => NaN));
    }
    this.push(time, this.names.map((name) => lines[name] ?? NaN));
  }

  x(time) { const [low, high] = this.group.range; return LEFT + (time - low) / (high - low) * (this.width - LEFT - RIGHT); }

  timeAt(event) {
    const box = this.svg.getBoundingClientRect(), [low, high] = this.group.range;
    return low + Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT))) * (high - low);
  }

  // The first sample at or after a time.
  placeOf(time) {
    let low = 0, high = this.times.length - 1;
    while (low < high) { const middle = (low + high) >> 1; if (this.times[middle] < time) low = middle + 1; else high = middle; }
    return low;
  }

  draw() {
    this.width = this.svg.clientWidth || 600;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    const [low, high] = this.group.range, from = Math.max(0, this.placeOf(low) - 1), to = Math.min(this.times.length, this.placeOf(high) + 2);
    const seen = this.values.flatMap((own) => own.slice(from, to)).filter(Number.isFinite);
    const most = Math.max(0, ...seen) || 1, height = HEIGHT - BOTTOM - TOP;
    const levels = ticks(0, most, 3), top = Math.max(most, levels[levels.length - 1]);
    const y = (value) => TOP + height * (1 - value / top);
    const parts = [];
    for (const level of levels) {
      parts.push(shape("line", { class: "grid", x1: LEFT, x2: this.width, y1: y(level), y2: y(level) }));
      parts.push(shape("text", { x: LEFT - 6, y: y(level) + 4, "text-anchor": "end" }, brief(level)));
    }
    for (const [time, text] of this.group.ticks(low, high)) {
      const x = Math.min(this.x(time), this.width - LETTER / 2 * text.length);
      parts.push(shape("text", { x, y: HEIGHT - 5, "text-anchor": "middle" }, text));
    }
    this.values.forEach((own, place) => {
      let path = "", open = false;
      for (let at = from; at < to; at++) {
        if (!Number.isFinite(own[at])) { open = false; continue; }
        path += `${open ? "L" : "M"}${this.x(this.times[at]).toFixed(1)} ${y(own[at]).toFixed(1)}`;
        open = true;
      }
      if (path) parts.push(shape("path", { class: `line s${place}`, d: path }));
    });
    this.band = shape("rect", { class: "band", y: TOP, height, x: 0, width: 0 });
    this.cursor = shape("line", { class: "cursor", y1: TOP, y2: TOP + height, x1: -9, x2: -9 });
    this.svg.replaceChildren(...parts, this.band, this.cursor);
    this.point(null);
  }

  // Says the values at a time, or the last ones that are shown.
  point(time) {
    if (!this.times.length) return;
    const last = this.placeOf(this.group.range[1]), place = time === null ? last : this.placeOf(time);
    const value = (own) => time === null ? own.slice(0, last + 1).findLast(Number.isFinite) : own[place];
    const said = this.names.map((name, number) => `${name} ${brief(value(this.values[number]))}`);
    this.caption.replaceChildren(document.createTextNode(this.title));
    said.forEach((text, number) => {
      const span = document.createElement("span");
      span.className = `k${number}`;
      span.textContent = text;
      this.caption.append(span);
    });
    if (time !== null) {
      const span = document.createElement("span");
      span.textContent = `at ${this.group.clock(this.times[place])}`;
      this.caption.append(span);
      this.cursor.setAttribute("x1", this.x(this.times[place]));
      this.cursor.setAttribute("x2", this.x(this.times[place]));
    }
    this.svg.setAttribute("aria-label", `${this.title}: ${said.join(", ")}`);
  }

  listen() {
    let begun = null;
    this.svg.addEventListener("pointerdown", (event) => { if (!this.times.length) return; begun = this.timeAt(event); this.svg.setPointerCapture(event.pointerId); });
    this.svg.addEventListener("pointermove", (event) => {
      if (!this.times.length) return;
      const time = this.timeAt(event);
      this.group.point(time);
      if (begun === null) return;
      const [left, right] = [this.x(Math.min(begun, time)), this.x(Math.max(begun, time))];
      this.band.setAttribute("x", left);
      this.band.setAttribute("width", right - left);
    });
    this.svg.addEventListener("pointerup", (event) => {
      if (begun === null) return;
      const time = this.timeAt(event), [low, high] = [Math.min(begun, time), Math.max(begun, time)];
      begun = null;
      this.group.zoom(low, high);
      this.draw();
    });
    this.svg.addEventListener("pointerleave", () => this.group.point(null));
    this.svg.addEventListener("dblclick", () => this.group.all());
    this.svg.addEventListener("keydown", (event) => {
      const act = { "+": () => this.group.by(0.5), "=": () => this.group.by(0.5), "-": () => this.group.by(2), "0": () => this.group.all(), Escape: () => this.group.all(), ArrowLeft: () => this.group.move(-0.25), ArrowRight: () => this.group.move(0.25) }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }
}
