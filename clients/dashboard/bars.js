// bars: bytes by category as stacked bars, against a limit where there is one.
import { h } from "/dashboard/dom.js";
import { bytes, words } from "/dashboard/text.js";

// parts: [[category, bytes, tone]]; scale: bytes that the whole width stands for; limit: bytes, or null.
export function bar(label, parts, scale, limit) {
  const total = parts.reduce((sum, part) => sum + part[1], 0);
  const over = total > (limit ?? Infinity);
  const said = parts.map(([name, size]) => `${words(name)} ${bytes(size)}`).join(", ");
  const element = h("div", { class: over ? "bar over" : "bar", role: "img",
    "aria-label": `${label}: ${bytes(total)}${limit ? ` of ${bytes(limit)}` : ""}${over ? ", does not fit" : ""}: ${said}` });
  for (const [name, size, tone] of parts) {
    const part = h("div", { class: `t${tone}`, title: `${words(name)}: ${bytes(size)}` });
    part.style.width = `${100 * size / Math.max(scale, 1)}%`;
    element.append(part);
  }
  if (limit && limit < scale) {
    const mark = h("div", { class: "limit", title: `there is ${bytes(limit)}` });
    mark.style.left = `${100 * limit / scale}%`;
    element.append(mark);
  }
  return h("div", { class: "bar-row" }, h("span", {}, label), element, h("span", { class: "number" }, bytes(total)));
}

// A memory plan's peak: [[category, bytes, tone]], largest first; categories without bytes are left out. A category has
// the same tone in every plan.
export function parts(plan) {
  return Object.entries(plan.peak).map(([name, size], i) => [name, size, name === "unused" ? "none" : i])
    .filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1]);
}

// What the tones stand for; of what is not in the plan the name alone.
export const keys = (list, unplanned = []) => h("div", { class: "keys" }, [...list, ...unplanned.map(([name, , tone]) => [name, null, tone])].map(([name, size, tone]) =>
  h("span", { class: `t${tone}` }, size === null ? words(name) : `${words(name)} ${bytes(size)}`)));
