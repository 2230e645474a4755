"use strict";
// One chart: uPlot for the drawing; keys, empty state, keyboard and spoken values around it.
// Every text goes into the document by textContent: names of classes and models are strangers' texts.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};

class Chart {
  // options: id, title, height, format(value), range([low, high]) -> [low, high], empty, place(x)
  constructor(options) {
    this.options = options;
    this.box = document.getElementById(options.id);
    this.keys = element("div", { class: "keys" });
    this.plot = element("div", {
      class: "plot", tabindex: "0", role: "group",
      "aria-label": `${options.title}: chart. Left and right arrow keys read its values.`,
    });
    this.nodata = element("p", { class: "nodata", text: "Not enough data yet." });
    this.box.append(this.keys, this.plot, this.nodata);
    this.shape = "";
    this.marks = [];
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("blur", () => this.point(null));
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  // curves: [{name, color, dash, values}], xs: numbers that go up
  show(xs, curves, time, marks = []) {
    const shape = JSON.stringify([time, curves.map((c) => [c.name, c.color, c.dash])]);
    const drawn = curves.some((c) => c.values.filter((v) => v !== null).length >= 2);
    this.nodata.hidden = drawn;
    this.nodata.textContent = this.options.empty || "Not enough data yet.";
    this.plot.tabIndex = drawn ? 0 : -1;
    this.marks = marks;
    this.curves = curves;
    this.time = time;
    this.data = [xs, ...curves.map((c) => c.values)];
    if (!this.u || shape !== this.shape) {
      this.shape = shape;
      this.build();
    } else {
      this.u.setData(this.data);
    }
    this.tell(this.u.cursor.idx);
  }

  repaint() {
    if (this.data) this.build();
  }

  build() {
    if (this.u) this.u.destroy();
    const soft = css("--soft"), line = css("--line-soft"), format = this.options.format;
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: soft, font, ticks: { show: false }, grid: { stroke: line, width: 1 } };
    this.u = new uPlot({
      width: this.width(), height: this.options.height,
      padding: [this.options.marks ? 22 : 8, 10, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: this.time },
        y: { range: (u, low, high) => this.options.range(low, high) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 28, space: 70, values: (u, vs, i, room, step) => vs.map((v) => (this.time ? tick(v, step) : compact(v))) },
        { ...axis, size: 54, space: 34, values: (u, vs) => vs.map((v) => format(v, true)) },
      ],
      series: [{}, ...this.curves.map((c) => ({
        stroke: css(c.color), width: 2, dash: c.dash ? [5, 4] : undefined, spanGaps: !!c.spans,
        points: { show: false },
      }))],
      hooks: { draw: [(u) => this.drawMarks(u)], setCursor: [(u) => this.tell(u.cursor.idx)] },
    }, this.data, this.plot);
    this.keys.replaceChildren(...this.curves.map((c) => {
      c.key = element("b", { text: "–" });
      const sample = element("i", { class: c.dash ? "dash" : "" });
      sample.style.setProperty("--key", css(c.color));
      return element("span", {}, sample, element("span", { text: c.name }), c.key);
    }), this.when = element("span"));
  }

  // a thin line where a class was born, with its name where there is room
  drawMarks(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio || 1, xs = u.data[0];
    if (!this.marks.length || xs.length < 2) return;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.strokeStyle = ctx.fillStyle = css("--mark");
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    let free = bbox.left - 4 * ratio;
    for (const mark of this.marks) {
      if (mark.x < xs[0] || mark.x > xs[xs.length - 1]) continue;
      const x = Math.round(u.valToPos(mark.x, "x", true)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const name = mark.name.length > 12 ? mark.name.slice(0, 11) + "…" : mark.name;
      const width = ctx.measureText(name).width, left = x - width / 2;
      if (left > free && left + width < bbox.left + bbox.width + 10 * ratio) {
        ctx.fillText(name, left, bbox.top - 7 * ratio);
        free = left + width + 8 * ratio;
      }
    }
    ctx.restore();
  }

  // the values at a place, or the last ones
  tell(index) {
    const at = index === null || index === undefined ? null : index;
    for (const curve of this.curves) {
      let value = at === null ? null : curve.values[at];
      if (at === null) for (let i = curve.values.length - 1; i >= 0 && value === null; i--) value = curve.values[i];
      if (curve.key) curve.key.textContent = value === null || value === undefined ? "–" : this.options.format(value);
    }
    const x = at === null ? null : this.data[0][at];
    if (this.when) this.when.textContent = x === null || x === undefined ? "" : this.place(x);
  }

  // where the cursor is, in words
  place(x) {
    if (this.options.place) return this.options.place(x);
    return this.time ? clock(x) : `event ${whole(x)}`;
  }

  point(index) {
    const u = this.u;
    if (!u) return;
    if (index === null) return u.setCursor({ left: -10, top: -10 });
    u.setCursor({ left: u.valToPos(this.data[0][index], "x"), top: 10 });
  }

  onKey(event) {
    const last = this.data ? this.data[0].length - 1 : -1;
    if (last < 0) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    let index = this.u.cursor.idx ?? last;
    if (event.key in steps) index += steps[event.key];
    else if (event.key === "Home") index = 0;
    else if (event.key === "End") index = last;
    else if (event.key === "Escape") return this.point(null);
    else return;
    event.preventDefault();
    index = Math.max(0, Math.min(last, index));
    this.point(index);
    this.tell(index);
    const values = this.curves.map((c) => `${c.name} ${c.values[index] === null ? "unknown" : this.options.format(c.values[index])}`);
    document.getElementById("spoken").textContent = `${this.place(this.data[0][index])}: ${values.join(", ")}`;
  }

  width() {
    return Math.max(200, this.box.clientWidth);
  }

  resize() {
    if (this.u && this.u.width !== this.width()) this.u.setSize({ width: this.width(), height: this.options.height });
  }
}

// ---- numbers as people read them

function tick(seconds, step) {
  const at = new Date(seconds * 1000);
  if (step >= 86400) return at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const form = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return at.toLocaleTimeString(undefined, step >= 60 ? form : { ...form, second: "2-digit" });
}

const whole = (n) => Math.round(n).toLocaleString("en");
const clock = (seconds) => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
const percent = (v, axis) => (v === null || v === undefined ? "–" : `${(v * 100).toFixed(axis ? 0 : 1)}\u00a0%`);

function compact(n) {
  if (n === null || n === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(n) >= size) return `${trim(n / size)}${unit}`;
  }
  return trim(n);
}

function trim(n) {
  return String(Math.abs(n) >= 100 ? Math.round(n) : Number(n.toPrecision(3)));
}

function duration(s) {
  if (s === null || s === undefined) return "–";
  if (s === 0) return "0 s";
  if (s < 1e-3) return `${trim(s * 1e6)} µs`;
  if (s < 1) return `${trim(s * 1e3)} ms`;
  return s < 120 ? `${trim(s)} s` : age(s);
}

function age(s) {
  if (s === null || s === undefined) return "–";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (s >= 2 * size) return `${Math.floor(s / size)} ${unit}`;
  }
  return `${Math.max(0, Math.floor(s))} s`;
}

function bytes(n) {
  if (n === null || n === undefined) return "–";
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (n >= size) return `${trim(n / size)} ${unit}`;
  }
  return `${n} B`;
}
