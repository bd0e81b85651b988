// main: which page the address names, the session, the theme, the keys.
import { get, onSignedOut, request } from "/dashboard/api.js";
import { fill, loading } from "/dashboard/dom.js";
import * as live from "/dashboard/live.js";
import { compare } from "/dashboard/page_compare.js";
import { experiment } from "/dashboard/page_experiment.js";
import { experiments } from "/dashboard/page_experiments.js";
import { job } from "/dashboard/page_job.js";
import { jobs } from "/dashboard/page_jobs.js";
import { machine } from "/dashboard/page_machine.js";
import { signin } from "/dashboard/page_signin.js";
import { submit } from "/dashboard/page_submit.js";

const byId = (id) => document.getElementById(id);
const view = byId("view");
let leave = null; // ends what the page shown has begun
let session = null;

// A page is a function (view, argument, session, more) that fills the view and returns what ends it. Of an address the first
// word names the page, the second may name another one that belongs to it; more is the third.
const PAGES = { jobs, submit, experiments, machine, compare };

function show() {
  leave?.();
  leave = null;
  if (session === null) return;
  const [name, argument, more] = location.hash.replace(/^#\/?/, "").split("/");
  const made = name === "experiments" && argument === "new";
  const page = name === "jobs" && argument ? job : made ? experiment : PAGES[name] ?? jobs;
  for (const link of document.querySelectorAll("#nav a"))
    if (link.getAttribute("href") === `#/${PAGES[name] ? name : "jobs"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  document.title = "Ithaca";
  fill(view, loading());
  leave = page(view, made ? more : argument, session, more);
}

function setSession(value, said) {
  session = value;
  byId("nav").hidden = byId("signout").hidden = value === null;
  if (value !== null) {
    live.start(checkSession);
    show();
    return;
  }
  live.stop();
  leave?.();
  leave = null;
  byId("live").textContent = "";
  delete byId("live").dataset.state;
  signin(view, setSession, said);
}

// Before a lost stream is opened anew: false when the session has ended. A daemon that is away says nothing about it.
async function checkSession() {
  try {
    await get("/v1/session");
    return true;
  } catch (error) {
    return error.status !== 401;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("themechange"));
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const ownTheme = () => localStorage.getItem("theme") ?? (dark.matches ? "dark" : "light");
setTheme(ownTheme());
dark.addEventListener("change", () => setTheme(ownTheme()));
byId("theme").addEventListener("click", () => {
  localStorage.setItem("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  setTheme(ownTheme());
});

live.listen((kind) => {
  if (kind !== "open" && kind !== "lost") return;
  byId("live").dataset.state = kind === "open" ? "live" : "lost";
  byId("live").textContent = kind === "open" ? "live" : "no connection";
});

// Keys: j jobs, n new job, e experiments, m machine, ? is left to the browser. Not while something is typed.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || session === null || event.target.closest("input, select, textarea")) return;
  const page = { j: "jobs", n: "submit", e: "experiments", m: "machine" }[event.key];
  if (page) location.hash = `#/${page}`;
});

byId("skip").addEventListener("click", (event) => { event.preventDefault(); view.focus(); });
byId("signout").addEventListener("click", async () => {
  await request("DELETE", "/v1/session").catch(() => {});
  setSession(null);
});
addEventListener("hashchange", () => { show(); scrollTo(0, 0); view.focus({ preventScroll: true }); });
onSignedOut(() => { if (session !== null) setSession(null, "Your session has ended: it was signed out elsewhere, or its token does not count any more."); });

get("/v1/session").then(setSession, () => setSession(null));
