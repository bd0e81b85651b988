// text: numbers, sizes, times and states as people read them.
import { now } from "/dashboard/api.js";
import { h } from "/dashboard/dom.js";

const TONES = { running: "run", starting: "run", succeeded: "good", failed: "bad", cancelled: "warn", paused: "warn",
  pausing: "warn", preempting: "warn", cancelling: "warn", finished: "good", "does not fit": "bad", refused: "bad", fits: "good", error: "bad", warning: "warn" };
export const ENDS = ["succeeded", "failed", "cancelled"];

export const badge = (state) => h("span", { class: "badge", "data-tone": TONES[state] ?? "idle" }, state);

// What people called a thing; each by its own direction of writing.
export const tags = (list) => (list.length > 0 ? h("div", { class: "tags small soft" }, list.map((tag) => h("bdi", {}, tag))) : "");

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: size >= 1000 ? Math.ceil(Math.log10(size + 1)) : digits });
}

// How many there are: all of its digits, for number() measures.
export const whole = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

// Two units at most, and none that says 0.
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value > 0 && value < 10 ? 1 : 0)} s`;
  const two = (all, unit, part, below) => `${Math.floor(all)} ${unit}${part > 0 ? ` ${part} ${below}` : ""}`;
  if (value < 3600) return two(value / 60, "min", Math.floor(value % 60), "s");
  if (value < 86400) return two(value / 3600, "h", Math.floor((value % 3600) / 60), "min");
  return two(value / 86400, "d", Math.floor((value % 86400) / 3600), "h");
}

// A point in time, short: of today the hour, of other days the day too; all of it where the pointer rests.
export function time(unix) {
  if (!unix) return "–";
  const at = new Date(unix * 1000), today = new Date();
  const isToday = at.toDateString() === today.toDateString(), year = at.getFullYear() === today.getFullYear();
  const hour = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const day = { month: "short", day: "numeric", ...(year ? {} : { year: "numeric" }) };
  return h("time", { datetime: at.toISOString(), title: at.toLocaleString() },
    at.toLocaleString("en", isToday ? { ...hour, second: "2-digit" } : { ...day, ...hour }));
}
export const until = (unix) => (unix ? seconds(Math.max(0, unix - now())) : "–");
export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)} %`);
export const words = (name) => name.replaceAll("_", " ");
