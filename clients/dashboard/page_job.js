// page_job: one job: where it stands, its charts, its memory against the plan, its events, output and checkpoints.
import { get, JOBS, post } from "/dashboard/api.js";
import { bar, keys, parts } from "/dashboard/bars.js";
import { Chart, tools } from "/dashboard/chart.js";
import { facts, fill, gather, h, note, progress, row, table } from "/dashboard/dom.js";
import { listen } from "/dashboard/live.js";
import { Series } from "/dashboard/series.js";
import { badge, bytes, ENDS, number, percent, seconds, time, until, words } from "/dashboard/text.js";

const CHARTS = [
  { title: "Loss", unit: "nats/token", keys: { loss: "training", valid_loss: "validation" } },
  { title: "Learning rate", keys: { learning_rate: "learning rate" } },
  { title: "Gradient norm", keys: { grad_norm: "gradient norm" } },
  { title: "Speed", unit: "tokens/s", keys: { tokens_per_s: "tokens/s" }, zero: true },
  { title: "MFU", keys: { mfu_causal: "causal", mfu_full: "full" }, format: percent, zero: true },
  { title: "Step time by phase", unit: "rank 0", stacked: true, format: seconds, keys: { compute_s: "computing", gather_wait_s: "gather wait",
    reduce_wait_s: "reduce wait", exchange_wait_s: "exchange wait", ring_wait_s: "ring wait", sums_wait_s: "sums wait",
    offload_out_wait_s: "offload out", offload_in_wait_s: "offload in", states_wait_s: "states wait" }, rank: 0 },
  { title: "Memory by rank", format: bytes, zero: true, keys: { arena_peak_bytes: "arena peak", device_bytes: "device", host_bytes: "host" } },
];
const POLL_MS = 4000;
const KEYS = [...new Set(CHARTS.flatMap((chart) => Object.keys(chart.keys)))];

export function job(view, id) {
  const path = `${JOBS}/${id}`;
  const series = new Series(id, KEYS);
  const charts = CHARTS.map((options) => new Chart(options));
  const head = h("div"), grid = h("div", { class: "grid" }), memory = h("section", { class: "card" }), wrong = h("div");
  const events = h("div"), output = h("pre", { tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output of the rank" }), checkpoints = h("div"), settings = h("pre", { tabindex: "0" });
  const rankChoice = h("select", { id: "rank", onchange: () => log(true) });
  let now = null, plan = null, ended = false, logAfter = 0, logAttempt = 0, logging = Promise.resolve();
  let actions = null, actionsState = null; // made anew when the state changes only: a button keeps its focus

  const act = (name, question) => async (event) => {
    if (question && !confirm(question)) return;
    event.target.disabled = true;
    try { await post(`${path}/${name}`); fill(wrong); } catch (error) { fill(wrong, note("bad", error.message)); }
    event.target.disabled = false;
    load();
  };
  const drawHead = () => {
    const own = now.ithaca, over = ENDS.includes(own.state), active = ["running", "starting"].includes(own.state);
    if (actionsState !== own.state) {
      actionsState = own.state;
      actions = h("div", { class: "actions" },
        active ? h("button", { type: "button", onclick: act("pause") }, "Pause") : null,
        own.state === "paused" || own.state === "failed" ? h("button", { type: "button", onclick: act("resume") }, "Resume") : null,
        over ? null : h("button", { type: "button", class: "danger", onclick: act("cancel", "Cancel this job? Its checkpoints stay.") }, "Cancel job"));
    }
    const focused = document.activeElement;
    document.title = `${own.state} · ${now.fine_tuned_model ?? id} · Ithaca`;
    fill(head, h("div", { class: "head" }, h("h1", {}, now.fine_tuned_model ?? id), badge(own.state), actions),
      now.error?.message ? note("bad", h("b", {}, now.error.code), " ", now.error.message)
        : own.reason_text && !["succeeded", "running"].includes(own.state) ? note("warn", own.reason_text) : null,
      own.state === "queued" && own.pending_reason ? note("warn", `Waits: ${words(own.pending_reason)}${own.queue_position ? `, place ${own.queue_position} in the queue` : ""}${own.estimated_start ? `; starts in about ${until(own.estimated_start)}` : ""}.`) : null,
      h("div", { class: "card" }, own.steps_total > 0 ? h("div", {}, progress(own.steps_done, own.steps_total), h("br")) : null,
        facts([["Step", own.steps_total > 0 ? `${own.steps_done} of ${own.steps_total}` : "–"], over ? ["Ended", time(now.finished_at)] : ["Ends in", until(own.eta)],
          ["Speed", own.tokens_per_s ? `${number(Math.round(own.tokens_per_s))} tokens/s` : "–"], ["Model", now.model], ["Context", `${number(own.spec.seq_len)} tokens`],
          ["Ranks", String(own.spec.gpus)], ["Trained tokens", number(now.trained_tokens)], ["Attempt", String(own.attempt)], ["Owner", own.owner], ["Started", time(own.started_at)],
          own.gpus?.length ? ["GPUs", own.gpus.map((gpu) => gpu.slice(0, 12)).join(", ")] : null, ["Id", h("span", { class: "mono" }, id)]])));
    if (actions.contains(focused)) focused.focus({ preventScroll: true });
    settings.textContent = JSON.stringify(own.spec, null, 2);
    const ranks = own.spec.gpus;
    if (rankChoice.length !== ranks) fill(rankChoice, Array.from({ length: ranks }, (_, rank) => h("option", { value: String(rank) }, String(rank))));
  };
  const drawCharts = () => {
    CHARTS.forEach((options, i) => charts[i].set(series.pick(options.keys, options.rank)));
    charts.forEach((chart) => { chart.element.hidden = Object.keys(chart.lines).length === 0 && chart.options.title !== "Loss"; });
    drawMemory();
  };
  const drawMemory = () => {
    memory.hidden = plan === null;
    if (plan === null) return;
    const list = parts(plan), limit = plan.device_limit_bytes;
    const measured = series.largest("arena_peak_bytes");
    const scale = Math.max(plan.peak_device_bytes, ...measured.map((one) => one[1]));
    fill(memory, h("h2", {}, "Memory of a rank: planned and measured"), bar("planned", list, scale, null), keys(list), h("br"),
      measured.map(([rank, most]) => bar(`rank ${rank}`, [["measured peak", most, 0]], scale, null)),
      h("p", { class: "soft small" }, `The plan's peak is in ${words(plan.peak_phase)}${limit ? `; a device has ${bytes(limit)}` : ""}. Host memory: ${bytes(plan.host_bytes)} in all.`));
  };
  const drawEvents = async () => {
    const heads = ["Time", "Event"];
    const list = (await get(`${path}/events?limit=100`)).data.filter((event) => event.type === "message");
    fill(events, list.length === 0 ? h("p", { class: "soft" }, "No events yet.") : table(heads, list.map((event) => row(heads,
      [h("span", { class: "small soft when" }, time(event.created_at)), event.level === "info" ? event.message : h("span", {}, badge(event.level === "error" ? "failed" : "warning"), ` ${event.message}`)]))));
  };
  const drawCheckpoints = async () => {
    const heads = ["Step", "Loss", "Validation loss", "Size", "Time"];
    const list = (await get(`${path}/checkpoints?limit=100`)).data;
    fill(checkpoints, list.length === 0 ? h("p", { class: "soft" }, "None yet.") : table(heads, list.map((one) => row(heads,
      [String(one.step_number), number(one.metrics.train_loss), number(one.metrics.valid_loss), bytes(one.ithaca.bytes), h("span", { class: "small" }, time(one.created_at))]))));
  };
  // One reading after the other: each goes on where the one before ended.
  const log = (anew) => { logging = logging.then(() => readLog(anew)); return logging; };
  const readLog = async (anew) => {
    if (anew || logAttempt !== now.ithaca.attempt) logAfter = 0;
    logAttempt = now.ithaca.attempt;
    // A rank that was not started has no output: an error, but nothing is wrong.
    const answer = await get(`${path}/logs?rank=${rankChoice.value || 0}&after=${logAfter}`).catch(() => ({ text: "", after: 0 }));
    const end = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
    if (logAfter === 0) output.textContent = answer.text || "No output yet.";
    else output.append(answer.text);
    logAfter = answer.after;
    if (end) output.scrollTop = output.scrollHeight;
  };
  const load = async () => {
    try {
      now = await get(path);
      if (ended) return;
      drawHead();
      await Promise.all([drawEvents(), drawCheckpoints(), log(false)]);
    } catch (error) { if (!ended) fill(now === null ? view : wrong, error.status === 0 ? null : note("bad", error.message)); }
  };
  const loadAll = async () => {
    await load();
    if (now === null || ended) return;
    try {
      await series.load();
      if (!ended) drawCharts();
      plan = (await get(`${path}/memory`)).planned;
      if (!ended) drawMemory();
    } catch (error) { if (error.status !== 0) fill(wrong, note("bad", error.message)); }
  };
  const paint = gather(() => { if (!ended) drawCharts(); }), soon = gather(load, 1000);
  const stop = listen((kind, data) => {
    if (kind === "open") loadAll();
    if (data === undefined || data.job_id !== id) return;
    if (kind === "metrics") {
      if (series.add(data)) series.load().then(paint, () => {});
      else paint();
    }
    soon();
  });

  grid.append(...charts.map((chart) => chart.element));
  fill(view, wrong, head, tools(() => charts), grid, memory,
    h("div", { class: "grid" }, h("section", { class: "card" }, h("h2", {}, "Events"), events), h("section", { class: "card" }, h("h2", {}, "Checkpoints"), checkpoints)),
    h("section", { class: "card" }, h("div", { class: "tools" }, h("h2", {}, "Output"), h("label", { for: "rank" }, "Rank", rankChoice)), output),
    h("details", { class: "card" }, h("summary", {}, "Settings, as resolved"), settings));
  loadAll();
  // What changes without a message: the time that is left, why it waits.
  const poll = setInterval(() => { if (now !== null && !ENDS.includes(now.ithaca.state)) soon(); }, POLL_MS);
  return () => { ended = true; stop(); paint.end(); soon.end(); clearInterval(poll); charts.forEach((chart) => chart.end()); };
}
