// experiment_form: the fields of an experiment, and the body that they say. Of an experiment that it begins with, what it
// has no place for (settings with names, layouts by number) is kept as it is until the reader leaves it out.
import { fill, h, note } from "/dashboard/dom.js";
import { Choices, List, Varied } from "/dashboard/experiment_axes.js";
import { collect, Field, rows } from "/dashboard/form.js";
import { words } from "/dashboard/text.js";

const SEARCH = "find_max_seq_len";
const SEARCHED = ["seq_len_min", "seq_len_max", "seq_len_step"]; // fields of a search alone
const LENGTHS = [1024, 2048, 4096]; // until others are given
const PLACED = ["seq_len", "context_parallel", "max_steps", "measure"]; // of a job: the experiment says them
// Of a job, and nothing to a measurement: not shown; what a given experiment says of them is kept.
const UNSEEN = ["optimizer", "data", "save", "eval", "rehearse", "profile", "on_nonfinite", "preemptible", "hold", "depends_on", "webhook", "launcher"];
const VARY = ["recompute", "keep_input_every", "offload", "offload_layers", "file_layers", "states", "stream_residual", "tile_mlp", "tile_loss",
  "overlap", "fsdp", "gpus", "batch.sequences", "batch.grad_accum", "lora", "lora.r", "lora.alpha", "lora.dropout", "memory_limit_gib", "host_memory_gib", "deterministic"];

const only = (object, take) => Object.fromEntries(Object.entries(object ?? {}).filter(([name]) => take(name)));
const counts = (field) => !field.element.hidden; // what is hidden is not asked for, right or wrong
const plainMethod = (one) => Object.keys(one).every((name) => ["kind", "heads_per_stage"].includes(name));

export class ExperimentForm {
  // job: properties of `ithaca`; own: of the experiment; here: names of models; given: the experiment that it begins with,
  // or undefined; changed() is told of every change
  constructor({ job, own, here, given }, changed) {
    const parallel = job.context_parallel.properties, settings = rows({ properties: only(job, (name) => ![...PLACED, ...UNSEEN].includes(name)) });
    const base = given?.base ?? {}, grid = given?.grid ?? {}, models = grid.model ?? (base.model ? [base.model] : here.slice(0, 1));
    const known = own.grid.properties.model.items.examples.filter((name) => !here.includes(name));
    this.changed = changed;
    this.base = base;
    this.kept = {}; // axes that there is no place for
    this.keptSaid = h("div");
    this.method = parallel.kind.default;
    this.models = new Choices("models", "Models", null, here, models, changed);
    this.shapes = new Choices("shapes", "Models that are not here", "With random weights: speed and memory depend on the shape alone.", known, models, changed);
    this.lengths = new List("lengths", "Context lengths", "Tokens, with commas: 8192, 128K, 1M", job.seq_len, changed);
    this.methods = new Choices("methods", "Methods", parallel.kind.description, parallel.kind.enum, [this.method], changed);
    this.heads = new List("heads", "Heads a stage", "Of upipe: auto, or numbers with commas", parallel.heads_per_stage, changed);
    const schemaOf = (name) => settings.find(({ path }) => path.join(".") === name).schema;
    this.varied = new Varied(Object.fromEntries(VARY.map((name) => [name, schemaOf(name)])), changed);
    this.settings = settings.map((one) => new Field(one, changed));
    this.own = rows({ properties: only(own, (name) => !["base", "grid"].includes(name)) }).map((one) => new Field(one, changed));
    this.fields = [...this.settings, ...this.own];
    this.begin(given ?? {}, base, grid);
  }

  begin(given, base, { model: _, seq_len: lengths, context_parallel: methods, ...axes }) {
    for (const one of this.own) one.value = given[one.path[0]];
    for (const one of this.settings) one.value = one.path.reduce((at, name) => at?.[name], base.ithaca);
    this.lengths.values = lengths ?? (base.ithaca?.seq_len ? [base.ithaca.seq_len] : LENGTHS);
    const ways = methods ?? (base.ithaca?.context_parallel ? [base.ithaca.context_parallel] : []);
    const heads = ways.map((one) => one.heads_per_stage).filter((one) => one);
    this.heads.values = heads.length > 0 ? [...new Set(heads)] : ["auto"];
    if (ways.length > 0 && ways.every(plainMethod)) this.methods.values = ways.map((one) => one.kind ?? this.method);
    else if (ways.length > 0) this.kept.context_parallel = ways;
    for (const [name, values] of Object.entries(axes)) {
      if (this.varied.schemas[name] && values.every((one) => one === null || typeof one !== "object")) this.varied.put(name, values);
      else this.kept[name] = values;
    }
    const told = Object.entries(this.kept).map(([name, values]) => `${words(name)} (${values.length})`).join(", ");
    if (told) fill(this.keptSaid, note("", `As before, what this form has no place for varies too: ${told}. `, h("button", { type: "button", onclick: () => this.leave() }, "Leave that out")));
  }

  leave() {
    this.kept = {};
    fill(this.keptSaid);
    this.changed();
  }

  get searches() { return this.field("kind").value === SEARCH; }
  field(name) { return this.fields.find((one) => one.path.join(".") === name); }

  // Shows what counts as things stand.
  show() {
    this.lengths.element.hidden = this.searches;
    this.heads.element.hidden = !this.methods.values.includes("upipe");
    for (const name of SEARCHED) this.field(name).element.hidden = !this.searches;
  }

  // The axis of methods: one of Untied Ulysses for each number of heads a stage; none where it is as ever.
  methodAxis(heads) {
    const kinds = this.methods.values;
    if (kinds.length === 0 || (kinds.length === 1 && kinds[0] === this.method)) return {};
    return { context_parallel: kinds.flatMap((kind) => (kind === "upipe" ? heads.map((one) => ({ kind, heads_per_stage: one })) : [{ kind }])) };
  }

  // What is asked for; undefined: a field is wrong, and says so. Of the grid the last axis changes first.
  read() {
    const right = this.fields.filter(counts).map((one) => one.check()).every((one) => one), models = [...this.models.values, ...this.shapes.values];
    const lengths = counts(this.lengths) ? this.lengths.values : [], heads = counts(this.heads) ? this.heads.values : [], axes = this.varied.values;
    this.models.say(models.length === 0 ? "Choose one, or a known shape." : undefined);
    if (!right || models.length === 0 || lengths === undefined || heads === undefined || axes === undefined) return undefined;
    const grid = { ...(models.length > 1 ? { model: models } : {}), ...axes, ...this.kept, ...this.methodAxis(heads), ...(lengths.length > 0 ? { seq_len: lengths } : {}) };
    return { ...collect(this.own.filter(counts)), base: { ...this.base, model: models[0], ithaca: { ...only(this.base.ithaca, (name) => UNSEEN.includes(name)), ...collect(this.settings) } }, grid };
  }

  get first() {
    return [this.field("name"), this.field("kind"), this.models, this.lengths, ...SEARCHED.map((name) => this.field(name)), this.methods, this.heads, this.varied,
      this.field("gpus"), this.field("max_gpus"), this.field("steps")].map((one) => one.element);
  }
  get more() { return this.settings.filter((one) => one.path[0] !== "gpus"); }
}
