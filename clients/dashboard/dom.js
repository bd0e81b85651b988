// dom: elements from calls, and when they are drawn. Text only ever becomes text nodes: nothing that a user wrote is
// parsed as HTML.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const fill = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter((child) => child));

export const note = (tone, ...children) =>
  h("div", { class: `note ${tone}`, role: tone === "bad" ? "alert" : "status" }, ...children);

export const empty = (title, ...children) => h("div", { class: "empty" }, h("h2", {}, title), ...children);

export const loading = () => h("p", { class: "soft", role: "status" }, "Loading…");

export function table(heads, rows, kind = "stack") {
  return h("div", { class: "scroll" }, h("table", { class: kind },
    h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows)));
}

export const row = (heads, cells) => h("tr", { class: "row" },
  cells.map((cell, i) => h("td", { "data-label": heads[i], class: (cell ?? "–") === "–" ? "none" : null }, cell ?? "–")));

export function progress(done, total, what = "Steps") {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  const inner = h("div");
  inner.style.width = `${100 * share}%`;
  return h("div", { class: "progress", role: "progressbar", "aria-label": what, "aria-valuemin": "0",
    "aria-valuemax": String(total), "aria-valuenow": String(done) }, inner);
}

export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter((pair) => pair).map(([name, value]) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "–"))));

// However often the function that this returns is called, `call` is made so many ms after the first, never a second
// time before it has come to its end. Its end() takes back what was asked for.
export function gather(call, ms) {
  let timer = 0, busy = false, again = false, over = false;
  const ask = () => {
    if (busy) again = true;
    else if (!over) timer ||= setTimeout(run, ms);
  };
  const run = async () => {
    timer = 0;
    busy = true;
    try { await call(); } finally { busy = false; }
    if (again) ask();
    again = false;
  };
  ask.end = () => { over = true; clearTimeout(timer); };
  return ask;
}

// Changes what is in an element. What has the focus in it is found again in what is new, by its id, address, label or
// text, so that nobody who works with keys is thrown out.
function keepFocus(element, change) {
  const had = element.contains(document.activeElement) ? document.activeElement : null;
  const name = had && ["id", "href", "aria-label"].find((one) => had.hasAttribute(one));
  const same = (one) => (name ? one.getAttribute(name) === had.getAttribute(name) : one.textContent === had.textContent);
  change();
  if (had && !element.contains(had)) [...element.querySelectorAll(had.tagName)].find(same)?.focus({ preventScroll: true });
}

// As fill(), for what is drawn again and again.
export const refill = (element, ...children) => keepFocus(element, () => fill(element, ...children));

// The same for many children most of which are there already: those stay where they are.
export function arrange(element, children) {
  const stay = new Set(children);
  keepFocus(element, () => {
    for (const child of [...element.children]) if (!stay.has(child)) child.remove();
    children.forEach((child, i) => { if (element.children[i] !== child) element.insertBefore(child, element.children[i] ?? null); });
  });
}
