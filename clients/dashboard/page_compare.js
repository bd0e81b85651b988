// page_compare: several jobs: the settings that differ, and each metric of all of them on one chart.
import { get, JOBS } from "/dashboard/api.js";
import { Chart, tools } from "/dashboard/chart.js";
import { empty, fill, gather, h, note, row, table } from "/dashboard/dom.js";
import { shown } from "/dashboard/form.js";
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

// A model's suffix, where it has one, says more than its base.
const named = (job) => `${job.fine_tuned_model?.split(":").at(-2) || job.model} ${job.id.slice(-6)}`;

// {path: value} of a job's settings.
function flat(value, path, into) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) into[path] = shown(value);
  else for (const [name, own] of Object.entries(value)) flat(own, path === "" ? name : `${path}.${name}`, into);
  return into;
}

// A row a setting that is not the same in all jobs.
function differing(jobs) {
  const all = jobs.map((job) => ({ model: job.model, training_file: job.training_file, seed: shown(job.seed), ...flat(job.ithaca.spec, "", {}) }));
  const said = (one, path) => one[path] ?? ""; // what is not there is null in another
  const paths = [...new Set(all.flatMap((one) => Object.keys(one)))].filter((path) => all.some((one) => said(one, path) !== said(all[0], path)));
  const heads = ["Setting", ...jobs.map(named)];
  return paths.length === 0 ? h("p", { class: "soft" }, "They have the same settings.")
    : table(heads, paths.map((path) => row(heads, [path, ...all.map((one) => h("bdi", {}, said(one, path) || "–"))])));
}

export function compare(view, argument = "") {
  const asked = argument.split(",").filter((id) => id), ids = asked.slice(0, JOBS_MAX);
  const runs = ids.map((id) => new Series(id, CHARTS.map((chart) => chart.key)));
  const names = new Map(ids.map((id) => [id, id]));
  const charts = CHARTS.map((options) => new Chart({ ...options, named: true, tone: (label) => [...names.values()].indexOf(label) }));
  const links = h("div", { class: "legend" }), unread = h("div"), settings = h("section", { class: "card", hidden: true });
  let ended = false;
  const draw = () => CHARTS.forEach(({ key }, i) => {
    const lines = {};
    for (const run of runs) Object.assign(lines, run.pick({ [key]: names.get(run.jobId) }, 0));
    charts[i].element.hidden = Object.keys(lines).length === 0;
    charts[i].set(lines);
  });
  // What of a job cannot be read is said; the others are shown.
  const load = async () => {
    const jobs = new Map();
    const errors = await Promise.all(runs.map(async (run) => {
      try {
        const job = await get(`${JOBS}/${run.jobId}`);
        jobs.set(run.jobId, job);
        names.set(run.jobId, named(job));
        await run.load();
      } catch (error) { return error; }
    }));
    if (ended) return;
    fill(links, ids.map((id, i) => h("span", { class: `key t${i}` }, h("a", { href: `#/jobs/${id}` }, names.get(id)))));
    fill(unread, errors.filter((error) => error && error.status !== 0).map((error) => note("bad", error.message)));
    const read = ids.filter((id) => jobs.has(id)).map((id) => jobs.get(id));
    settings.hidden = read.length < 2;
    fill(settings, h("h2", {}, "Settings that differ"), differing(read));
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
    unread, ids.length === 0 ? empty("No jobs chosen", h("p", {}, "Tick two or more in the list of jobs.")) : tools(() => charts),
    h("div", { class: "grid" }, charts.map((chart) => chart.element)), settings);
  if (!opening()) load(); // else when the stream is there
  return () => { ended = true; stop(); paint.end(); charts.forEach((chart) => chart.end()); };
}
