// page_job: one job: where it stands, its charts, its memory against the plan, its events, output and checkpoints.
import { get, JOBS, request } from "/dashboard/api.js";
import { facts, fill, gather, h, loading, note, progress, refill } from "/dashboard/dom.js";
import { buttons, changeForm } from "/dashboard/job_actions.js";
import { JobCharts, jobSeries } from "/dashboard/job_charts.js";
import { memoryCard } from "/dashboard/job_memory.js";
import { profileCard } from "/dashboard/job_profile.js";
import { checkpointsCard, eventsCard, outputCard } from "/dashboard/job_said.js";
import { listen, opening } from "/dashboard/live.js";
import { badge, bytes, ENDS, number, percent, seconds, tags, time, until, whole, words } from "/dashboard/text.js";

const POLL_MS = 4000; // the time that is left, why it waits: they change without a message
const READ_MS = 1000; // at most so often is the job read anew
const DRAW_MS = 500; // and the charts drawn

function why(own) {
  if (own.pending_reason === null) return null;
  return `Waits: ${words(own.pending_reason)}${own.queue_position ? `, place ${own.queue_position} in the queue` : ""}${own.estimated_start ? `; starts in about ${until(own.estimated_start)}` : ""}.`;
}

function preparing(data) {
  if (!data?.preparing) return null;
  const at = data.preparing;
  if (at.waiting) return note("", "Another job makes the tokens of its file; this one waits for them.");
  return note("", `Its files are checked: ${whole(at.rows)} rows, ${bytes(at.bytes)} of ${bytes(at.bytes_total)}.${at.fault
    ? ` Wrong so far: ${whole(at.bad)}; line ${whole(at.fault.line)}: ${at.fault.code}: ${at.fault.message}` : ""}`, progress(at.bytes, at.bytes_total));
}

// What the check of its training file found.
function dataFacts(data) {
  if (data?.kept === undefined) return [];
  return [["Examples", data.dropped ? `${whole(data.kept)}, ${whole(data.dropped)} lines dropped` : whole(data.kept)],
    ["Tokens", data.trained_tokens ? `${whole(data.tokens)}, ${whole(data.trained_tokens)} with loss` : whole(data.tokens)],
    ["Longest", `${whole(data.longest)} tokens`],
    data.overlength ? ["Longer than the context", `${whole(data.overlength)} rows (${percent(data.overlength_share)})`] : null];
}

// What a job found that only measures, or rehearses a node that is not there.
function measuredFacts(measured) {
  if (!measured) return [];
  return [["Layers that worked", `${measured.layers_worked} of ${measured.layers}`], ["A layer", seconds(measured.layer_s)],
    [measured.rehearsed ? "Step, predicted" : "Step", seconds(measured.predicted_step_s)], measured.rehearsed ? ["Of it the network, modelled", seconds(measured.network_wait_s)] : null,
    ["Speed of a GPU", measured.tokens_per_s_gpu ? `${number(Math.round(measured.tokens_per_s_gpu))} tokens/s` : null], ["MFU, causal", percent(measured.mfu_causal)]];
}

// Names of files by their ids, each asked for once; of a file that is gone the id stays.
const files = new Map();
function nameFiles(ids, draw) {
  for (const id of ids.filter((one) => one && !files.has(one))) {
    files.set(id, id);
    get(`/v1/files/${id}`).then((file) => { files.set(id, file.filename); draw(); }, () => {});
  }
}
const named = (title, id) => (id ? [title, h("bdi", {}, files.get(id) ?? id)] : null);

function standing(job) {
  const own = job.ithaca, over = ENDS.includes(own.state);
  return h("section", { class: "card" }, own.steps_total > 0 ? h("div", { class: "above" }, progress(own.steps_done, own.steps_total)) : null,
    facts([["Step", own.steps_total > 0 ? `${whole(own.steps_done)} of ${whole(own.steps_total)}` : null],
      over ? ["Ended", time(job.finished_at)] : ["Ends in", own.eta ? until(own.eta) : null],
      ["Speed", own.tokens_per_s ? `${number(Math.round(own.tokens_per_s))} tokens/s` : null], ["Model", job.model],
      ["Context", `${whole(own.spec.seq_len)} tokens`], ["Ranks", String(own.spec.gpus)], ["Started", time(own.started_at)],
      ["Attempt", own.restarts ? `${own.attempt}, ${own.restarts} after faults` : String(own.attempt)], ["Owner", own.owner], ["Priority", String(own.spec.priority)],
      job.trained_tokens ? ["Trained tokens", whole(job.trained_tokens)] : null, ...dataFacts(own.data),
      own.experiment ? ["Experiment", h("a", { href: `#/experiments/${own.experiment}` }, own.experiment)] : null, ...measuredFacts(own.measured),
      own.spec.lora ? ["LoRA", `rank ${own.spec.lora.r}`] : null,
      named("Training file", job.training_file), named("Validation file", job.validation_file),
      ...job.result_files.map((id) => ["Metrics", h("a", { href: `/v1/files/${id}/content`, download: `${job.id}-metrics.csv` }, "CSV")]),
      own.spec.tags.length ? ["Tags", tags(own.spec.tags)] : null, Object.keys(job.metadata ?? {}).length ? ["Metadata", Object.entries(job.metadata).map(([name, value]) => h("div", {}, h("bdi", {}, name), ": ", h("bdi", {}, value)))] : null, own.gpus.length ? ["GPUs", own.gpus.map((gpu) => gpu.slice(0, 12)).join(", ")] : null]));
}

export function job(view, id, session) {
  const path = `${JOBS}/${id}`, series = jobSeries(id), may = session.scope !== "read";
  const head = h("div"), unread = h("div", {}, loading()), refused = h("div"), memory = memoryCard(), settings = h("pre", { tabindex: "0" }), change = h("div");
  const events = eventsCard(path), output = outputCard(path), checkpoints = checkpointsCard(path), profile = profileCard(path, may);
  const rank = h("select", { id: "rank", onchange: () => draw() }), rankLabel = h("label", { for: "rank", hidden: true }, "Step time of rank", rank);
  const charts = new JobCharts(series, rankLabel);
  let now = null, plan = null, ended = false, news = true; // events or checkpoints may be new

  const send = async (method, below, body) => {
    try {
      await request(method, path + below, body);
      fill(refused);
      if (method === "DELETE") location.hash = "#/jobs";
      else await load();
    } catch (error) {
      fill(refused, note("bad", error.message));
      if (error.status === 404) await load(); // it was removed meanwhile
    }
  };
  const drawHead = () => {
    const own = now.ithaca;
    document.title = `${own.state} · ${now.fine_tuned_model ?? id} · Ithaca`;
    refill(head, h("div", { class: "head" }, h("div", {}, h("div", { class: "title" }, h("h1", {}, now.fine_tuned_model ?? id), badge(own.state)),
      now.fine_tuned_model ? h("div", { class: "mono soft" }, id) : null), may ? h("div", { class: "actions" }, h("a", { class: "button", href: `#/submit/${id}` }, "New job like this"), buttons(now, send)) : null),
    now.error?.message ? note("bad", h("b", {}, now.error.code), " ", now.error.message)
      : own.reason_text && !["succeeded", "running"].includes(own.state) ? note("warn", own.reason_text) : null,
    own.state === "queued" && why(own) ? note("warn", why(own)) : null, preparing(own.data), standing(now));
    profile.load(now);
    settings.textContent = JSON.stringify(own.spec, null, 2);
    series.ranks = own.spec.gpus;
    rankLabel.hidden = own.spec.gpus < 2;
    if (rank.length !== own.spec.gpus) fill(rank, Array.from({ length: own.spec.gpus }, (_, i) => h("option", { value: String(i) }, String(i))));
    if (may && !ENDS.includes(own.state)) { if (!change.firstChild) change.append(changeForm(now, path, load)); } else fill(change);
  };
  const draw = () => {
    if (now === null || ended) return;
    charts.draw(Number(rank.value || 0), now.ithaca.spec.seq_len, ENDS.includes(now.ithaca.state));
    memory.draw(plan, series, now.ithaca.spec.gpus);
  };
  // What cannot be read is said until it can be; that the daemon is away the header says. Of a job that is gone nothing is
  // left to look at.
  const guarded = (call) => async () => {
    try {
      await call();
      fill(unread);
    } catch (error) {
      if (error.status === 404) { now = null; content.hidden = true; }
      if (error.status !== 0 || now === null) fill(unread, note("bad", error.message), h("a", { class: "button", href: "#/jobs" }, "All jobs"));
    }
  };
  const stand = async () => {
    now = await get(path);
    content.hidden = false;
    if (ended) return;
    drawHead();
    nameFiles([now.training_file, now.validation_file], () => { if (now !== null && !ended) drawHead(); });
  };
  const readSaid = async () => {
    const all = news ? [events.load(), checkpoints.load()] : [];
    news = false;
    await Promise.all([...all, output.load(now)]);
  };
  const readPoints = async () => {
    // Memory is asked for its plan alone: what was taken is among the points.
    const ask = plan ? { planned: plan } : get(`${path}/memory?from_step=${Number.MAX_SAFE_INTEGER}`);
    const [answer] = await Promise.all([ask, series.load()]);
    plan = answer.planned;
    draw();
  };
  const load = guarded(async () => { await stand(); if (!ended) await readSaid(); });
  const loadAll = guarded(async () => { await stand(); if (!ended) await Promise.all([readSaid(), readPoints()]); });
  const paint = gather(draw, DRAW_MS), soon = gather(load, READ_MS);
  const stop = listen((kind, data) => {
    if (kind === "open") news = true;
    if (kind === "open" || (kind === "lost" && now === null)) loadAll();
    if (data === undefined || data.job_id !== id) return;
    if (kind === "metrics") {
      if (series.add(data)) series.load().then(paint, () => {});
      else paint();
    } else news = true;
    soon();
  });
  const poll = setInterval(() => { if (now !== null && !ENDS.includes(now.ithaca.state)) soon(); }, POLL_MS);

  const content = h("div", { hidden: true }, refused, head, charts.element, memory.element,
    h("div", { class: "halves" }, events.element, checkpoints.element), output.element, profile.element, change,
    h("details", { class: "card" }, h("summary", {}, "Settings, as resolved"), settings));
  fill(view, unread, content);
  if (!opening()) loadAll(); // else it is read when the stream is there, and once
  return () => { ended = true; stop(); paint.end(); soon.end(); clearInterval(poll); charts.end(); };
}
