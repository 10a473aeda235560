"use strict";
(() => {
  const data = JSON.parse(document.getElementById("hover").textContent);
  const tip = document.getElementById("tip");
  const cursors = [...document.querySelectorAll(".cursor")];
  const seconds = (t) => t >= 3600 ? `${Math.floor(t / 3600)} h ${Math.round(t % 3600 / 60)} min`
    : t >= 60 ? `${Math.floor(t / 60)} min ${Math.round(t % 60)} s` : `${+t.toPrecision(3)} s`;
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
    const marks = data.charts[+plot.dataset.chart].marks.filter(([x]) => Math.abs(x - 100 * share) <= near);
    const faults = data.faults.filter(([x, width]) => 100 * share >= x - near && 100 * share <= x + width + near);
    return [...marks.map(([, says]) => says), ...faults.map(([, , says]) => says)];
  }
  function at(share, x, y, plot) {
    const t = share * data.end;
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

  for (const plot of document.querySelectorAll(".plot")) {
    let share = 0.5;
    plot.addEventListener("pointermove", (event) => {
      share = within(event, plot.getBoundingClientRect());
      at(share, event.clientX, event.clientY, plot);
    });
    plot.addEventListener("pointerleave", hush);
    plot.addEventListener("blur", hush);
    plot.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) { if (event.key === "Escape") hush(); return; }
      event.preventDefault();
      share = Math.min(1, Math.max(0, share + way / 100));
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
      mark((column + 0.5) / columns);
      say(`${data.heat.rows[row]} at ${seconds(data.heat.t[column])}\n${cells.waiting[i]} waiting\n`
        + `${cells.running[i]} running\nKV ${cells.kv_used[i]}%`, x, y);
    };
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      column = Math.min(columns - 1, Math.floor(within(event, box) * columns));
      row = Math.min(rows - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * rows)));
      cell(event.clientX, event.clientY);
    });
    map.addEventListener("pointerleave", hush);
    map.addEventListener("blur", hush);
    map.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!way) { if (event.key === "Escape") hush(); return; }
      event.preventDefault();
      column = Math.min(columns - 1, Math.max(0, column + way[0]));
      row = Math.min(rows - 1, Math.max(0, row + way[1]));
      const box = map.getBoundingClientRect();
      cell(box.left + (column + 0.5) / columns * box.width, box.top + (row + 1) / rows * box.height);
    });
  }

  for (const bar of document.querySelectorAll(".bar")) {
    bar.addEventListener("pointermove", (event) => say(bar.dataset.says, event.clientX, event.clientY));
    bar.addEventListener("pointerleave", hush);
    bar.querySelector("title").remove();  // the browser's own tip would say it twice
  }
})();
