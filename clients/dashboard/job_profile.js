// job_profile: where the time of profiled steps went, and what to change. The summary is read when the reader opens it:
// the daemon makes it then.
import { get, request } from "/dashboard/api.js";
import { facts, fill, h, note, progress, row, table } from "/dashboard/dom.js";
import { percent, seconds, time, words } from "/dashboard/text.js";

const ROWS = 8; // of a table, the longest first
const STEPS = 3; // that are profiled on demand

function figures(title, list) {
  const heads = [title, "Time", "Share"];
  return list.length === 0 ? null : h("div", {}, table(heads, list.slice(0, ROWS).map((one) => row(heads,
    [words(one.name.replace(/_s$/, "")), seconds(one.total_ms / 1000), h("span", { class: "number" }, progress(one.share, 1, one.name), h("span", { class: "small soft" }, percent(one.share)))]))));
}

function summary(profile, path) {
  const { overlap, idle, suggestions } = profile;
  return [
    facts([["Steps", `${profile.first_step} to ${profile.last_step}, attempt ${profile.attempt}`], ["A step of a rank", seconds(profile.step_ms / 1000)],
      ["Collectives hidden", percent(overlap?.collectives_hidden)], ["Copies hidden", percent(overlap?.copies_hidden)], ["Idle", percent(idle?.share)], ["Taken", time(profile.taken_at)]]),
    profile.kernels_traced ? null : note("warn", "Kernels were not traced: CUPTI cannot be used on that machine."),
    profile.left_out_steps > 0 ? note("warn", `${profile.left_out_steps} steps more found no room.`) : null,
    profile.dropped_events > 0 ? note("warn", `${profile.dropped_events} events found no room: overlap and idle time are not known.`) : null,
    suggestions.length === 0 ? null : h("div", {}, h("h3", {}, "What to change"), h("ol", {}, suggestions.map((one) => h("li", {}, one.text)))),
    h("div", { class: "halves" }, figures("Phase", profile.phases), figures("Kernel", profile.kernels), figures("Wait", profile.waits), figures("Collective", profile.collectives)),
    h("a", { class: "button", href: `${path}/trace`, download: "trace.json.gz" }, "Trace, for ui.perfetto.dev")];
}

export function profileCard(path, may) {
  const body = h("div"), said = h("div"), ask = h("button", { type: "button", id: "do-profile", hidden: true }, `Profile ${STEPS} steps`);
  const read = async () => {
    try {
      fill(body, h("p", { class: "soft", role: "status" }, "The summary is made…"));
      fill(body, summary(await get(`${path}/profile`), path));
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
