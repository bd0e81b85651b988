// job_said: what a job has said and left: its events, the output of its ranks, its checkpoints.
import { get } from "/dashboard/api.js";
import { fill, h, row, table } from "/dashboard/dom.js";
import { badge, bytes, number, time } from "/dashboard/text.js";

const EVENTS_PAGE = 50;
const OUTPUT_MAX = 1 << 20; // characters kept of a rank's output: the newest
const EVENTS = ["Time", "Event"];
const CHECKPOINTS = ["Step", "Loss", "Validation loss", "Size", "Time"];

const eventRow = (event) => row(EVENTS, [h("span", { class: "small soft when" }, time(event.created_at)),
  event.level === "info" ? event.message : h("span", {}, badge(event.level === "error" ? "error" : "warning"), ` ${event.message}`)]);

// Newest first; older ones on demand. load() reads as many as are shown.
export function eventsCard(path) {
  const body = h("div");
  let count = EVENTS_PAGE;
  const load = async () => {
    const answer = await get(`${path}/events?limit=${count}`), list = answer.data.filter((event) => event.type === "message");
    fill(body, list.length === 0 ? h("p", { class: "soft" }, "None.") : table(EVENTS, list.map(eventRow)),
      answer.has_more ? h("button", { type: "button", onclick: () => { count += EVENTS_PAGE; load().catch(() => {}); } }, "Older events") : null);
  };
  return { element: h("section", { class: "card tall", tabindex: "0", "aria-label": "Events" }, h("h2", {}, "Events"), body), load };
}

export function checkpointsCard(path) {
  const body = h("div");
  const load = async () => {
    const list = (await get(`${path}/checkpoints?limit=100`)).data;
    fill(body, list.length === 0 ? h("p", { class: "soft" }, "None.") : table(CHECKPOINTS, list.map((one) => row(CHECKPOINTS,
      [String(one.step_number), number(one.metrics.train_loss), number(one.metrics.valid_loss), bytes(one.ithaca.bytes), h("span", { class: "small" }, time(one.created_at))]))));
  };
  return { element: h("section", { class: "card tall", tabindex: "0", "aria-label": "Checkpoints" }, h("h2", {}, "Checkpoints"), body), load };
}

// The end of a rank's output; load(job) reads on where the last reading ended, one after the other.
export function outputCard(path) {
  const output = h("pre", { tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output of the rank" });
  let after = null, source = "", reading = Promise.resolve();
  const again = () => { reading = reading.then(read); return reading; };
  const choice = (id) => h("select", { id, onchange: again });
  const rank = choice("output-rank"), attempt = choice("output-attempt");
  const read = async () => {
    const from = `rank=${rank.value || 0}${attempt.value ? `&attempt=${attempt.value}` : ""}`;
    if (source !== from) after = null;
    source = from;
    // A rank that was not started has no output: an error, but nothing is wrong.
    const answer = await get(`${path}/logs?${from}${after === null ? "" : `&after=${after}`}`).catch(() => ({ text: "", after: null }));
    const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
    if (after === null) output.textContent = answer.text || "None.";
    else if (answer.text) output.textContent = (output.textContent + answer.text).slice(-OUTPUT_MAX);
    after = answer.after || null;
    if (atEnd) output.scrollTop = output.scrollHeight;
  };
  const offer = (select, values) => {
    if (select.length === values.length) return;
    const newest = select.value === "" || select.value === String(select.length);
    const had = select.value;
    fill(select, values.map((value) => h("option", { value: String(value) }, String(value))));
    select.value = select === attempt && newest ? String(values.at(-1)) : had || String(values[0]);
  };
  const load = (job) => {
    offer(rank, Array.from({ length: job.ithaca.spec.gpus }, (_, i) => i));
    offer(attempt, Array.from({ length: Math.max(1, job.ithaca.attempt) }, (_, i) => i + 1));
    attempt.parentElement.hidden = attempt.length < 2;
    return again();
  };
  const element = h("section", { class: "card" }, h("div", { class: "tools" }, h("h2", {}, "Output"), h("label", { for: "output-rank" }, "Rank", rank),
    h("label", { for: "output-attempt" }, "Attempt", attempt)), output);
  return { element, load };
}
