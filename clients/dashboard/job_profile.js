// job_profile: where the time of profiled steps went, and what to change. The summary is read when the reader opens it:
// the daemon makes it then.
import { get, request } from "/dashboard/api.js";
import { facts, fill, h, note, progress, row, table } from "/dashboard/dom.js";
import { bytes, number, percent, seconds, time, words } from "/dashboard/text.js";

const ROWS = 8; // of a table, the longest first
const STEPS = 3; // that are profiled on demand

const ms = (value) => (value < 1000 ? `${number(value, 3)} ms` : seconds(value / 1000)); // kernels take parts of one
const RANKS = ["Rank", "A step", "Kernels", "Waits", "Idle"];
const GAPS = ["Longest idle gaps", "Rank", "Step", "Phase"];
const BUFFERS = ["Memory at the peak", "Buffers", "Of a rank's device"];
const listed = (heads, list, cells) => (list.length === 0 ? null : h("div", {}, table(heads, list.slice(0, ROWS).map((one) => row(heads, cells(one))))));

// Time a step and rank, as that of the whole step is.
function figures(title, list, profile) {
  const each = (profile.last_step - profile.first_step + 1) * profile.ranks;
  return listed([title, "A step", "Share"], list, (one) => [words(one.name.replace(/_s$/, "")), ms(one.total_ms / each),
    h("span", { class: "number" }, progress(one.share, 1, one.name), h("span", { class: "small soft" }, percent(one.share)))]);
}

// What to change, and for who may submit a form that has it filled in.
const suggestion = ({ text, set }, job, may) => h("li", {}, text, may && set ? [" ", h("a", { href: `#/submit/${job}/${encodeURIComponent(JSON.stringify(set))}` }, "New job with it")] : "");

function summary(profile, path, may) {
  const { overlap, idle, suggestions, memory } = profile;
  return [
    facts([["Steps", `${profile.first_step} to ${profile.last_step}, attempt ${profile.attempt}`], ["A step of a rank", ms(profile.step_ms)],
      ["Collectives hidden", percent(overlap?.collectives_hidden)], ["Copies hidden", percent(overlap?.copies_hidden)], ["Idle", percent(idle?.share)], ["Taken", time(profile.taken_at)]]),
    profile.kernels_traced ? null : note("warn", "Kernels were not traced: CUPTI cannot be used on that machine."),
    profile.left_out_steps > 0 ? note("warn", `${profile.left_out_steps} steps more found no room.`) : null,
    profile.dropped_events > 0 ? note("warn", `${profile.dropped_events} events found no room: overlap and idle time are not known.`) : null,
    suggestions.length === 0 ? null : h("div", {}, h("h3", {}, "What to change"), h("ol", {}, suggestions.map((one) => suggestion(one, profile.job_id, may)))),
    h("div", { class: "halves" }, ["Phase", "Part", "Kernel", "Wait", "Collective"].map((name) => figures(name, profile[`${name.toLowerCase()}s`], profile)), figures("Copy", profile.copies, profile),
      listed(RANKS, profile.ranks > 1 ? profile.by_rank : [], (one) => [String(one.rank), ms(one.step_ms), percent(one.kernels), percent(one.waits), percent(one.idle)]),
      listed(GAPS, idle?.longest ?? [], (one) => [ms(one.ms), String(one.rank), String(one.step), words(one.phase)]),
      listed(BUFFERS, memory.buffers, (one) => [words(one.name), String(one.count), bytes(one.bytes)])),
    h("p", { class: "soft small" }, `Times are of a rank, the mean of all. A rank's device holds most in ${words(memory.peak_phase)}: ${bytes(memory.peak_device_bytes)}. The trace has the life of each buffer.`),
    h("a", { class: "button", href: `${path}/trace`, download: "trace.json.gz" }, "Trace, for ui.perfetto.dev")];
}

export function profileCard(path, may) {
  const body = h("div"), said = h("div"), ask = h("button", { type: "button", id: "do-profile", hidden: true }, `Profile ${STEPS} steps`);
  const read = async () => {
    try {
      fill(body, h("p", { class: "soft", role: "status" }, "The summary is made…"));
      fill(body, summary(await get(`${path}/profile`), path, may));
    } catch (error) {
      fill(body, error.status === 404 ? h("p", { class: "soft" }, error.message) : note("bad", error.message));
    }
  };
  ask.addEventListener("click", async () => {
    try {
      await request("POST", `${path}/profile`, { steps: STEPS });
      fill(said, note("", `The next ${STEPS} steps are profiled. Open this again when they are done.`));
    } catch (error) { fill(said, note("bad", error.message)); }
  });
  const element = h("details", { class: "card", ontoggle: () => { if (element.open) read(); } },
    h("summary", {}, "Profile: where the time went"), said, body, h("div", { class: "below" }, ask));
  return { element, load: (job) => { ask.hidden = !may || job.ithaca.state !== "running"; } };
}
