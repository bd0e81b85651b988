// page_compare: one metric of several jobs on one chart.
import { get, JOBS } from "/dashboard/api.js";
import { Chart, tools } from "/dashboard/chart.js";
import { fill, gather, h, note } from "/dashboard/dom.js";
import { listen, opening } from "/dashboard/live.js";
import { Series } from "/dashboard/series.js";
import { bytes, percent, seconds } from "/dashboard/text.js";

const CHARTS = [
  { title: "Loss", unit: "nats/token", key: "loss" }, { title: "Validation loss", unit: "nats/token", key: "valid_loss" },
  { title: "Gradient norm", key: "grad_norm" }, { title: "Learning rate", key: "learning_rate" }, { title: "Speed", unit: "tokens/s", key: "tokens_per_s", zero: true },
  { title: "Step time", key: "step_time_s", format: seconds, zero: true }, { title: "MFU, causal", key: "mfu_causal", format: percent, zero: true },
  { title: "Arena peak, rank 0", key: "arena_peak_bytes", format: bytes, binary: true, zero: true }];
const DRAW_MS = 500;
const JOBS_MAX = 8; // as many as there are colours

export function compare(view, argument = "") {
  const asked = argument.split(",").filter((id) => id), ids = asked.slice(0, JOBS_MAX);
  const runs = ids.map((id) => new Series(id, CHARTS.map((chart) => chart.key)));
  const names = new Map(ids.map((id) => [id, id]));
  const charts = CHARTS.map((options) => new Chart({ ...options, named: true, tone: (label) => [...names.values()].indexOf(label) }));
  const links = h("div", { class: "legend" }), unread = h("div");
  let ended = false;
  const draw = () => CHARTS.forEach(({ key }, i) => {
    const lines = {};
    for (const run of runs) Object.assign(lines, run.pick({ [key]: names.get(run.jobId) }, 0));
    charts[i].element.hidden = Object.keys(lines).length === 0;
    charts[i].set(lines);
  });
  // What of a job cannot be read is said; the others are shown.
  const load = async () => {
    const errors = await Promise.all(runs.map(async (run) => {
      try {
        const job = await get(`${JOBS}/${run.jobId}`);
        names.set(run.jobId, `${job.model} ${run.jobId.slice(-6)}`);
        await run.load();
      } catch (error) { return error; }
    }));
    if (ended) return;
    fill(links, ids.map((id, i) => h("span", { class: `key t${i}` }, h("a", { href: `#/jobs/${id}` }, names.get(id)))));
    fill(unread, errors.filter((error) => error && error.status !== 0).map((error) => note("bad", error.message)));
    draw();
  };
  const paint = gather(() => { if (!ended) draw(); }, DRAW_MS);
  const stop = listen((kind, data) => {
    if (kind === "open") load();
    const run = kind === "metrics" ? runs.find((one) => one.jobId === data.job_id) : undefined;
    if (run?.add(data)) run.load().then(paint, () => {});
    else if (run) paint();
  });
  fill(view, h("div", { class: "head" }, h("h1", {}, `${ids.length} ${ids.length === 1 ? "job" : "jobs"} compared`), h("div", { class: "actions" }, links)),
    asked.length > ids.length ? note("warn", `These are the first ${ids.length} of ${asked.length}: a chart has as many colours.`) : null,
    unread, tools(() => charts), h("div", { class: "grid" }, charts.map((chart) => chart.element)));
  if (!opening()) load(); // else when the stream is there
  return () => { ended = true; stop(); paint.end(); charts.forEach((chart) => chart.end()); };
}
