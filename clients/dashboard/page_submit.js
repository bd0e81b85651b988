// page_submit: a new job. Beside the form stands the plan for what is typed: memory against what there is, step time,
// and, where it does not fit, the changes that do.
import { get, JOBS, request } from "/dashboard/api.js";
import { made, making, planning } from "/dashboard/asking.js";
import { bar, keys, parts } from "/dashboard/bars.js";
import { facts, fill, h, note } from "/dashboard/dom.js";
import { cards, collect, Field, goTo, rows, shown } from "/dashboard/form.js";
import { bytes, number, percent, seconds, words } from "/dashboard/text.js";

const FIRST = ["gpus", "seq_len", "optimizer.learning_rate", "batch.sequences", "max_steps", "save.every_steps"];

function choice(id, label, help, ...options) {
  const control = h("select", { id }, options);
  return { control, element: h("div", { class: "field" }, h("label", { for: id }, label), control, h("span", { class: "help" }, help)) };
}

// Settings of an address as {path: value}; {} where there are none.
function settings(text) {
  try { return Object(JSON.parse(decodeURIComponent(text))); } catch { return {}; }
}

// like: the id of a job whose settings the form begins with, or undefined; but: what of them is another now, as text.
export function submit(view, like, session, but = "{}") {
  let ended = false, fields = [];
  const plan = h("section", { class: "card plan", "aria-live": "polite" }, h("h2", {}, "Plan"), h("p", { class: "soft" }, "Choose a model to see what the job takes."));
  const wrong = h("div");

  // What the daemon takes for settings that are left to it.
  const chosen = (ithaca) => fields.filter((one) => one.schema.default === "auto" && one.value === undefined).map(({ path }) => [path.join("."), path.reduce((at, name) => at?.[name], ithaca)])
    .filter(([, value]) => ![undefined, null, "auto"].includes(value)).map(([name, value]) => `${name} ${shown(value)}`).join(", ");

  const drawPlan = (answer) => {
    const auto = chosen(answer.ithaca), memory = answer.memory, limit = memory.device_limit_bytes, list = parts(memory), step = answer.time;
    const scale = Math.max(limit ?? 0, memory.peak_device_bytes);
    fill(plan, h("h2", {}, "Plan"), memory.fits ? note("", limit ? "Fits." : "Its memory is planned.") : note("bad", h("b", {}, "Does not fit: "), answer.message ?? ""),
      memory.fits && !memory.served ? note("warn", answer.message ?? "This version cannot run it.") : null,
      bar("a rank", list, scale, limit), keys(list), h("br"),
      facts([["Peak of a rank", bytes(memory.peak_device_bytes)], ["There is", limit ? bytes(limit) : "–"], ["Host, in all", bytes(memory.host_bytes)],
        ["Peak phase", words(memory.peak_phase)], ["Step", seconds(step.predicted_step_s)], ["Speed", `${number(Math.round(step.tokens_per_s))} tokens/s`], ["MFU", percent(step.mfu_causal)]]),
      auto ? h("p", { class: "soft small" }, `Taken for auto: ${auto}.`) : null,
      h("p", { class: "soft small" }, step.calibrated ? "Times by rates measured on this machine." : "Times by assumed rates; ithaca calibrate measures this machine's."));
  };

  const estimate = planning("/v1/fine_tuning/estimate", drawPlan, (error) => fill(plan, h("h2", {}, "Plan"), note("bad", error.message)));

  const build = (schema, { data: models }, { data: files }, given) => {
    const option = (value, text) => h("option", { value }, text);
    const model = choice("model", "Model", "Base model", models.filter((one) => one.ithaca?.ready !== false).map((one) => option(one.id, one.id)));
    const named = files.filter((one) => one.status !== "error").map((one) => option(one.id, `${one.filename} (${bytes(one.bytes)})`));
    const file = choice("training", "Training file", "Rows or texts to train on", named);
    const valid = choice("validation", "Validation file", "Evaluated as training goes", option("", "none"), named.map((one) => one.cloneNode(true)));
    const suffix = new Field({ path: ["suffix"], schema: { ...schema.properties.suffix, type: "string" } }, () => {});
    const upload = h("input", { id: "upload", type: "file", accept: ".jsonl,.json" });
    const change = () => { fill(wrong); if (model.control.value && fields.every((field) => field.check())) estimate.ask({ model: model.control.value, ithaca: collect(fields) }); };
    fields = rows(schema.properties.ithaca).map((one) => new Field(one, change));
    const first = (field) => FIRST.includes(field.path.join("."));
    const button = h("button", { class: "first", type: "submit", disabled: session.scope === "read" }, "Submit job");
    const send = making(JOBS, button, wrong);

    const go = async (event) => {
      event.preventDefault();
      const bad = fields.find((field) => !field.check());
      if (bad) { goTo(bad); return; }
      const body = { model: model.control.value, training_file: file.control.value, validation_file: valid.control.value || null, ithaca: collect(fields) };
      if (suffix.value) body.suffix = suffix.value;
      const job = await send(body, fields);
      if (job && !ended) location.hash = `#/jobs/${job.id}`;
    };
    upload.addEventListener("change", async () => {
      if (upload.files.length === 0) return;
      const form = new FormData();
      form.append("purpose", "fine-tune");
      form.append("file", upload.files[0]);
      upload.disabled = true;
      fill(wrong, note("", `${upload.files[0].name} is sent: ${bytes(upload.files[0].size)}…`));
      try {
        const sent = await request("POST", "/v1/files", form);
        for (const select of [file.control, valid.control]) select.append(option(sent.id, `${sent.filename} (${bytes(sent.bytes)})`));
        file.control.value = sent.id;
        fill(wrong);
      } catch (error) { fill(wrong, note("bad", error.message)); }
      upload.disabled = false;
    });
    if (given) {
      for (const field of fields) field.value = field.path.reduce((at, name) => at?.[name], given.ithaca);
      for (const [control, value] of [[model.control, given.model], [file.control, given.training_file], [valid.control, given.validation_file ?? ""]])
        if ([...control.options].some((one) => one.value === value)) control.value = value;
      suffix.value = given.suffix ?? undefined;
    }
    for (const [path, value] of Object.entries(settings(but))) {
      const field = fields.find((one) => one.path.join(".") === path);
      if (field) field.value = value;
    }
    model.control.addEventListener("change", change);
    fill(view, h("div", { class: "head" }, h("h1", {}, "New job")),
      models.length === 0 ? note("warn", "There is no base model. Put one into a folder of the setting model_roots.") : null,
      session.scope === "read" ? note("warn", "Your token may read, not submit.") : null,
      h("div", { class: "two" }, h("form", { onsubmit: go, novalidate: true },
        h("section", { class: "card" }, h("div", { class: "fields" }, model.element, file.element,
          h("div", { class: "field" }, h("label", { for: "upload" }, "Upload a file"), upload, h("span", { class: "help" }, "JSONL, a JSON array or plain text, also as .gz or .zst; it is then the training file")), valid.element,
          suffix.element, fields.filter(first).map((field) => field.element)), h("br"), wrong, button),
        cards(fields.filter((field) => !first(field)))), plan));
    change();
  };

  const end = made(view, () => Promise.all([get("/dashboard/job.schema.json"), get("/v1/models"), get("/v1/files?limit=100&purpose=fine-tune"), like ? get(`${JOBS}/${like}/request`) : null]), build);
  return () => { ended = true; end(); estimate.end(); };
}
