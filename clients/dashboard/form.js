// form: fields from the job schema: one for each property, its control by type, its help, unit, default and range from
// the schema's own words. What is typed is checked here by the same schema; the daemon checks it again.
import { h } from "/dashboard/dom.js";
import { words } from "/dashboard/text.js";

// Rows of the schema in its order: {path, schema}. Objects are walked; one that may be null has a switch of its own.
export function rows(schema, path = []) {
  return Object.entries(schema.properties ?? {}).flatMap(([name, own]) => {
    if ("const" in own) return [];
    const here = [...path, name];
    if (own.properties === undefined) return [{ path: here, schema: own }];
    const group = own.default === null ? [{ path: here, schema: { ...own, properties: undefined, type: "switch" } }] : [];
    return [...group, ...rows(own, here)];
  });
}

const typeOf = (schema) => (Array.isArray(schema.type) ? schema.type : [schema.type, ...(schema.anyOf ?? []).map((one) => one.type)]);
const isList = (schema) => typeOf(schema).includes("array");
export const shown = (value) => (value === null || value === undefined ? "" : Array.isArray(value) ? value.join(", ") : String(value));

// Text to value: {value} (undefined: the default), or {wrong}.
export function parse(schema, text) {
  const word = text.trim();
  if (word === "" || word === shown(schema.default)) return {};
  if (isList(schema)) {
    const list = word.split(",").map((one) => one.trim()).filter((one) => one);
    if (schema.items?.type !== "integer") return { value: list };
    const numbers = list.map(Number);
    return numbers.every(Number.isInteger) && list.length >= (schema.minItems ?? 0) ? { value: numbers } : { wrong: `${schema.minItems} whole numbers, with a comma.` };
  }
  if (!typeOf(schema).some((type) => type === "integer" || type === "number")) return { value: word };
  const value = Number(word), whole = !typeOf(schema).includes("number");
  const auto = (schema.anyOf ?? []).some((one) => one.const === "auto") ? ", or auto" : "";
  if (!Number.isFinite(value) || (whole && !Number.isInteger(value))) return { wrong: `${whole ? "A whole number" : "A number"}${auto}.` };
  if (value < (schema.minimum ?? -Infinity) || value > (schema.maximum ?? Infinity)) return { wrong: `From ${schema.minimum} to ${schema.maximum}${auto}.` };
  return { value };
}

// Says below a control what is wrong with it; undefined: nothing.
export function sayWrong(place, control, text) {
  place.textContent = text ?? "";
  if (text) control?.setAttribute("aria-invalid", "true");
  else control?.removeAttribute("aria-invalid");
}

export class Field {
  // changed() is told of every change.
  constructor({ path, schema }, changed) {
    this.path = path;
    this.schema = schema;
    const id = `field-${path.join("-")}`;
    const options = schema.enum?.filter((option) => option !== null) ?? (schema.type === "boolean" ? [true, false] : schema.type === "switch" ? [false, true] : null);
    this.control = options
      ? h("select", { id }, options.map((option) => h("option", { value: String(option) }, schema.type === "switch" || typeof option === "boolean" ? (option ? "yes" : "no") : String(option))))
      : h("input", { id, type: "text", spellcheck: "false", autocomplete: "off", placeholder: shown(schema.default), inputmode: typeOf(schema).includes("integer") && !schema.anyOf ? "numeric" : undefined });
    this.options = options;
    this.value = undefined;
    this.wrong = h("span", { class: "wrong", id: `${id}-wrong` });
    this.control.setAttribute("aria-describedby", `${id}-wrong ${id}-help`);
    this.control.addEventListener("input", () => { this.check(); changed(); });
    this.element = h("div", { class: "field" }, h("label", { for: id }, path.join("."), schema["x-unit"] ? h("span", { class: "soft small" }, ` ${schema["x-unit"]}`) : ""),
      this.control, this.wrong, h("span", { class: "help", id: `${id}-help` }, schema.description ?? ""));
  }

  get value() {
    if (!this.options) return parse(this.schema, this.control.value).value;
    const value = this.options.find((option) => String(option) === this.control.value);
    return value === (this.schema.type === "switch" ? false : this.schema.default) ? undefined : value;
  }

  // Shows a value of a job; undefined: the default.
  set value(value) {
    if (this.options) this.control.value = String(this.schema.type === "switch" ? Boolean(value) : value ?? this.schema.default);
    else this.control.value = shown(value);
  }

  say(text) { sayWrong(this.wrong, this.control, text); }

  check() {
    const wrong = this.options ? undefined : parse(this.schema, this.control.value).wrong;
    this.say(wrong);
    return wrong === undefined;
  }
}

// The fields' values as one object, defaults left out. A group that is switched off takes its fields with it.
export function collect(fields) {
  const whole = {};
  const off = (path) => fields.some((field) => field.schema.type === "switch" && field.value === undefined && path.length > field.path.length && field.path.every((name, i) => path[i] === name));
  for (const field of fields) {
    const value = field.value;
    if (value === undefined || off(field.path)) continue;
    let at = whole;
    for (const name of field.path.slice(0, -1)) at = at[name] ??= {};
    at[field.path.at(-1)] = field.schema.type === "switch" ? at[field.path.at(-1)] ?? {} : value;
  }
  return whole;
}

// Cards that are open at the reader's wish: a card a group of fields.
export function cards(fields) {
  const groups = new Map();
  for (const field of fields) {
    const name = field.schema.type === "switch" || field.path.length > 1 ? words(field.path[0]) : "memory, queue and others";
    groups.set(name, [...(groups.get(name) ?? []), field.element]);
  }
  return [...groups].map(([name, list]) => h("details", { class: "card" }, h("summary", {}, name), h("div", { class: "fields" }, list)));
}

// Says what the daemon refused at its field, which it returns; undefined: it has none.
export function refuse(fields, error) {
  const field = fields.find((one) => [one.path.join("."), `ithaca.${one.path.join(".")}`].includes(error.field));
  field?.say(error.message);
  return field;
}

// Goes to a field that is wrong, wherever it is.
export function goTo(field) {
  field.element.closest("details")?.setAttribute("open", "");
  field.control.focus();
}
