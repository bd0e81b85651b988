// chart: lines over steps with dygraphs, drawn at most once a frame. Zoom (drag; double click: all of it), smoothing
// and scale are the reader's and survive every update. Without dygraphs: a table of the newest values.
// Colours are the theme's variables, read again when it changes. The library's own legend writes inline styles, which
// the page's policy forbids; ours is text.
import { fill, gather, h, row, table } from "/dashboard/dom.js";
import { number } from "/dashboard/text.js";

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

export class Chart {
  // options: {title, unit, format, stacked}
  constructor(options) {
    this.options = { format: number, ...options };
    this.view = { smoothing: 0, log: false };
    this.lines = {};
    this.canvas = h("div", { class: "chart", role: "img", "aria-label": options.title });
    this.legend = h("div", { class: "legend" });
    const head = h("h2", {}, options.title, options.unit ? h("span", { class: "soft small" }, ` ${options.unit}`) : "");
    this.element = h("section", { class: "card" }, h("div", { class: "chart-head" }, head), this.canvas, this.legend);
    this.plan = gather(() => { if (this.element.isConnected) this.draw(); });
    this.onTheme = () => { this.drop(); this.plan(); };
    addEventListener("themechange", this.onTheme);
  }

  set(lines) { this.lines = lines; this.plan(); }
  look(view) { this.view = { ...this.view, ...view }; this.plan(); }

  drop() { this.graph?.destroy(); this.graph = undefined; }
  end() { removeEventListener("themechange", this.onTheme); this.plan.end(); this.drop(); }

  rows(labels) {
    const steps = [...new Set(labels.flatMap((label) => [...this.lines[label].keys()]))].sort((a, b) => a - b);
    this.marks = steps.filter((step) => labels.some((label) => Number.isNaN(this.lines[label].get(step))));
    const columns = labels.map((label) => {
      const values = steps.map((step) => this.lines[label].get(step) ?? null);
      return this.view.smoothing > 0 && !this.options.stacked ? smoothed(values, this.view.smoothing) : values;
    });
    return steps.map((step, i) => [step, ...columns.map((column) => column[i])]);
  }

  say(labels, values, step) {
    fill(this.legend, step === undefined ? null : h("b", {}, `step ${step}`), labels.map((label, i) =>
      h("span", { class: `t${i % 8}` }, labels.length > 1 ? `${label} ` : "", this.options.format(values[i]))));
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
    this.newest = labels.map((label) => [...this.lines[label].values()].at(-1));
    if (window.Dygraph === undefined) {
      const heads = ["Step", ...labels];
      fill(this.canvas, table(heads, rows.slice(-5).map((cells) => row(heads, cells.map((cell) => number(cell)))), ""));
      return;
    }
    const options = { file: rows, labels: ["step", ...labels], logscale: this.view.log && !this.options.stacked,
      colors: labels.map((_, i) => css(`--c${i % 8}`)) };
    if (this.graph === undefined) this.make(options);
    else this.graph.updateOptions(options);
    this.say(labels, this.newest);
  }

  make(options) {
    const { PLUGINS, Plugins } = window.Dygraph;
    window.Dygraph.PLUGINS = PLUGINS.filter((one) => one !== Plugins.Legend);
    const { file, ...rest } = options;
    fill(this.canvas);
    this.graph = new window.Dygraph(this.canvas, file, { ...rest, legend: "never", connectSeparatedPoints: true,
      stackedGraph: Boolean(this.options.stacked), fillAlpha: 0.55, strokeWidth: 1.6, drawPoints: false,
      highlightCircleSize: 3, axisLineColor: css("--line"), gridLineColor: css("--line"), rightGap: 12,
      includeZero: Boolean(this.options.stacked || this.options.zero),
      axes: { x: { axisLabelWidth: 60, pixelsPerLabel: 80, axisLabelFormatter: (step) => (Number.isInteger(step) ? String(step) : "") },
        y: { axisLabelWidth: 66, axisLabelFormatter: (value) => this.options.format(value) } },
      underlayCallback: (canvas, area, graph) => this.mark(canvas, area, graph),
      highlightCallback: (_, step, points) => {
        const labels = Object.keys(this.lines);
        this.say(labels, labels.map((label) => this.options.stacked ? this.lines[label].get(step) : points.find((point) => point.name === label)?.yval), step);
      },
      unhighlightCallback: () => this.say(Object.keys(this.lines), this.newest) });
  }

  // A red line where a value was not a number.
  mark(canvas, area, graph) {
    canvas.fillStyle = css("--bad");
    for (const step of this.marks) {
      const x = graph.toDomXCoord(step);
      if (x >= area.x && x <= area.x + area.w) canvas.fillRect(x - 1, area.y, 2, area.h);
    }
  }
}

// Smoothing and scale for charts together; the choice is kept for the tab's life.
const kept = { smoothing: 0, log: false };
export function tools(charts) {
  const apply = () => { for (const chart of charts()) chart.look(kept); };
  const range = h("input", { type: "range", min: "0", max: "0.98", step: "0.02", id: "smoothing", value: String(kept.smoothing),
    oninput: (event) => { kept.smoothing = Number(event.target.value); apply(); } });
  const log = h("input", { type: "checkbox", id: "log", checked: kept.log, onchange: (event) => { kept.log = event.target.checked; apply(); } });
  apply();
  return h("div", { class: "tools" }, h("label", { for: "smoothing" }, "Smoothing", range), h("label", { for: "log" }, log, "Log scale"),
    window.Dygraph === undefined
      ? h("span", { class: "soft" }, "Charts need dygraphs: install the package libjs-dygraphs where the daemon runs, or set dygraphs_dir; until then the newest values are shown.")
      : h("span", { class: "soft small" }, "Drag over a chart to zoom, double click for all of it."));
}
