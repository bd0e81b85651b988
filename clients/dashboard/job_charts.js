// job_charts: what a job measures, as charts.
import { Chart, tools } from "/dashboard/chart.js";
import { h } from "/dashboard/dom.js";
import { Series } from "/dashboard/series.js";
import { bytes, percent, seconds } from "/dashboard/text.js";

// of: "job" (one line a metric), "ranks" (a line a rank, of the first key that there is), "rank" (of the one chosen)
const CHARTS = [
  { title: "Loss", unit: "nats/token", of: "job", keys: { loss: "training", valid_loss: "validation" } },
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
const POSITIONS = Array.from({ length: BUCKETS }, (_, i) => `valid_loss_pos_${i}`);
const EVALUATIONS_SHOWN = 4;
const MEASURED_ONCE = ["arena_peak_bytes", "peak_states_bytes", "peak_gathered_bytes", "peak_residual_bytes", "peak_attention_bytes",
  "peak_tiles_bytes", "peak_workspace_bytes", "peak_communication_bytes"];

const keysOf = (wanted) => CHARTS.filter((chart) => (chart.of === "job") === wanted).flatMap((chart) => Object.keys(chart.keys));

export const jobSeries = (id) => new Series(id, [...keysOf(true), ...POSITIONS], [...keysOf(false), ...MEASURED_ONCE]);

// {"step 10": Map(position -> loss)} of the first evaluation, the newest and some between.
function byPosition(series, seqLen) {
  const lines = POSITIONS.map((key) => series.lines.get(key)?.get(0) ?? new Map());
  const steps = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  const shown = Math.min(EVALUATIONS_SHOWN, steps.length);
  const chosen = Array.from({ length: shown }, (_, i) => steps[Math.round(i * (steps.length - 1) / Math.max(1, shown - 1))]);
  return Object.fromEntries(chosen.map((step) => [`step ${step}`,
    new Map(lines.flatMap((line, i) => (line.has(step) ? [[Math.round((i + 0.5) * seqLen / BUCKETS), line.get(step).value]] : [])))]));
}

export class JobCharts {
  // more: controls beside those of all charts
  constructor(series, ...more) {
    this.series = series;
    this.charts = CHARTS.map((options) => new Chart(options));
    this.positions = new Chart({ title: "Validation loss by position", unit: "nats/token", x: "position", plain: true });
    this.all = [this.charts[0], this.positions, ...this.charts.slice(1)];
    this.tools = tools(() => this.all, ...more);
    this.nothing = h("section", { class: "card empty" }, h("h2", {}, "Nothing measured yet"), h("p", {}, "Charts come with the first step."));
    this.element = h("div", {}, this.tools, this.nothing, h("div", { class: "grid" }, this.all.map((chart) => chart.element)));
  }

  // rank: whose step time is shown; seqLen: of the job
  draw(rank, seqLen) {
    this.nothing.hidden = this.series.lines.size > 0;
    this.tools.hidden = !this.nothing.hidden;
    CHARTS.forEach(({ of, keys }, i) => {
      const first = Object.keys(keys).find((key) => this.series.has(key));
      const wanted = of === "ranks" ? { [first]: keys[first] } : keys;
      this.show(this.charts[i], this.series.pick(wanted, of === "rank" ? rank : undefined));
    });
    this.show(this.positions, byPosition(this.series, seqLen));
  }

  show(chart, lines) {
    chart.element.hidden = Object.keys(lines).length === 0;
    chart.set(lines);
  }

  end() { this.all.forEach((chart) => chart.end()); }
}
