// job_memory: the device memory of a job's ranks: by category, as it was planned and as it was taken; and by phase of a step.
import { bar, keys, parts } from "/dashboard/bars.js";
import { fill, h } from "/dashboard/dom.js";
import { bytes, words } from "/dashboard/text.js";

// What a rank took, in the plan's order and tones. What its device holds besides the arena is the driver's and the libraries'
// (and, on a shared device, others'); of an attempt that told no categories the arena is one piece.
function taken(plan, list, series, rank) {
  const arena = series.largest("arena_peak_bytes", rank), device = series.largest("device_bytes", rank) ?? 0;
  const known = parts({ peak: Object.fromEntries(Object.keys(plan.peak).map((name) => [name, series.newest(`peak_${name}_bytes`, rank) ?? 0])) });
  const place = ([name]) => (list.findIndex((one) => one[0] === name) + list.length) % list.length; // not planned: with the last
  known.sort((a, b) => place(a) - place(b));
  const rest = arena - known.reduce((sum, [, size]) => sum + size, 0);
  return [...known, [known.length > 0 ? "unused" : "arena", rest, "none"], ["driver and others", device - arena, 7]].filter(([, size]) => size > 0);
}

function drawPeak(figure, plan, series, ranks) {
  const list = parts(plan), limit = plan.device_limit_bytes;
  const measured = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => series.largest("arena_peak_bytes", rank) !== undefined)
    .map((rank) => [rank, taken(plan, list, series, rank)]);
  const unplanned = measured.flatMap(([, some]) => some).filter(([name], i, all) => !list.some((one) => one[0] === name) && all.findIndex((one) => one[0] === name) === i);
  const total = (some) => some.reduce((sum, [, size]) => sum + size, 0);
  const scale = Math.max(limit ?? 0, plan.peak_device_bytes, ...measured.map(([, some]) => total(some)));
  const host = measured.reduce((sum, [rank]) => sum + (series.largest("host_bytes", rank) ?? 0), 0);
  fill(figure, h("h2", {}, "Device memory at the peak: planned and measured"), bar("planned", list, scale, limit),
    measured.map(([rank, some]) => bar(`rank ${rank}`, some, scale, limit)), keys(list, unplanned),
    h("p", { class: "soft small" }, `The plan's peak is in ${words(plan.peak_phase)}${limit ? `; a device has ${bytes(limit)}` : ""}. `,
      `Host memory: ${bytes(plan.host_bytes)} planned in all${host ? `, ${bytes(host)} resident` : ""}.`));
}

// What the plan needs in each phase, in the order of a step; the peak's has another colour.
function phases(plan) {
  const scale = Math.max(plan.device_limit_bytes ?? 0, plan.peak_device_bytes);
  return plan.phases.map(({ phase, bytes: size }) => bar(words(phase), [["needed", size, phase === plan.peak_phase ? 1 : 0]], scale, plan.device_limit_bytes));
}

export function memoryCard() {
  const figure = h("div"), step = h("div", { class: "phases" });
  let known = null;
  const within = h("details", { ontoggle: () => { if (!step.firstChild) fill(step, phases(known)); } }, h("summary", {}, "Within a step, phase by phase"), step);
  const element = h("section", { class: "card", hidden: true }, figure, within);
  const draw = (plan, series, ranks) => {
    known = plan;
    element.hidden = plan === null;
    if (plan !== null) drawPeak(figure, plan, series, ranks);
  };
  return { element, draw };
}
