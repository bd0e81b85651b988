// page_jobs: all jobs, newest first, with where each stands. States and steps come live; a new job is fetched.
import { get, JOBS } from "/dashboard/api.js";
import { arrange, empty, fill, gather, h, note, progress, row, table } from "/dashboard/dom.js";
import { listen, opening } from "/dashboard/live.js";
import { badge, ENDS, number, tags, time, until, whole, words } from "/dashboard/text.js";

const PAGE = 50;
const READ_MS = 1000; // at most so often are the newest read anew
const DRAW_MS = 250; // and drawn
const POLL_MS = 10000; // what changes without a message: places in the queue, the time that is left
const HEADS = ["Compare", "Job", "State", "Progress", "Speed", "Ends in", "Model", "Owner", "Created"];

function standing(job) {
  const own = job.ithaca;
  if (own.state === "validating") return "its files are checked";
  if (own.state === "queued") return [own.queue_position ? `place ${own.queue_position}` : null, own.pending_reason ? words(own.pending_reason) : "waits"].filter((one) => one).join(": ");
  if (own.state === "failed") return own.reason_text ?? own.reason;
  return null;
}

export function jobs(view, _, session) {
  let list = null, more = false, ended = false;
  const chosen = new Set(), drawn = new Map(); // id -> {text, element}: rows are made anew only when they change
  const compare = h("a", { class: "button", id: "compare", hidden: true }, "Compare");

  const choose = (id, on) => {
    if (on) chosen.add(id); else chosen.delete(id);
    compare.hidden = chosen.size < 2;
    compare.textContent = `Compare ${chosen.size} jobs`;
    compare.setAttribute("href", `#/compare/${[...chosen].join()}`);
  };
  const line = (job) => {
    const own = job.ithaca, why = standing(job), left = ENDS.includes(own.state) || !own.eta ? null : until(own.eta);
    const text = JSON.stringify([own.state, why, own.steps_done, own.steps_total, own.tokens_per_s, left, job.fine_tuned_model, own.spec.tags]);
    if (drawn.get(job.id)?.text === text) return drawn.get(job.id).element;
    const element = row(HEADS, [
      h("input", { type: "checkbox", "aria-label": `Compare ${job.id}`, checked: chosen.has(job.id), onchange: (event) => choose(job.id, event.target.checked) }),
      h("span", {}, h("a", { href: `#/jobs/${job.id}`, class: "name" }, job.fine_tuned_model ?? job.id), tags(own.spec.tags)),
      h("span", {}, badge(own.state), why ? h("div", { class: "small soft clip", title: why }, why) : ""),
      own.steps_total > 0 ? h("span", { class: "number" }, progress(own.steps_done, own.steps_total), h("span", { class: "small soft" }, `${whole(own.steps_done)} / ${whole(own.steps_total)}`)) : null,
      own.tokens_per_s && !ENDS.includes(own.state) ? h("span", { class: "number" }, `${number(Math.round(own.tokens_per_s))} tokens/s`) : null,
      left === null ? null : h("span", { class: "number" }, left), job.model, own.owner, h("span", { class: "small" }, time(job.created_at))]);
    drawn.set(job.id, { text, element });
    return element;
  };
  const first = session.scope === "read" ? null : h("a", { class: "button first", href: "#/submit" }, "New job");
  const rows = table(HEADS, []), older = h("button", { type: "button", hidden: true, onclick: () => read(list.at(-1).id) }, "Older jobs");
  const none = empty("No jobs yet", h("p", {}, "A model, a file of conversations and a context length are all it takes."));
  const draw = () => {
    if (ended || list === null) return;
    if (!view.contains(rows)) fill(view, h("div", { class: "head" }, h("h1", {}, "Jobs"), h("div", { class: "actions" }, compare, first)), h("div", { class: "card" }, none, rows, older));
    none.hidden = list.length > 0;
    rows.hidden = list.length === 0;
    older.hidden = !more;
    arrange(rows.querySelector("tbody"), list.map(line));
  };
  // What the daemon has after a job, or its newest, behind which the older ones that are shown stay.
  const read = async (after, count = PAGE) => {
    try {
      const answer = await get(`${JOBS}?limit=${count}${after ? `&after=${after}` : ""}`);
      if (ended) return;
      const last = after ? -1 : list?.findIndex((job) => job.id === answer.data.at(-1)?.id) ?? -1;
      const behind = last < 0 ? [] : list.slice(last + 1);
      if (behind.length === 0) more = answer.has_more;
      list = [...(after ? list : []), ...answer.data, ...behind];
      draw();
    } catch (error) {
      if (!ended && list === null) fill(view, note("bad", error.message));
    }
  };
  const changed = new Set(); // jobs whose state changed
  const renew = async () => {
    await read();
    const old = [...changed].filter((id) => (list ?? []).findIndex((job) => job.id === id) >= PAGE);
    changed.clear();
    for (const id of old) {
      const job = await get(`${JOBS}/${id}`).catch(() => null);
      if (job !== null) list = list.map((one) => (one.id === id ? job : one));
    }
    draw();
  };
  const soon = gather(renew, READ_MS), paint = gather(draw, DRAW_MS);
  const stop = listen((kind, data) => {
    if (kind === "open" || (kind === "lost" && list === null)) read(undefined, Math.max(PAGE, list?.length ?? 0)); // all of it may have changed
    if (kind === "state") { changed.add(data.job_id); soon(); }
    const job = kind === "metrics" && data.rank === 0 ? list?.find((one) => one.id === data.job_id) : undefined;
    if (job === undefined) return;
    job.ithaca.steps_done = data.step;
    job.ithaca.tokens_per_s = data.metrics.tokens_per_s ?? job.ithaca.tokens_per_s;
    paint();
  });
  const poll = setInterval(() => { if (list?.some((job) => !ENDS.includes(job.ithaca.state))) soon(); }, POLL_MS);
  if (!opening()) read(); // else it is read when the stream is there, and once
  return () => { ended = true; stop(); soon.end(); paint.end(); clearInterval(poll); };
}
