// chart: lines over steps with dygraphs. Zoom (drag or keys; double click or 0: all of it), smoothing and scale are the
// reader's and survive every update. Where a value was not finite the line has a gap and a red mark, and the legend says
// at which steps. Without dygraphs: a table of the newest values.
// Colours are the theme's variables, read again when it changes. The library's own legend writes inline styles, which
// the page's policy forbids; ours is text.
import { fill, h, row, table } from "/dashboard/dom.js";
import { number, whole } from "/dashboard/text.js";

const COLORS = 8; // --c0 to --c7
const FAINT = "40"; // alpha of what is behind a smoothed line, in hex
const MARKS_TOLD = 5;
const FRAME_MS = 10; // of drawing in a frame
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Exponential mean that is right from its first point on; a gap stays a gap.
function smoothed(values, weight) {
  let sum = 0, norm = 0;
  return values.map((value) => {
    if (value === null || Number.isNaN(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

// "700, 1500 to 1503": the steps that are broken; of neighbours the first and the last.
function ranges(steps, broken) {
  const list = [];
  for (let i = 0; i < steps.length; i++) {
    const first = i;
    while (broken(i)) i++;
    if (i > first) list.push(i - first === 1 ? String(steps[first]) : `${steps[first]} to ${steps[i - 1]}`);
  }
  return list;
}

// Charts that are to be drawn: as many a frame as fit into it, those in view first, so that the page answers at once
// however many there are.
const waiting = new Set();
function drawSome() {
  const until = performance.now() + FRAME_MS;
  const inView = ({ element }) => { const { top, bottom } = element.getBoundingClientRect(); return bottom > 0 && top < innerHeight; };
  const seen = [...waiting].filter(inView);
  try {
    for (const chart of new Set([...seen, ...waiting])) {
      waiting.delete(chart);
      if (chart.element.isConnected && !chart.element.hidden) chart.draw();
      if (performance.now() > until) break;
    }
  } finally {
    if (waiting.size > 0) requestAnimationFrame(drawSome);
  }
}

export class Chart {
  // options: {title, unit, format, x: what the axis counts, stacked, plain: never smoothed, zero: the axis has 0,
  // binary: it counts bytes, named: a single line has a name, too, tone(label): number of its colour, else its place}
  constructor(options) {
    this.options = { format: number, x: "step", ...options };
    this.view = { smoothing: 0, log: false };
    this.lines = {};
    this.canvas = h("div", { class: "chart", role: "img", tabindex: "0", "aria-label": options.title, onkeydown: (event) => this.key(event) });
    this.legend = h("div", { class: "legend" });
    const head = h("h2", {}, options.title, options.unit ? h("span", { class: "soft small" }, ` ${options.unit}`) : "");
    this.element = h("section", { class: "card" }, h("div", { class: "chart-head" }, head), this.canvas, this.legend);
    this.onTheme = () => { this.drop(); this.plan(); };
    addEventListener("themechange", this.onTheme);
  }

  plan() {
    if (waiting.size === 0) requestAnimationFrame(drawSome);
    waiting.add(this);
  }

  // lines: {label: Map(step -> number; NaN: not finite)}
  set(lines) { this.lines = lines; this.plan(); }
  look(view) { this.view = { ...this.view, ...view }; this.plan(); }

  drop() { this.graph?.destroy(); this.graph = undefined; }
  end() { removeEventListener("themechange", this.onTheme); waiting.delete(this); this.drop(); }

  tone(label, i) { return (this.options.tone?.(label) ?? i) % COLORS; }
  get smooths() { return this.view.smoothing > 0 && !this.options.stacked && !this.options.plain; }

  // [x, a value of each label, and what they were before they were smoothed], in order of x
  rows(labels) {
    const steps = [...new Set(labels.flatMap((label) => [...this.lines[label].keys()]))].sort((a, b) => a - b);
    const raw = labels.map((label) => steps.map((step) => this.lines[label].get(step) ?? null));
    const columns = this.smooths ? [...raw.map((values) => smoothed(values, this.view.smoothing)), ...raw] : raw;
    const broken = (i) => raw.some((values) => Number.isNaN(values[i]));
    this.marks = steps.filter((_, i) => broken(i));
    this.told = ranges(steps, broken);
    this.newest = columns.slice(0, labels.length).map((values) => values.findLast((value) => value !== null));
    return steps.map((step, i) => [step, ...columns.map((column) => column[i])]);
  }

  say(values, step) {
    const labels = Object.keys(this.lines), more = this.told.length - MARKS_TOLD;
    const text = (value) => (Number.isNaN(value) ? "not finite" : this.options.format(value));
    fill(this.legend, step === undefined ? null : h("b", {}, `${this.options.x} ${whole(step)}`), labels.map((label, i) =>
      h("span", { class: `key t${this.tone(label, i)}` }, labels.length > 1 || this.options.named ? `${label} ` : "", h("b", {}, text(values[i])))),
    this.marks.length === 0 ? null : h("span", { class: "marks" },
      `Not finite at ${this.options.x} ${this.told.slice(0, MARKS_TOLD).join(", ")}${more > 0 ? ` and ${more} more` : ""}`));
    if (step === undefined) this.canvas.setAttribute("aria-label", `${this.options.title}. Newest: ${labels.map((label, i) => `${label} ${text(values[i])}`).join(", ")}`);
  }

  draw() {
    const labels = Object.keys(this.lines);
    const rows = this.rows(labels);
    if (rows.length === 0) {
      this.drop();
      fill(this.canvas, h("p", { class: "soft" }, "No points yet."));
      fill(this.legend);
      return;
    }
    if (window.Dygraph === undefined) {
      const heads = [this.options.x, ...labels];
      fill(this.canvas, table(heads, rows.slice(-5).map((cells) => row(heads, cells.slice(0, heads.length).map((cell) => number(cell)))), ""));
      this.say(this.newest);
      return;
    }
    const colors = labels.map((label, i) => css(`--c${this.tone(label, i)}`)), log = this.view.log && !this.options.stacked;
    const options = { file: rows, labels: [this.options.x, ...labels, ...(this.smooths ? labels.map((label) => `${label}, as it was`) : [])], logscale: log,
      includeZero: !log && Boolean(this.options.stacked || this.options.zero), colors: this.smooths ? [...colors, ...colors.map((color) => color + FAINT)] : colors };
    if (rows.length === 1) options.dateWindow = [rows[0][0] - 1, rows[0][0] + 1]; // else it has no width
    else if (this.alone) options.dateWindow = null;
    this.alone = rows.length === 1;
    if (this.graph === undefined) this.make(options);
    else this.graph.updateOptions(options);
    this.say(this.newest);
  }

  make(options) {
    const { PLUGINS, Plugins } = window.Dygraph;
    window.Dygraph.PLUGINS = PLUGINS.filter((one) => one !== Plugins.Legend);
    const { file, ...rest } = options;
    fill(this.canvas);
    this.graph = new window.Dygraph(this.canvas, file, { ...rest, legend: "never", connectSeparatedPoints: true,
      stackedGraph: Boolean(this.options.stacked), fillAlpha: 0.55, strokeWidth: 1.6, drawPoints: false,
      highlightCircleSize: 3, axisLineColor: css("--line"), gridLineColor: css("--line"), rightGap: 12,
      axes: { x: { axisLabelWidth: 60, pixelsPerLabel: 56, axisLabelFormatter: (step) => (Number.isInteger(step) ? whole(step) : "") },
        y: { axisLabelWidth: 66, labelsKMG2: Boolean(this.options.binary), axisLabelFormatter: (value) => this.options.format(value) } },
      underlayCallback: (canvas, area, graph) => this.mark(canvas, area, graph),
      highlightCallback: (_, step, points) => this.say(Object.keys(this.lines).map((label) =>
        this.options.stacked ? this.lines[label].get(step) : points.find((point) => point.name === label)?.yval), step),
      unhighlightCallback: () => this.say(this.newest) });
  }

  // A red line where a value was not a number.
  mark(canvas, area, graph) {
    canvas.fillStyle = css("--bad");
    for (const step of this.marks) {
      const x = graph.toDomXCoord(step);
      if (x >= area.x && x <= area.x + area.w) canvas.fillRect(x - 1, area.y, 2, area.h);
    }
  }

  // Arrows move what is shown, + and - zoom, 0 shows all of it.
  key(event) {
    if (this.graph === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const [from, to] = this.graph.xAxisRange(), [first, last] = this.graph.xAxisExtremes(), width = to - from;
    const ends = { ArrowLeft: [from - width / 5, to - width / 5], ArrowRight: [from + width / 5, to + width / 5], "+": [from + width / 4, to - width / 4],
      "=": [from + width / 4, to - width / 4], "-": [from - width / 2, to + width / 2] }[event.key];
    if (event.key === "0") this.graph.resetZoom();
    else if (ends && ends[0] < last && ends[1] > first) this.graph.updateOptions({ dateWindow: [Math.max(first, ends[0]), Math.min(last, ends[1])] });
    if (ends || event.key === "0") event.preventDefault();
  }
}

// Smoothing and scale for charts together; the choice is kept for the tab's life.
const kept = { smoothing: 0, log: false };
export function tools(charts, ...more) {
  const apply = () => { for (const chart of charts()) chart.look(kept); };
  const range = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", id: "smoothing", value: String(kept.smoothing),
    oninput: (event) => { kept.smoothing = Number(event.target.value); apply(); } });
  const log = h("input", { type: "checkbox", id: "log", checked: kept.log, onchange: (event) => { kept.log = event.target.checked; apply(); } });
  apply();
  return h("div", { class: "tools" }, h("label", { for: "smoothing" }, "Smoothing", range), h("label", { for: "log" }, log, "Log scale"), more,
    window.Dygraph === undefined
      ? h("span", { class: "soft" }, "Charts need dygraphs: install the package libjs-dygraphs where the daemon runs, or set dygraphs_dir; until then the newest values are shown.")
      : h("span", { class: "soft small" }, "Drag over a chart to zoom, double click for all of it. With keys: arrows, +, −, 0."));
}
