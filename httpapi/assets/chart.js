// Charts: axes, values under the pointer and the arrow keys, drawn in the pixels that they have.
import { element, shape, figure, number, clock } from "./page.js";

// steps returns round numbers from 0 to at least most, and whole ones if fractions make no sense.
function steps(most, whole) {
  if (most === 0) return [0, 1];
  if (whole && most <= 4) return [...Array(Math.ceil(most) + 1).keys()];
  const raw = most / 4,
    unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 2.5, 5, 10].find((s) => s * unit >= raw * (1 - 1e-9));
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => i * step);
}

const LEFT = 46,
  RIGHT = 8,
  TOP = 8,
  BOTTOM = 22;

// Chart shows series of points over time. Data has from, to and bucket in milliseconds; series, each
// with name, kind (a class), values by bucket and bars; and limits, each with name and max.
export class Chart {
  constructor(at, name, height, unit) {
    Object.assign(this, { at, name, height, unit, data: null, cursor: -1 });
    this.plot = element("div", { class: "canvas", tabindex: "0", role: "img" });
    this.readout = element("p", { class: "readout", "aria-live": "polite" });
    at.replaceChildren(this.plot, this.readout);
    this.plot.addEventListener("pointermove", (e) => this.point(e.clientX));
    this.plot.addEventListener("pointerdown", (e) => this.point(e.clientX));
    // A finger leaves as soon as it is lifted: what it tapped stays, unless it scrolls.
    this.plot.addEventListener("pointerleave", (e) => {
      if (e.pointerType !== "touch") this.move(-1);
    });
    this.plot.addEventListener("pointercancel", () => this.move(-1));
    this.plot.addEventListener("blur", () => this.move(-1));
    this.plot.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  show(data) {
    this.data = data;
    this.draw();
  }

  get count() {
    return this.data ? this.data.series[0].values.length : 0;
  }

  // key moves the cursor with the keyboard.
  key(e) {
    const last = this.count - 1,
      at = this.cursor < 0 ? last + 1 : this.cursor;
    const to = {
      ArrowLeft: Math.max(0, at - 1),
      ArrowRight: Math.min(last, at + 1),
      Home: 0,
      End: last,
      Escape: -1,
    }[e.key];
    if (to === undefined || last < 0) return;
    e.preventDefault();
    this.move(to);
  }

  point(x) {
    if (!this.count) return;
    const box = this.plot.getBoundingClientRect();
    const at = Math.floor(((x - box.left - LEFT) / (box.width - LEFT - RIGHT)) * this.count);
    this.move(Math.max(0, Math.min(this.count - 1, at)));
  }

  move(to) {
    this.cursor = to;
    this.mark();
  }

  // mark shows where the cursor is, and what is there.
  mark() {
    const d = this.data;
    if (!d || !this.line) return;
    const at = Math.min(this.cursor, this.count - 1),
      on = at >= 0;
    this.line.classList.toggle("on", on);
    if (on) {
      const x = this.x(d.from + (at + 0.5) * d.bucket);
      this.line.setAttribute("x1", x);
      this.line.setAttribute("x2", x);
    }
    const text = on
      ? [
          clock(d.from + at * d.bucket, d.bucket < 6e4) + ":",
          ...d.series
            .filter((s) => s.values[at] !== undefined && s.values[at] !== null)
            .map(
              (s) =>
                s.name +
                " " +
                (s.values[at] >= 100
                  ? number.format(Math.round(s.values[at]))
                  : figure(s.values[at])) +
                (this.unit || "") +
                ";",
            ),
        ]
          .join(" ")
          .replace(/;$/, "")
      : "";
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }

  // draw makes the picture anew. What listens and has the focus is around it.
  draw() {
    const d = this.data,
      width = this.plot.clientWidth,
      height = this.height;
    if (!d || !width) return;
    const all = d.series.flatMap((s) => s.values.filter((v) => v !== null));
    const scale = steps(Math.max(0, ...all, ...(d.limits || []).map((l) => l.max)), !this.unit);
    const top = scale[scale.length - 1];
    const bottom = height - BOTTOM;
    const y = (v) => bottom - (Math.max(0, v) / top) * (bottom - TOP);
    this.x = (t) => LEFT + ((t - d.from) / (d.to - d.from)) * (width - LEFT - RIGHT);
    const svg = shape("svg", {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "aria-hidden": "true",
    });
    for (const v of scale) {
      svg.append(
        shape("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) }),
        shape("text", { class: "tick", x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, figure(v)),
      );
    }
    this.times(svg, width, height);
    for (const s of d.series) (s.bars ? this.bars : this.curve).call(this, svg, s, y, bottom);
    for (const l of d.limits || []) this.limit(svg, l, y, width);
    this.line = shape("line", { class: "cursor", y1: TOP, y2: bottom, x1: 0, x2: 0 });
    svg.append(this.line);
    this.plot.replaceChildren(svg);
    this.plot.setAttribute("aria-label", this.summary());
    this.mark();
  }

  summary() {
    const d = this.data;
    const parts = d.series.map((s) => {
      const values = s.values.filter((v) => v !== null);
      return `${s.name}: last ${figure(values[values.length - 1] || 0)}, most ${figure(Math.max(0, ...values))}`;
    });
    return (
      `${this.name}, ${clock(d.from, false)} to ${clock(d.to, false)}. ${parts.join("; ")}. ` +
      "Arrow keys read single values."
    );
  }

  // times draws the axis below.
  times(svg, width, height) {
    const d = this.data,
      n = Math.max(2, Math.min(6, Math.floor(width / 110)));
    for (let i = 0; i <= n; i++) {
      const t = d.from + ((d.to - d.from) * i) / n;
      const anchor = i === 0 ? "start" : i === n ? "end" : "middle";
      const text = new Date(t).toLocaleTimeString([], {
        hour: "2-digit",
        minute: "2-digit",
        hourCycle: "h23",
        ...(d.to - d.from < 3e5 ? { second: "2-digit" } : {}),
      });
      svg.append(
        shape("text", { class: "tick", x: this.x(t), y: height - 5, "text-anchor": anchor }, text),
      );
    }
  }

  bars(svg, s, y, bottom) {
    const d = this.data;
    s.values.forEach((v, i) => {
      if (!(v > 0)) return;
      const from = this.x(d.from + i * d.bucket),
        to = this.x(d.from + (i + 1) * d.bucket);
      const gap = Math.min(1, (to - from) * 0.2);
      svg.append(
        shape("rect", {
          class: "bar " + s.kind,
          x: from + gap / 2,
          y: Math.min(y(v), bottom - 1),
          width: to - from - gap,
          height: Math.max(1, bottom - y(v)),
        }),
      );
    });
  }

  curve(svg, s, y) {
    const d = this.data;
    const points = s.values
      .map((v, i) =>
        v === null
          ? null
          : `${this.x(d.from + (i + 0.5) * d.bucket).toFixed(1)},${y(v).toFixed(1)}`,
      )
      .filter(Boolean);
    svg.append(shape("polyline", { class: "curve " + s.kind, points: points.join(" ") }));
  }

  limit(svg, l, y, width) {
    const at = y(l.max);
    svg.append(
      shape("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }),
      shape(
        "text",
        {
          class: "tick limit-name",
          x: LEFT + 4,
          y: at < 14 ? at + 12 : at - 4, // below the line if there is no room above it
          "text-anchor": "start",
        },
        l.name,
      ),
    );
  }
}

// spark draws a small curve without axes, into an element that only it uses.
export function spark(at, values, height, width, kept) {
  values = values.slice(-kept);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    height,
    "aria-hidden": "true",
  });
  const top = Math.max(...values, 1e-9) * 1.08;
  const x = (i) => width - (values.length - 1 - i) * (width / (kept - 1));
  const y = (v) => height - 1 - (v / top) * (height - 3);
  svg.append(
    shape("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
  );
  if (values.length > 1) {
    const points = values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
    svg.append(
      shape("polygon", { class: "area", points: `${x(0)},${height} ${points} ${width},${height}` }),
      shape("polyline", { class: "line", points }),
    );
  }
  at.replaceChildren(svg);
}
