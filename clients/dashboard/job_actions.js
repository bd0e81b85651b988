// job_actions: what may be done with a job: buttons by its state, and a form for what may still change.
import { get, request } from "/dashboard/api.js";
import { fill, h, note } from "/dashboard/dom.js";
import { Field, shown } from "/dashboard/form.js";
import { ENDS } from "/dashboard/text.js";

const CHANGEABLE = ["priority", "time_limit_s", "max_restarts", "preemptible", "depends_on", "tags"];
const WAITS = ["validating", "queued"];

let busy = false; // a second press while the first is answered does nothing; a disabled button would lose the focus

// send(method, path below the job, body) does it, shows what is wrong, and reads the job anew.
export function buttons(job, send) {
  const { state, spec } = job.ithaca;
  const button = (text, id, method, path, { question, body, danger } = {}) => h("button", { type: "button", id, class: danger ? "danger" : null, onclick: async () => {
    if (busy || (question && !confirm(question))) return;
    busy = true;
    try { await send(method, path, body); } finally { busy = false; }
  } }, text);
  return [
    WAITS.includes(state) ? button(spec.hold ? "Release" : "Hold", "do-hold", "PATCH", "", { body: { ithaca: { hold: !spec.hold } } }) : null,
    ["running", "starting"].includes(state) ? button("Pause", "do-pause", "POST", "/pause") : null,
    ["paused", "failed"].includes(state) ? button("Resume", "do-resume", "POST", "/resume") : null,
    ENDS.includes(state) ? button("Delete", "do-end", "DELETE", "", { danger: true, question: "Delete this job, with its model, checkpoints, output and metrics?" })
      : button("Cancel job", "do-end", "POST", "/cancel", { danger: true, question: "Cancel this job? Its checkpoints stay." })];
}

// A field that shows the job's value; its change: undefined where it is as it was.
class Change extends Field {
  constructor(name, schema, value, changed) {
    super({ path: [name], schema: { ...schema, default: value } }, changed);
    this.current = value;
    this.value = value;
  }

  get change() {
    const emptied = !this.options && this.control.value.trim() === "" && shown(this.current) !== "";
    if (emptied) return Array.isArray(this.current) ? [] : null;
    return this.value;
  }
}

// A card that is open at the reader's wish; made once a job, since its fields are the reader's.
export function changeForm(job, path, done) {
  const body = h("div"), said = h("div"), spec = job.ithaca.spec;
  const build = async () => {
    if (body.firstChild) return;
    const schema = await get("/dashboard/job.schema.json");
    const fields = CHANGEABLE.map((name) => new Change(name, schema.properties.ithaca.properties[name], spec[name], () => fill(said)));
    const submit = async (event) => {
      event.preventDefault();
      const bad = fields.find((field) => !field.check());
      if (bad) { bad.control.focus(); return; }
      const ithaca = Object.fromEntries(fields.map((field) => [field.path[0], field.change]).filter(([, value]) => value !== undefined));
      if (Object.keys(ithaca).length === 0) { fill(said, note("", "Nothing was changed.")); return; }
      try {
        const answer = await request("PATCH", path, { ithaca });
        for (const field of fields) field.current = field.schema.default = answer.ithaca.spec[field.path[0]];
        fill(said, note("", "Changed."));
        done();
      } catch (error) {
        fields.find((field) => error.field === `ithaca.${field.path[0]}`)?.say(error.message);
        fill(said, note("bad", error.message));
      }
    };
    fill(body, h("form", { onsubmit: submit, novalidate: true }, h("div", { class: "fields" }, fields.map((field) => field.element)), h("br"), said,
      h("button", { class: "first", type: "submit" }, "Change")));
  };
  return h("details", { class: "card", ontoggle: () => build().catch((error) => fill(body, note("bad", error.message))) },
    h("summary", {}, "Change priority, limits, tags"), body);
}
