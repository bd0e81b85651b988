// page_machine: the queue, in order and why each waits, and what jobs run on. An administrator drains from here.
import { get, post } from "/dashboard/api.js";
import { empty, facts, fill, gather, h, loading, note, progress, refill, row, table } from "/dashboard/dom.js";
import { listen } from "/dashboard/live.js";
import { diskCard } from "/dashboard/machine_disk.js";
import { badge, bytes, number, percent, seconds, time, until, words } from "/dashboard/text.js";

const EVERY_MS = 5000; // the health of GPUs is not in the stream
const READ_MS = 500;
const RUNS = ["Job", "Owner", "State", "Slots", "Priority", "Started", "Ends in"];
const WAITS = ["Place", "Job", "Owner", "Why it waits", "Slots", "Priority", "Starts in", "Created"];
const GPUS = ["GPU", "State", "Job", "Memory", "Use", "Temperature", "Power", "Errors"];
const CPUS = ["Slot", "State", "Job"];
const USERS = ["User", "Slots now", "Counts for fair share", "Ever"];

const link = (id) => (id ? h("a", { class: "mono", href: `#/jobs/${id}` }, id) : h("span", { class: "soft" }, "of another user"));
const share = (what, done, total, text) => h("span", {}, progress(done, total, what), h("span", { class: "small soft" }, text));
const used = (one) => share("Memory", one.used_bytes, one.total_bytes, `${bytes(one.used_bytes)} of ${bytes(one.total_bytes)}`);
const card = (title, nothing, heads, rows) => h("section", { class: "card" }, h("h2", {}, title),
  rows.length === 0 ? h("p", { class: "soft" }, nothing) : table(heads, rows.map((cells) => row(heads, cells))));

const runs = (one) => [link(one.id), one.owner, badge(one.state), String(one.slots), String(one.priority), time(one.started_at), until(one.estimated_end)];
const waits = (one) => [one.queue_position ? String(one.queue_position) : null, link(one.id), one.owner, one.pending_reason ? words(one.pending_reason) : null,
  String(one.slots), String(one.priority), until(one.estimated_start), time(one.created_at)];
const standing = (one) => [h("span", {}, badge(words(one.state)), one.reason ? h("div", { class: "small soft" }, one.reason) : ""), one.job_id ? link(one.job_id) : null];
const slot = (one) => [one.id, ...standing(one)];
const gpu = (one) => [h("span", {}, `${one.number}: ${one.name}`, h("div", { class: "small soft mono" }, one.id)), ...standing(one), used(one),
  one.utilization === null ? null : share("Use", one.utilization, 1, percent(one.utilization)), one.temperature_c === null ? null : `${one.temperature_c} °C`,
  one.power_w === null ? null : `${number(Math.round(one.power_w))} W`, one.xid_count ? `${one.xid_count}: ${one.xid_last}` : null];

export function machine(view, _, session) {
  let timer = 0, ended = false, shown = false;
  const body = h("div", {}, loading()), wrong = h("div"), admin = session.scope === "admin";
  const act = (path) => async () => {
    try { await post(path); fill(wrong); } catch (error) { fill(wrong, note("bad", error.message)); }
    load();
  };
  const button = (drained, path, what) => h("button", { type: "button", id: path, onclick: act(`${path}/${drained ? "undrain" : "drain"}`) },
    `${drained ? "Undrain" : "Drain"} ${what}`);
  const load = async () => {
    clearTimeout(timer);
    try {
      const [queue, gpus] = await Promise.all([get("/v1/queue"), get("/v1/gpus")]);
      if (!ended) draw(queue, gpus.data);
      shown = true;
    } catch (error) { if (!ended && (error.status !== 0 || !shown)) fill(body, note("bad", error.message)); }
    clearTimeout(timer);
    if (!ended) timer = setTimeout(load, EVERY_MS);
  };
  const drawSlots = (all) => {
    const real = all.some((one) => one.kind === "gpu"), heads = real ? [...GPUS, ...(admin ? ["Give out"] : [])] : CPUS;
    if (all.length === 0) return h("section", { class: "card" }, empty("No GPU can be used"));
    return card(real ? "GPUs" : "CPU slots", "", heads, all.map((one) => (real
      ? [...gpu(one), ...(admin ? [button(one.drained || one.state === "set_aside", `/v1/gpus/${one.id}`, `GPU ${one.number}`)] : [])] : slot(one))));
  };
  const draw = (queue, gpus) => refill(body,
    h("div", { class: "head" }, h("h1", {}, "Machine"), admin ? h("div", { class: "actions" }, button(queue.drained, "/v1/admin", "the machine")) : null),
    queue.drained ? note("warn", "Drained: no job starts until an administrator ends that. What runs goes on.") : null,
    h("section", { class: "card" }, facts([["Slots", String(queue.slots)], ["Free", String(queue.free_slots)], ["Running", String(queue.running.length)], ["Waiting", String(queue.waiting_count)]])),
    drawSlots(gpus), card("Running", "Nothing runs.", RUNS, queue.running.map(runs)), card("Waiting", "Nothing waits.", WAITS, queue.waiting.map(waits)),
    queue.waiting_count > queue.waiting.length ? h("p", { class: "soft" }, `${queue.waiting_count - queue.waiting.length} more wait behind these.`) : null,
    queue.users.length === 0 ? null : card("Use by user", "", USERS, queue.users.map((one) => [one.user, String(one.slots), seconds(one.used_s), seconds(one.total_s)])));
  const soon = gather(load, READ_MS);
  const stop = listen((kind) => { if (kind === "open" || kind === "state") soon(); });
  fill(view, wrong, body, diskCard());
  load();
  return () => { ended = true; stop(); clearTimeout(timer); soon.end(); };
}
