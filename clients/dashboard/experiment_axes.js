// experiment_axes: what varies in an experiment: choices of several values, lists, and rows in which settings of a job
// vary. Each has `values` (what is chosen; undefined: something is wrong, and is said) and `element`.
import { fill, h } from "/dashboard/dom.js";
import { parse, sayWrong, shown } from "/dashboard/form.js";

const UNITS = { K: 1 << 10, M: 1 << 20 };

// A number as people write lengths: 131072, 128K, 1M.
function amount(word) {
  const [, digits, unit] = /^([0-9.]+)\s*([KM]?)$/i.exec(word) ?? [];
  return digits === undefined ? NaN : Number(digits) * (UNITS[unit.toUpperCase()] ?? 1);
}
export const written = (value) => (value > 0 && value % UNITS.M === 0 ? `${value / UNITS.M}M` : value > 0 && value % UNITS.K === 0 ? `${value / UNITS.K}K` : shown(value));

const split = (text) => text.split(",").map((word) => word.trim()).filter((word) => word);
const said = (option) => (option === true ? "yes" : option === false ? "no" : String(option));

// Boxes to tick. chosen: what is ticked at first.
export class Choices {
  constructor(id, label, help, options, chosen, changed) {
    this.options = options;
    this.boxes = options.map((option, i) => h("input", { type: "checkbox", id: `${id}-${i}`, checked: chosen.includes(option), onchange: changed }));
    this.wrong = h("span", { class: "wrong", id: `${id}-wrong` });
    this.element = h("fieldset", { id, class: "field wide", "aria-describedby": `${id}-wrong` }, h("legend", {}, label), h("div", { class: "choices" },
      options.map((option, i) => h("label", { for: `${id}-${i}` }, this.boxes[i], said(option)))), this.wrong, help ? h("span", { class: "help" }, help) : "");
  }

  say(text) { sayWrong(this.wrong, this.boxes[0], text); }

  get values() { return this.options.filter((_, i) => this.boxes[i].checked); }
  set values(list) { this.boxes.forEach((box, i) => { box.checked = list.includes(this.options[i]); }); }
}

// Values with commas between them, each as the schema has it.
export class List {
  constructor(id, label, help, schema, changed) {
    this.schema = schema;
    this.control = h("input", { id, type: "text", spellcheck: "false", autocomplete: "off", "aria-describedby": `${id}-wrong ${id}-help`, oninput: changed });
    this.wrong = h("span", { class: "wrong", id: `${id}-wrong` });
    this.element = h("div", { class: "field wide" }, h("label", { for: id }, label), this.control, this.wrong, h("span", { class: "help", id: `${id}-help` }, help));
  }

  get values() {
    const numbers = this.schema["x-unit"] === "tokens";
    const parsed = split(this.control.value).map((word) => {
      const value = numbers && Number.isFinite(amount(word)) ? String(amount(word)) : word;
      const one = parse(this.schema, value);
      return { ...one, value: one.value ?? this.schema.default };
    });
    const wrong = parsed.find((one) => one.wrong)?.wrong ?? (parsed.length === 0 ? "One value, or several with a comma between them." : undefined);
    sayWrong(this.wrong, this.control, wrong);
    return wrong ? undefined : [...new Set(parsed.map((one) => one.value))];
  }
  set values(list) { this.control.value = list.map(this.schema["x-unit"] === "tokens" ? written : shown).join(", "); }
}

// Of a setting and one that is in it only one varies: "lora" or "lora.r".
const overlaps = (a, b) => a === b || a.startsWith(`${b}.`) || b.startsWith(`${a}.`);

// Rows, each a setting and its values. schemas: {name: schema} of the settings that may vary.
export class Varied {
  constructor(schemas, changed) {
    this.schemas = schemas;
    this.changed = changed;
    this.rows = [];
    this.made = 0;
    this.list = h("div");
    this.add = h("button", { type: "button", id: "vary", onclick: () => { this.put(this.left()[0]).focus(); changed(); } }, "Vary a setting");
    this.element = h("div", { class: "field wide" }, this.list, this.add);
  }

  // What may vary beside what does; of a row: what it may be about.
  left(own) { return Object.keys(this.schemas).filter((name) => !this.rows.some((row) => row !== own && overlaps(row.name, name))); }

  // A row for a setting, with these values; returns its control.
  put(name, values) {
    const id = `vary-${this.made += 1}`, row = { name }, place = h("div");
    const control = h("select", { id, "aria-label": "Setting that varies", onchange: () => { row.name = control.value; build(); this.changed(); } });
    const build = (chosen) => {
      const schema = this.schemas[row.name], options = schema.enum ?? (["boolean", "switch"].includes(schema.type) ? [false, true] : null);
      row.axis = options ? new Choices(`${id}-values`, "Values", schema.description, options, chosen ?? options.slice(0, 2), this.changed)
        : new List(`${id}-values`, "Values", schema.description, schema, this.changed);
      if (!options) row.axis.values = chosen ?? [schema.default];
      fill(place, row.axis.element);
      remove.setAttribute("aria-label", `Do not vary ${row.name}`);
      this.offer();
    };
    const remove = h("button", { type: "button", class: "quiet", onclick: () => {
      this.rows.splice(this.rows.indexOf(row), 1);
      row.element.remove();
      this.offer();
      this.changed();
      this.add.focus();
    } }, "Remove");
    row.control = control;
    row.element = h("div", { class: "varied" }, control, remove, place);
    this.rows.push(row);
    this.list.append(row.element);
    build(values);
    return control;
  }

  offer() {
    for (const row of this.rows) fill(row.control, this.left(row).map((name) => h("option", { value: name, selected: name === row.name }, name)));
    this.add.hidden = this.left().length === 0;
  }

  // {name: values}; undefined: something is wrong. A switch stands for an object or none.
  get values() {
    const axes = {};
    for (const { name, axis } of this.rows) {
      const { values } = axis;
      if (values === undefined) return undefined;
      if (values.length > 0) axes[name] = this.schemas[name].type === "switch" ? values.map((on) => (on ? {} : null)) : values;
    }
    return axes;
  }
}
