// job_charts: what a job measures, as charts.
import { Chart, tools } from "/dashboard/chart.js";
import { fill, h } from "/dashboard/dom.js";
import { Series } from "/dashboard/series.js";
import { bytes, percent, seconds } from "/dashboard/text.js";

// of: "job" (one line a metric), "ranks" (a line a rank, of the first key that there is), "rank" (of the one chosen)
const CHARTS = [
  { title: "Loss", unit: "nats/token", of: "job", keys: { loss: "training", valid_loss: "validation" } },
  { title: "Token accuracy", of: "job", format: percent, keys: { accuracy: "training", valid_accuracy: "validation" } },
  { title: "Gradient norm", of: "job", keys: { grad_norm: "gradient norm" } },
  { title: "Learning rate", of: "job", keys: { learning_rate: "learning rate" } },
  { title: "Speed", unit: "tokens/s", of: "job", keys: { tokens_per_s: "tokens/s" }, zero: true },
  { title: "MFU", of: "job", keys: { mfu_causal: "causal", mfu_full: "full" }, format: percent, zero: true },
  { title: "Step time by phase", unit: "of one rank", of: "rank", stacked: true, format: seconds, keys: { compute_s: "computing", gather_wait_s: "gather wait",
    reduce_wait_s: "reduce wait", exchange_wait_s: "exchange wait", ring_wait_s: "ring wait", sums_wait_s: "sums wait",
    offload_out_wait_s: "offload out", offload_in_wait_s: "offload in", states_wait_s: "states wait" } },
  { title: "Device memory", unit: "by rank", of: "ranks", format: bytes, binary: true, zero: true, keys: { device_bytes: "in use", arena_bytes: "arena" } },
  { title: "Host memory", unit: "resident, by rank", of: "ranks", format: bytes, binary: true, zero: true, keys: { host_bytes: "resident" } },
  { title: "GPU utilisation", unit: "by rank", of: "ranks", format: percent, zero: true, keys: { gpu_utilization: "busy" } },
  { title: "GPU power", unit: "W, by rank", of: "ranks", zero: true, keys: { gpu_power_w: "power" } },
  { title: "GPU temperature", unit: "°C, by rank", of: "ranks", keys: { gpu_temperature_c: "temperature" } },
];
const BUCKETS = 8; // of positions in a document: eighths of seq_len
const positions = (prefix) => Array.from({ length: BUCKETS }, (_, i) => `${prefix}_${i}`);
const LOSS_AT = positions("loss_pos"), VALID_AT = positions("valid_loss_pos");
const LINES = 4; // by position, at most
const MEASURED_ONCE = ["arena_peak_bytes", "peak_states_bytes", "peak_gathered_bytes", "peak_residual_bytes", "peak_attention_bytes",
  "peak_tiles_bytes", "peak_workspace_bytes", "peak_communication_bytes"];

const keysOf = (wanted) => CHARTS.filter((chart) => (chart.of === "job") === wanted).flatMap((chart) => Object.keys(chart.keys));

export const jobSeries = (id) => new Series(id, [...keysOf(true), ...LOSS_AT, ...VALID_AT], [...keysOf(false), ...MEASURED_ONCE]);

// {label: Map(position -> mean loss)} over the run's quarters: single steps are few tokens. Of evaluations, each of which
// is the whole file: the last of each quarter.
function byPosition(series, keys, seqLen, whole) {
  const lines = keys.map((key) => series.lines.get(key)?.get(0) ?? new Map());
  const steps = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  const shown = Math.min(LINES, steps.length), picked = {};
  for (let quarter = 0; quarter < shown; quarter++) {
    const all = steps.slice(Math.round(quarter * steps.length / shown), Math.round((quarter + 1) * steps.length / shown));
    const own = whole ? all.slice(-1) : all;
    const mean = (line) => {
      const values = own.map((step) => line.get(step)?.value).filter((value) => Number.isFinite(value));
      return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : undefined;
    };
    const points = lines.map((line, i) => [Math.round((i + 0.5) * seqLen / BUCKETS), mean(line)]).filter(([, value]) => value !== undefined);
    if (points.length > 0) picked[own.length === 1 ? `step ${own[0]}` : `steps ${own[0]} to ${own.at(-1)}`] = new Map(points);
  }
  return picked;
}

export class JobCharts {
  // more: controls beside those of all charts
  constructor(series, ...more) {
    this.series = series;
    this.charts = CHARTS.map((options) => new Chart(options));
    const at = (title) => new Chart({ title, unit: "nats/token", x: "position", plain: true });
    this.lossAt = at("Loss by position");
    this.validAt = at("Validation loss by position");
    this.all = [this.charts[0], this.lossAt, this.validAt, ...this.charts.slice(1)];
    this.tools = tools(() => this.all, ...more);
    this.nothing = h("section", { class: "card empty" });
    this.element = h("div", {}, this.tools, this.nothing, h("div", { class: "grid" }, this.all.map((chart) => chart.element)));
  }

  // rank: whose step time is shown; seqLen: of the job; over: it has ended
  draw(rank, seqLen, over) {
    this.nothing.hidden = this.series.lines.size > 0;
    fill(this.nothing, over ? h("h2", {}, "Nothing was measured") : [h("h2", {}, "Nothing measured yet"), h("p", {}, "Charts come with the first step.")]);
    this.tools.hidden = !this.nothing.hidden;
    CHARTS.forEach(({ of, keys }, i) => {
      const first = Object.keys(keys).find((key) => this.series.has(key));
      const wanted = of === "ranks" ? { [first]: keys[first] } : keys;
      this.show(this.charts[i], this.series.pick(wanted, of === "rank" ? rank : undefined));
    });
    this.show(this.lossAt, byPosition(this.series, LOSS_AT, seqLen, false));
    this.show(this.validAt, byPosition(this.series, VALID_AT, seqLen, true));
  }

  show(chart, lines) {
    chart.element.hidden = Object.keys(lines).length === 0;
    chart.set(lines);
  }

  end() { this.all.forEach((chart) => chart.end()); }
}
