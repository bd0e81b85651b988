// page_experiment: a new experiment. Beside the form stand its points as the daemon plans them: what each takes, and
// which cannot run, with the figure.
import { get } from "/dashboard/api.js";
import { made, making, planning } from "/dashboard/asking.js";
import { fill, h, note, row, table } from "/dashboard/dom.js";
import { written } from "/dashboard/experiment_axes.js";
import { ExperimentForm } from "/dashboard/experiment_form.js";
import { cards, refuse } from "/dashboard/form.js";
import { badge, bytes, seconds, words } from "/dashboard/text.js";

const PATH = "/v1/experiments";
const POINTS = ["Context", "Point", "Plan", "Memory", "Step"];

// A point, and below it why it cannot run.
function planned(one) {
  const cells = row(POINTS, [written(one.seq_len), h("span", {}, one.label || one.method || "–", h("div", { class: "small soft" }, one.model)),
    h("span", {}, badge(one.status === "waiting" ? "fits" : words(one.status)), one.rehearsed ? h("div", { class: "small soft" }, "rehearsed") : ""),
    bytes(one.planned_device_bytes), seconds(one.planned_step_s)]);
  return one.note ? [cells, h("tr", { class: "why" }, h("td", { colspan: String(POINTS.length), class: "small soft" }, one.note))] : cells;
}

const runs = (list) => list.filter((one) => one.status === "waiting").length;

function summary(list, searches) {
  const no = list.filter((one) => one.status === "does_not_fit").length, refused = list.length - runs(list) - no;
  const said = [`${runs(list)} of ${list.length} ${list.length === 1 ? "point" : "points"} can run`, no > 0 ? `${no} ${no === 1 ? "does" : "do"} not fit` : null, refused > 0 ? `${refused} cannot be a job` : null];
  return note(runs(list) === 0 ? "bad" : runs(list) < list.length ? "warn" : "", `${said.filter((one) => one).join(", ")}.`, searches && runs(list) > 0 ? " Contexts are the longest that the plan says fit." : "");
}

// like: the id of an experiment whose settings the form begins with, or undefined.
export function experiment(view, like, session) {
  let ended = false, points = null; // points: as planned, of what the form says now; null: not known
  const plan = h("section", { class: "card plan", "aria-live": "polite" }), wrong = h("div"), may = session.scope !== "read";
  const button = h("button", { class: "first", type: "submit", disabled: !may }, "Run experiment");
  const send = making(PATH, button, wrong);
  const say = (...what) => fill(plan, h("h2", {}, "Points, as planned"), what);
  let form = null;

  const estimate = planning(`${PATH}/estimate`, (answer) => {
    points = answer.data;
    say(summary(points, form.searches), h("div", { class: "points", tabindex: "0", role: "group", "aria-label": "Points" }, table(POINTS, points.map(planned))));
  }, (error) => { refuse(form.fields, error); say(note("bad", error.message)); });
  const changed = () => {
    form.show();
    const body = form.read();
    fill(wrong);
    points = null;
    if (body) estimate.ask(body);
    else { estimate.drop(); say(h("p", { class: "soft" }, "Once all fields are right.")); }
  };
  const go = async (event) => {
    event.preventDefault();
    const body = form.read(), bad = [...view.querySelectorAll("[aria-invalid]")].find((one) => !one.closest("[hidden]"));
    if (body === undefined) { bad?.closest("details")?.setAttribute("open", ""); bad?.focus(); return; }
    if (points && runs(points) === 0) { fill(wrong, note("bad", "None of its points can run; the plan says why.")); return; }
    const one = await send(body, form.fields);
    if (one && !ended) location.hash = `#/experiments/${one.id}`;
  };
  const build = (job, own, models, given) => {
    const named = [given?.base.model, ...given?.grid.model ?? []]; // a tuned model has the shape of its base: offered where it was asked for
    const here = models.filter((one) => one.ithaca?.ready || named.includes(one.id)).map((one) => one.id);
    form = new ExperimentForm({ job, own, here, given }, changed);
    const open = form.shapes.values.length > 0 || here.length === 0;
    fill(view, h("div", { class: "head" }, h("h1", {}, "New experiment")), may ? null : note("warn", "Your token may read, not submit."),
      h("div", { class: "two" }, h("form", { onsubmit: go, novalidate: true },
        h("section", { class: "card" }, h("div", { class: "fields" }, form.first), h("br"), form.keptSaid, wrong, button),
        h("details", { class: "card", open }, h("summary", {}, "known shapes"), form.shapes.element),
        h("details", { class: "card" }, h("summary", {}, "failures and rehearsal"), h("div", { class: "fields" }, form.field("on_failure").element, form.field("rehearse_layers").element)),
        cards(form.more)), plan));
    changed();
  };

  const end = made(view, () => Promise.all([get("/dashboard/job.schema.json"), get("/dashboard/openapi.json"), get("/v1/models"), like ? get(`${PATH}/${like}`) : null]),
    (job, api, models, given) => build(job.properties.ithaca.properties, api.components.schemas.ExperimentCreate.properties, models.data, given?.spec));
  return () => { ended = true; end(); estimate.end(); };
}
