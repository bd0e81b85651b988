// browser: what the walks share: a page in Chromium, and what is asked of every page. A walk fails on the first thing that
// is not so, on any console error, and on what axe-core finds.
//   node walk_<name>.mjs <url> <token> <browser> <folder for screenshots, or ->
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const WAIT_MS = 30000; // tests of others may run beside it
export const [url, token, program, shots] = process.argv.slice(2);
const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

// What a browser cannot do, test_browser.py does.
const said = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export const ask = async (what) => { console.log(`ask ${what}`); return (await said.next()).value; };

export const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
export const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
export const page = await context.newPage();
page.setDefaultTimeout(WAIT_MS);

let expected = false;
const errors = [];
page.on("console", (message) => { if (message.type() === "error" && !expected) errors.push(message.text()); });
page.on("pageerror", (error) => errors.push(String(error)));
// Whether the browser may report failed requests from now: the daemon is away, or refuses.
export const allowed = (may) => { expected = may; };

export const step = (name) => console.log(`${(performance.now() / 1000).toFixed(1)} s  ${name}`);
export const shot = async (name) => { if (shots !== "-") await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true }); };
export const has = (text) => page.getByText(text, { exact: false }).first().waitFor();

// waitForFunction() is forbidden by the page's policy.
export async function until(question) {
  for (const end = performance.now() + WAIT_MS; !(await question());) {
    assert.ok(performance.now() < end, `not in time: ${question}`);
    await page.waitForTimeout(50);
  }
}

// The page's policy forbids scripts of others; evaluate() is the driver's own door.
export async function clean(name) {
  await page.evaluate(readFileSync(axe, "utf8"));
  const found = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }));
  assert.deepEqual(found.violations.map((one) => `${name}: ${one.id}: ${one.nodes[0].html.slice(0, 200)}`), []);
}

// Pages [[name, address]] at a phone's width: nothing is wider, and axe-core finds nothing.
export async function phone(pages) {
  await page.setViewportSize({ width: 375, height: 800 });
  for (const [name, hash] of pages) {
    await page.goto(`${url}/#/${hash}`);
    await page.locator("h1").waitFor();
    await page.waitForTimeout(400);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${name} is wider than a phone`);
    await clean(`phone, ${name}`);
    await shot(`phone-${name}`);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
}

// Presses Tab until something has the focus.
export async function tabTo(locator) {
  await locator.waitFor();
  for (let presses = 0; presses < 120; presses++) {
    if (await locator.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`no way by keys to ${locator}`);
}

export async function end() {
  assert.deepEqual(errors, []);
  await browser.close();
  step("all is well");
  process.exit(0);
}
