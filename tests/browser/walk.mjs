// The dashboard in a browser, against a daemon that test_browser.py started: signs in, submits from the form, watches live,
// compares, cancels, reloads, loses the daemon and finds it again; on a phone's width, by keys alone, in both themes.
// It fails on the first thing that is not so, on any console error, and on what axe-core finds.
//   node walk.mjs <url> <token> <browser> <folder for screenshots, or ->
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [url, token, program, shots] = process.argv.slice(2);
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const said = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async (what) => { console.log(`ask ${what}`); return (await said.next()).value; };

const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light", bypassCSP: false });
const page = await context.newPage();
page.setDefaultTimeout(15000);
let away = false; // the daemon is stopped: the browser may say so
const errors = [];
page.on("console", (message) => { if (message.type() === "error" && !away) errors.push(message.text()); });
page.on("pageerror", (error) => errors.push(String(error)));

const shot = async (name) => { if (shots !== "-") await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true }); };
const has = (text) => page.getByText(text, { exact: false }).first().waitFor();

// waitForFunction() is forbidden by the page's policy.
async function until(question) {
  for (const end = performance.now() + 30000; !(await question());) {
    assert.ok(performance.now() < end, `not within 30 s: ${question}`);
    await page.waitForTimeout(50);
  }
}

// The page's policy forbids scripts of others; evaluate() is the driver's own door.
async function clean(name) {
  await page.evaluate(readFileSync(axe, "utf8"));
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  assert.deepEqual(found.violations.map((one) => `${name}: ${one.id}: ${one.nodes[0].html.slice(0, 200)}`), []);
}
const step = (name) => console.log(`${((performance.now()) / 1000).toFixed(1)} s  ${name}`);

step("signs in; a wrong token is refused in words");
await page.goto(url);
await page.getByLabel("Token").fill("ithaca-wrong");
away = true; // the refusal and the question before it are 401, which the browser reports
await page.keyboard.press("Enter");
await page.getByRole("alert").waitFor();
await clean("sign-in");
await shot("signin");
await page.getByLabel("Token").fill(token);
await page.keyboard.press("Enter");
await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
errors.length = 0;
away = false;
await has("No jobs yet");
await has("live");
await shot("empty");

step("the form: the plan follows what is typed, a wrong value is named, a job is made");
await page.keyboard.press("n");
await page.getByRole("heading", { name: "New job" }).waitFor();
await page.getByLabel("Model").selectOption("tiny-llama");
await has("Peak of a rank");
const peak = await page.locator(".plan dd").first().textContent();
await page.locator("#field-seq_len").fill("many");
await has("A whole number");
await page.locator("#field-seq_len").fill("256");
await until(async () => (await page.locator(".plan dd").first().textContent()) !== peak);
await page.locator("summary", { hasText: "memory, queue and others" }).click();
await page.locator("#field-gpus").fill("2");
await page.locator("#field-max_steps").fill("40");
await page.locator("#field-batch-sequences").fill("2");
await clean("form");
await shot("form");
await ask("hold 12");
await page.getByRole("button", { name: "Submit job" }).click();

step("the job, live");
await page.getByRole("heading", { name: "Events" }).waitFor();
const first = (await page.evaluate(() => location.hash)).split("/")[2];
await has("12 of 40");
await page.locator(".chart canvas").first().waitFor();
await has("rank 1");
await shot("job");
await clean("job");

step("zoom and smoothing survive live points; reload in mid-run");
await page.evaluate(() => scrollTo(0, 0));
const box = await page.locator(".chart").first().boundingBox();
await page.mouse.move(box.x + 120, box.y + 80);
await page.mouse.down();
await page.mouse.move(box.x + 220, box.y + 80, { steps: 5 });
await page.mouse.up();
const axis = () => page.locator(".chart").first().locator(".dygraph-axis-label-x").allTextContents();
await page.locator("#smoothing").fill("0.6");
const zoomed = await axis();
await ask("hold 24");
await has("24 of 40");
assert.deepEqual(await axis(), zoomed, "the zoom was lost");
assert.equal(await page.locator("#smoothing").inputValue(), "0.6");
await page.reload();
await has("24 of 40");

step("the daemon restarts in mid-run");
away = true;
await ask("restart");
await until(async () => (await page.locator("#live").getAttribute("data-state")) === "live");
away = false;
await ask("hold none");
await page.locator(".badge", { hasText: "succeeded" }).first().waitFor({ timeout: 30000 });
await has("40 of 40");
await shot("done");

step("a second job, compared and cancelled");
const second = await ask("submit 0");
await page.goto(`${url}/#/compare/${first},${second}`);
await has("2 jobs compared");
await page.locator(".chart canvas").first().waitFor();
await shot("compare");
await clean("compare");
await page.goto(`${url}/#/jobs/${second}`);
page.once("dialog", (dialog) => dialog.accept());
await page.getByRole("button", { name: "Cancel job" }).click();
await page.locator(".badge", { hasText: "cancelled" }).first().waitFor();

step("jobs and machine, dark, and on a phone");
await page.keyboard.press("m");
await has("Running");
await shot("machine");
await clean("machine");
await page.locator("#theme").click();
await page.keyboard.press("j");
await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
await page.locator("tbody tr").nth(1).waitFor();
await shot("jobs-dark");
await clean("jobs, dark");
await page.goto(`${url}/#/jobs/${first}`);
await page.locator(".chart canvas").first().waitFor();
await has("40 of 40");
await shot("job-dark");
await clean("job, dark");
await page.setViewportSize({ width: 375, height: 800 });
for (const [name, hash] of [["job", `jobs/${first}`], ["jobs", "jobs"], ["form", "submit"], ["machine", "machine"]]) {
  await page.goto(`${url}/#/${hash}`);
  await page.locator("h1").waitFor();
  await page.waitForTimeout(400);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name} is wider than a phone`);
  await shot(`phone-${name}`);
}

step("signs out");
away = true;
await page.getByRole("button", { name: "Sign out" }).click();
await page.getByLabel("Token").waitFor();
assert.deepEqual(errors, []);
await browser.close();
step("all is well");
process.exit(0);
