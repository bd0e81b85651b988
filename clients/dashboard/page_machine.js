// page_machine: the queue, in order and why each waits, and what jobs run on.
import { get } from "/dashboard/api.js";
import { empty, facts, fill, gather, h, note, progress, row, table } from "/dashboard/dom.js";
import { listen } from "/dashboard/live.js";
import { badge, bytes, number, percent, seconds, time, until, words } from "/dashboard/text.js";

const EVERY_MS = 5000; // the health of GPUs is not in the stream
const RUNS = ["Job", "Owner", "State", "Slots", "Priority", "Started", "Ends in"];
const WAITS = ["Place", "Job", "Owner", "Why it waits", "Slots", "Priority", "Starts in", "Created"];
const SLOTS = ["Slot", "State", "Job", "Memory", "Use", "Temperature", "Power", "Errors"];
const USERS = ["User", "Slots now", "Counts for fair share", "Ever"];

const link = (id) => (id ? h("a", { class: "mono", href: `#/jobs/${id}` }, id) : h("span", { class: "soft" }, "of another user"));
const used = (one) => (one.total_bytes ? h("span", {}, progress(one.used_bytes, one.total_bytes), h("span", { class: "small soft" }, `${bytes(one.used_bytes)} of ${bytes(one.total_bytes)}`)) : null);

export function machine(view) {
  let timer = 0, ended = false;
  const load = async () => {
    clearTimeout(timer);
    try {
      const [queue, gpus] = await Promise.all([get("/v1/queue"), get("/v1/gpus")]);
      if (!ended) draw(queue, gpus.data);
    } catch (error) { if (!ended) fill(view, note("bad", error.message)); }
    if (!ended) timer = setTimeout(load, EVERY_MS);
  };
  const draw = (queue, gpus) => fill(view, h("div", { class: "head" }, h("h1", {}, "Machine")),
    queue.drained ? note("warn", "Drained: no job starts until an administrator ends that.") : null,
    h("section", { class: "card" }, facts([["Slots", String(queue.slots)], ["Free", String(queue.free_slots)], ["Running", String(queue.running.length)], ["Waiting", String(queue.waiting_count)]])),
    h("section", { class: "card" }, h("h2", {}, "Running"), queue.running.length === 0 ? h("p", { class: "soft" }, "Nothing runs.")
      : table(RUNS, queue.running.map((one) => row(RUNS, [link(one.id), one.owner, badge(one.state), String(one.slots), String(one.priority), time(one.started_at), until(one.estimated_end)])))),
    h("section", { class: "card" }, h("h2", {}, "Waiting"), queue.waiting.length === 0 ? h("p", { class: "soft" }, "Nothing waits.")
      : table(WAITS, queue.waiting.map((one) => row(WAITS, [one.queue_position ? String(one.queue_position) : null, link(one.id), one.owner, one.pending_reason ? words(one.pending_reason) : null, String(one.slots), String(one.priority), until(one.estimated_start), time(one.created_at)])))),
    h("section", { class: "card" }, h("h2", {}, gpus.some((one) => one.kind === "gpu") ? "GPUs" : "CPU slots"), gpus.length === 0 ? empty("No GPU can be used")
      : table(SLOTS, gpus.map((one) => row(SLOTS, [h("span", {}, one.name ?? one.id, one.name ? h("div", { class: "small soft mono" }, one.id) : ""),
        h("span", {}, badge(words(one.state)), one.reason ? h("div", { class: "small soft" }, one.reason) : ""), one.job_id ? link(one.job_id) : null, used(one), one.utilization === undefined ? null : percent(one.utilization),
        one.temperature_c ? `${one.temperature_c} °C` : null, one.power_w ? `${number(Math.round(one.power_w))} W` : null, one.xid_count ? `${one.xid_count}: ${one.xid_last}` : null])))),
    queue.users.length === 0 ? null : h("section", { class: "card" }, h("h2", {}, "Use by user"), table(USERS, queue.users.map((one) =>
      row(USERS, [one.user, String(one.slots), seconds(one.used_s), seconds(one.total_s)])))));
  const soon = gather(load, 500);
  const stop = listen((kind) => { if (kind === "open" || kind === "state") soon(); });
  load();
  return () => { ended = true; stop(); clearTimeout(timer); soon.end(); };
}
