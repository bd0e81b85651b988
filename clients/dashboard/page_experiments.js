// page_experiments: grids of settings and context lengths that are measured: the list, and one with its table and charts.
import { get, getText, request } from "/dashboard/api.js";
import { empty, facts, fill, gather, h, loading, note, progress, refill, row, table } from "/dashboard/dom.js";
import { listen, opening } from "/dashboard/live.js";
import { badge, bytes, number, percent, seconds, time, whole, words } from "/dashboard/text.js";

const PATH = "/v1/experiments";
const READ_MS = 2000; // at most so often is it read anew, while jobs change their states
const PAGE = 50;
const LIST = ["Experiment", "Status", "Points", "Owner", "Created"];
const RESULTS = ["Model", "Context", "Settings", "Status", "Tokens/s a GPU", "MFU, causal", "MFU, full", "Step", "Device memory", "Host memory"];

const CHARTS = "Throughput and memory against context";

const done = (points) => points.succeeded + points.failed + points.not_run;
const name = (one) => one.name ?? one.id;

function listed(one) {
  return row(LIST, [h("a", { class: "name", href: `#/experiments/${one.id}` }, name(one)), badge(one.status),
    h("span", { class: "number" }, progress(done(one.points), one.points.all, "Points"), h("span", { class: "small soft" }, `${done(one.points)} / ${one.points.all}`)), one.owner, time(one.created_at)]);
}

const taken = (measured, planned) => (planned === null ? null : h("span", { class: "number" }, bytes(measured), h("div", { class: "small soft" }, `planned ${bytes(planned)}`)));

function result(one) {
  const status = h("span", {}, badge(words(one.status)), one.rehearsed ? h("span", { class: "small soft" }, " rehearsed") : "", one.note ? h("div", { class: "small soft" }, one.note) : "");
  const settings = h("span", { class: "label" }, one.label || (one.job ? "" : "–"), one.job ? h("div", { class: "small" }, h("a", { href: `#/jobs/${one.job}` }, "its job")) : "");
  return row(RESULTS, [one.model, whole(one.seq_len), settings, status, one.tokens_per_s_gpu === null ? null : number(Math.round(one.tokens_per_s_gpu)),
    percent(one.mfu_causal), percent(one.mfu_full), one.step_s === null ? null : h("span", { class: "number" }, seconds(one.step_s)), taken(one.device_bytes, one.planned_device_bytes), taken(one.host_bytes, one.planned_host_bytes)]);
}

// Where the longest context is looked for: what ran of each kind of point.
const longest = (one) => Object.entries(one.longest ?? {}).map(([label, length]) => [`Longest that runs${label ? `: ${label}` : ""}`, `${whole(length)} tokens`]);

// Text that the daemon made, as elements of the page: parsed as SVG, so that it has the theme's colours.
const picture = (svg) => document.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true);

// What is shown is read again when jobs change. read() -> what is drawn, draw(what) -> elements, more(what) -> it may change.
function shown(view, read, draw, more) {
  const body = h("div", {}, loading());
  let ended = false, last = null;
  const load = async () => {
    try {
      last = await read();
      if (!ended) refill(body, draw(last));
    } catch (error) { if (!ended && (error.status !== 0 || last === null)) fill(body, note("bad", error.message)); }
  };
  const soon = gather(load, READ_MS);
  const stop = listen((kind) => {
    if (kind === "open" || (kind === "lost" && last === null)) load();
    if (kind === "state" && (last === null || more(last))) soon();
  });
  fill(view, body);
  if (!opening()) load();
  return { load, end: () => { ended = true; stop(); soon.end(); } };
}

// As many as are shown, a page more at a press.
function list(view, session) {
  let pages = 1;
  const read = async () => {
    const data = [];
    let more = true;
    for (let i = 0; i < pages && more; i++) {
      const answer = await get(`${PATH}?limit=${PAGE}${i > 0 ? `&after=${data.at(-1).id}` : ""}`);
      data.push(...answer.data);
      more = answer.has_more;
    }
    return { data, more };
  };
  const draw = ({ data, more }) => [h("div", { class: "head" }, h("h1", {}, "Experiments"), session.scope === "read" ? null
    : h("div", { class: "actions" }, h("a", { class: "button first", href: "#/experiments/new" }, "New experiment"))),
  h("section", { class: "card" }, data.length === 0 ? empty("No experiments yet", h("p", {}, "An experiment measures a grid of settings and context lengths, a few steps each."))
    : table(LIST, data.map(listed)), more ? h("button", { type: "button", id: "older", onclick: () => { pages += 1; page.load(); } }, "Older experiments") : null)];
  const page = shown(view, read, draw, () => true);
  return page.end;
}

export function experiments(view, id, session) {
  if (!id) return list(view, session);
  const path = `${PATH}/${id}`, wrong = h("div");
  const act = (method, tail, question) => async () => {
    if (!confirm(question)) return;
    try {
      await request(method, path + tail);
      if (method === "DELETE") location.hash = "#/experiments";
      else page.load();
    } catch (error) { fill(wrong, note("bad", error.message)); }
  };
  const button = (text, call) => h("button", { type: "button", id: "do-end", class: "danger", onclick: call }, text);
  const form = (text, format) => h("a", { href: `${path}/results?format=${format}`, download: `${id}.${format}` }, text);
  const read = async () => {
    const [one, svg] = await Promise.all([get(path), getText(`${path}/results?format=svg`)]);
    return { ...one, svg };
  };
  const draw = (one) => {
    document.title = `${name(one)} · Ithaca`;
    const end = one.finished_at === null ? button("Cancel", act("POST", "/cancel", "Cancel what of this experiment has not ended?"))
      : button("Delete", act("DELETE", "", "Delete this experiment, with its results and jobs?"));
    return [h("div", { class: "head" }, h("div", {}, h("div", { class: "title" }, h("h1", {}, name(one)), badge(one.status)), one.name ? h("div", { class: "mono soft" }, one.id) : null),
      session.scope === "read" ? null : h("div", { class: "actions" }, h("a", { class: "button", href: `#/experiments/new/${id}` }, "New experiment like this"), end)),
    h("section", { class: "card" }, h("div", { class: "above" }, progress(done(one.points), one.points.all, "Points")), facts([["Points", `${done(one.points)} of ${one.points.all}`],
      ["Failed", String(one.points.failed)], ["Not run", String(one.points.not_run)], ["Owner", one.owner], ["Created", time(one.created_at)], ["Ended", time(one.finished_at)], ...longest(one)])),
    h("section", { class: "card picture", tabindex: "0", "aria-label": CHARTS }, h("h2", {}, CHARTS), picture(one.svg)),
    h("section", { class: "card" }, h("div", { class: "tools" }, h("h2", {}, "Results"), form("CSV", "csv"), form("Markdown", "markdown"), form("JSON", "json"), form("SVG", "svg")), table(RESULTS, one.results.map(result)))];
  };
  const page = shown(view, read, draw, (one) => one.finished_at === null);
  view.prepend(wrong);
  return page.end;
}
