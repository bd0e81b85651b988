// Times of the dashboard in Chromium; tests/bench/bench_dashboard.py prepares the daemon and starts it.
//   node bench.mjs <url> <token> <browser> <job with points> <jobs in the list> <rounds>
// Prints one line of JSON: {name: [milliseconds, ...]}. "paint" is what the browser calls first-contentful-paint, "whole"
// the time from opening the address to the last row or chart; an interaction is timed by the browser itself (event
// timing: from the input to the next frame that shows it, in steps of 8 ms).
import { chromium } from "playwright-core";

const [url, token, program, job, jobs, rounds] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const times = {};
const keep = (name, ms) => (times[name] ??= []).push(Math.round(10 * ms) / 10);

async function open() {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(url);
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
  await page.goto("about:blank");
  return page;
}

// A page by its address, with an empty cache of the page's own kind: a fresh document.
async function visit(page, name, hash, done) {
  const start = performance.now();
  await page.goto(`${url}/#/${hash}`);
  await done();
  keep(`${name}, whole`, performance.now() - start);
  keep(`${name}, paint`, await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  await page.evaluate(() => {
    window.longest = 0;
    new PerformanceObserver((list) => { for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration); })
      .observe({ type: "event", durationThreshold: 16 });
  });
}

// The longest event of what is done.
async function act(page, name, doing) {
  await page.evaluate(() => { window.longest = 0; });
  await doing();
  await page.waitForTimeout(400);
  keep(name, await page.evaluate(() => window.longest));
}

// In the page: presses the button until so many rows are there; the time of each press to the frame that shows its rows.
async function olderPages(jobs) {
  const count = () => document.querySelectorAll("tbody tr").length, frame = () => new Promise(requestAnimationFrame);
  const took = [];
  while (count() < jobs) {
    const start = performance.now(), had = count();
    [...document.querySelectorAll("button")].find((one) => one.textContent === "Older jobs").click();
    while (count() === had) await frame();
    await frame();
    took.push(performance.now() - start);
  }
  return took;
}

for (let round = 0; round < Number(rounds); round++) {
  const page = await open();
  const rows = page.locator("tbody tr");
  await visit(page, "jobs", "jobs", () => rows.nth(49).waitFor());
  for (const ms of await page.evaluate(olderPages, Number(jobs))) keep("jobs: 50 older ones", ms);
  await act(page, "jobs, all of them: a box ticked", () => rows.nth(3).getByRole("checkbox").click());
  await act(page, "jobs, all of them: the theme changed", () => page.locator("#theme").click());
  await page.goto("about:blank");
  await visit(page, "job", `jobs/${job}`, () => page.locator("[aria-label^='GPU temperature'] canvas").first().waitFor());
  await act(page, "job: smoothing moved", async () => { await page.locator("#smoothing").focus(); await page.keyboard.press("ArrowRight"); });
  await act(page, "job: log scale", () => page.locator("#log").click());
  await act(page, "job: zoomed by key", async () => { await page.locator(".chart").first().focus(); await page.keyboard.press("+"); });
  await act(page, "job: the theme changed", () => page.locator("#theme").click());
  await page.context().close();
}
await browser.close();
console.log(JSON.stringify(times));
