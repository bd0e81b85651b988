// page_jobs: all jobs, newest first, with where each stands. States and steps come live; a new job is fetched.
import { get, JOBS } from "/dashboard/api.js";
import { empty, fill, gather, h, note, progress, row, table } from "/dashboard/dom.js";
import { listen } from "/dashboard/live.js";
import { badge, ENDS, number, time, until, words } from "/dashboard/text.js";

const PAGE = 50;
const HEADS = ["", "Job", "State", "Progress", "Speed", "Ends in", "Model", "Owner", "Created"];

function standing(job) {
  const own = job.ithaca;
  if (own.state === "queued") return own.pending_reason ? words(own.pending_reason) : "waits";
  if (own.state === "failed") return own.reason_text ?? own.reason;
  return null;
}

export function jobs(view) {
  let list = [], more = false, ended = false;
  const chosen = new Set();
  const compare = h("a", { class: "button", hidden: true }, "Compare");

  const choose = (id, on) => {
    if (on) chosen.add(id); else chosen.delete(id);
    compare.hidden = chosen.size < 2;
    compare.textContent = `Compare ${chosen.size} jobs`;
    compare.setAttribute("href", `#/compare/${[...chosen].join()}`);
  };
  const line = (job) => {
    const own = job.ithaca, why = standing(job);
    return row(HEADS, [
      h("input", { type: "checkbox", "aria-label": `Choose ${job.id}`, checked: chosen.has(job.id), onchange: (event) => choose(job.id, event.target.checked) }),
      h("a", { href: `#/jobs/${job.id}` }, job.fine_tuned_model ?? job.id),
      h("span", {}, badge(own.state), why ? h("div", { class: "small soft" }, why) : ""),
      own.steps_total > 0 ? h("span", { class: "number" }, progress(own.steps_done, own.steps_total), h("span", { class: "small soft" }, `${own.steps_done} / ${own.steps_total}`)) : null,
      own.tokens_per_s && !ENDS.includes(own.state) ? h("span", { class: "number" }, `${number(Math.round(own.tokens_per_s))} tokens/s`) : null,
      ENDS.includes(own.state) ? null : until(own.eta), job.model, own.owner, h("span", { class: "small" }, time(job.created_at))]);
  };
  const draw = () => {
    const had = document.activeElement, name = had?.hasAttribute("href") ? "href" : "aria-label", focus = had?.getAttribute(name);
    fill(view, h("div", { class: "head" }, h("h1", {}, "Jobs"), h("div", { class: "actions" }, compare, h("a", { class: "button first", href: "#/submit" }, "New job"))),
      h("div", { class: "card" }, list.length === 0
        ? empty("No jobs yet", h("p", {}, "A model, a file of conversations and a context length are all it takes."), h("a", { class: "button first", href: "#/submit" }, "Submit the first job"))
        : table(HEADS, list.map(line)), more ? h("button", { type: "button", onclick: () => load(list.at(-1).id) }, "Older jobs") : null));
    if (focus) view.querySelector(`[${name}="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  };
  const load = async (after) => {
    try {
      // Read anew: as many as are shown, so that older ones stay.
      const answer = await get(`${JOBS}?limit=${after ? PAGE : Math.max(PAGE, list.length)}${after ? `&after=${after}` : ""}`);
      if (ended) return;
      list = after ? [...list, ...answer.data] : answer.data;
      more = answer.has_more;
      draw();
    } catch (error) {
      if (!ended && list.length === 0) fill(view, note("bad", error.message));
    }
  };
  const soon = gather(load, 1000);
  const stop = listen((kind, data) => {
    if (kind === "open" || kind === "state") soon();
    if (kind === "metrics" && data.rank === 0) soon();
  });
  load();
  return () => { ended = true; stop(); soon.end(); };
}
