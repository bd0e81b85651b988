// The dashboard by keys alone, with a job of 2,000 steps some of whose values are not finite, on GPUs that a file plays:
// its charts, memory by category, zoom; then the queue: drain, submit, change, hold, cancel.
import assert from "node:assert/strict";
import { allowed, browser, clean, context, end, has, page, phone, shot, step, tabTo, token, until, url } from "./browser.mjs";

const job = process.argv[6];
const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
const button = (name) => page.getByRole("button", { name, exact: true });
const chart = (title) => page.locator("section", { has: page.locator(`[aria-label^="${title}."]`) }).locator(".chart");
const axis = (title) => chart(title).locator(".dygraph-axis-label-x").allTextContents();
const fact = (name) => page.locator("dl.facts div", { has: page.locator("dt", { hasText: name }) }).locator("dd").first().textContent();

step("signs in and finds the job");
allowed(true);
await page.goto(url);
await page.getByLabel("Token").waitFor();
await page.keyboard.type(token); // it has the focus
await press("Enter");
await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
allowed(false);
let points = 0;
page.on("response", async (answer) => {
  if (answer.url().includes("/metrics?")) for (const one of (await answer.json()).data) points = Math.max(points, one.points.length);
});
await tabTo(page.locator(`a[href="#/jobs/${job}"]`));
await press("Enter");
await page.getByRole("heading", { name: "Events" }).waitFor();
await chart("GPU temperature").locator("canvas").first().waitFor();

step("2,000 steps, thinned; values that are not finite are gaps with a mark");
assert.ok(points > 400 && points <= 1200, `${points} points of a series`);
await has("Not finite at step 700, 1500 to 1506"); // of a bucket of steps the first
// Columns of the chart's canvas that are red all the way down, and those at whose right no line goes on.
const red = () => chart("Loss").locator("canvas").first().evaluate((canvas) => {
  const color = getComputedStyle(document.documentElement).getPropertyValue("--bad").trim();
  const want = [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const columns = [];
  for (let x = 0; x < width; x++) {
    let count = 0;
    for (let y = 0; y < height; y++) count += want.every((value, i) => Math.abs(data[4 * (y * width + x) + i] - value) < 8) ? 1 : 0;
    if (count > height / 2) columns.push(x / width);
  }
  return columns;
});
const marks = await red();
const near = (share) => marks.some((at) => Math.abs(at - share) < 0.03);
assert.ok(marks.length >= 2 && marks.length <= 6 && near(0.19 + 0.78 * 0.35) && near(0.19 + 0.78 * 0.75), `marks at ${marks}`);
assert.equal(await page.locator(".bar-row").count(), 3);
assert.match(await page.locator(".bar").nth(1).getAttribute("aria-label"), /rank 0: .*states .*attention .*driver and others 5\.0 GiB/);
for (const title of ["Loss by position", "Validation loss by position"]) await chart(title).locator("canvas").first().waitFor();
await has("steps 1 to ");
await clean("history");
await shot("history");

step("zoom, smoothing and scale by keys");
const whole = await axis("Loss");
await tabTo(chart("Loss"));
await press("+", "+", "ArrowRight");
await until(async () => (await axis("Loss")).join() !== whole.join());
assert.deepEqual(await axis("Gradient norm"), await axis("Speed")); // only that one is zoomed
await press("0");
await until(async () => (await axis("Loss")).join() === whole.join());
await page.keyboard.press("Shift+Tab");
await tabTo(page.locator("#smoothing"));
await page.locator("#smoothing").evaluate((one) => one.scrollIntoView());
const { y } = await page.locator("#smoothing").boundingBox(), { height: header } = await page.locator("header").boundingBox();
assert.ok(y >= header, `what is scrolled to is at ${y}, under a header of ${header}`);
await press("End");
await tabTo(page.locator("#log"));
await press("Space");
await shot("history-smoothed");
await press("Space");

step("drains machine and GPU, the focus stays where it was");
await page.evaluate(() => document.activeElement.blur());
await press("m");
await tabTo(button("Drain GPU 1"));
await press("Enter");
await page.locator(".badge", { hasText: "drained" }).waitFor();
assert.equal(await page.evaluate(() => document.activeElement.textContent), "Undrain GPU 1");
await press("Enter");
await button("Drain GPU 1").waitFor();
await page.locator("#skip").focus();
await tabTo(button("Drain the machine"));
await press("Enter");
await has("Drained: no job starts");
await clean("machine with GPUs");
await shot("machine-gpus");

step("submits, changes, holds, cancels");
await page.evaluate(() => document.activeElement.blur());
await press("n");
await tabTo(page.locator("#model"));
await page.keyboard.type("tiny-llama");
await tabTo(page.locator("#field-seq_len"));
await page.keyboard.type("128");
await has("Peak of a rank");
await tabTo(button("Submit job"));
await press("Enter");
await has("Waits: ");
await shot("waits");
await tabTo(button("Hold"));
await press("Enter");
await button("Release").waitFor();
assert.equal(await page.evaluate(() => document.activeElement.textContent), "Release");
await has("held");
await tabTo(page.locator("summary", { hasText: "Change" }));
await press("Enter");
await tabTo(page.locator("#field-priority"));
await press("Control+a");
await page.keyboard.type("high");
await has("A whole number");
await press("Control+a");
await page.keyboard.type("7");
await tabTo(page.locator("#field-tags"));
await page.keyboard.type("night, long");
await press("Enter");
await has("Changed.");
await until(async () => (await fact("Priority")) === "7" && (await page.locator(".tags bdi").allTextContents()).join() === "night,long");
await clean("waiting job");
await shot("change");
page.once("dialog", (dialog) => dialog.accept());
await page.locator("#skip").focus();
await tabTo(button("Cancel job"));
await press("Enter");
await page.locator(".badge", { hasText: "cancelled" }).first().waitFor();

step("a job that was removed elsewhere is gone at the next touch");
const ask = (method, path, body) => fetch(url + path, { method, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }, body });
await button("Delete").waitFor();
await ask("DELETE", `/v1/fine_tuning/${await page.evaluate(() => location.hash.slice(2))}`);
allowed(true);
page.once("dialog", (dialog) => dialog.accept());
await button("Delete").click();
await page.getByRole("link", { name: "All jobs" }).waitFor();
assert.ok(await button("Delete").isHidden());

step("what is not there is said; on a phone");
await page.goto(`${url}/#/jobs/ftjob-none`);
await page.getByRole("alert").waitFor();
await page.goto(`${url}/#/compare/${job},ftjob-none`);
await page.getByRole("alert").waitFor();
await chart("Gradient norm").locator("canvas").first().waitFor(); // of the one that is there
await page.waitForTimeout(100);
allowed(false);
await page.locator("#theme").click();
await page.goto(`${url}/#/jobs/${job}`);
await chart("GPU temperature").locator("canvas").first().waitFor();
await shot("history-dark");
await phone([["history", `jobs/${job}`], ["gpus", "machine"]]);

step("a tab that nobody looks at gives its connection back, and takes one when it is looked at");
const tab = await context.newPage(), streams = [];
tab.on("request", (request) => { if (request.url().endsWith("/v1/stream")) streams.push("begun"); });
tab.on("requestfailed", (request) => { if (request.url().endsWith("/v1/stream")) streams.push("ended"); });
const look = (hidden) => tab.evaluate((value) => {
  Object.defineProperty(document, "hidden", { value, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}, hidden);
await tab.clock.install();
await tab.goto(`${url}/#/machine`);
await tab.locator("#live[data-state=live]").waitFor();
await look(true);
await tab.clock.fastForward(21000);
await until(() => streams.join() === "begun,ended");
await look(false);
await until(() => streams.join() === "begun,ended,begun");
await tab.locator("#live[data-state=live]").waitFor();

step("a clock that is wrong; a token that ends while its page is open");
const guest = await (await ask("POST", "/v1/tokens", JSON.stringify({ name: "guest", user: "guest" }))).json();
const other = await (await browser.newContext()).newPage();
await other.clock.install({ time: Date.now() + 86400000 });
await other.goto(`${url}/#/machine`);
await other.getByLabel("Token").fill(guest.token);
await other.keyboard.press("Enter");
await other.getByText("Nothing waits.").waitFor();
const told = await other.evaluate(async (at) => (await import("/dashboard/text.js")).until(at), Date.now() / 1000 + 150);
assert.match(told, /^2 min (2\d|3[01]) s$/, "by the daemon's clock");
await ask("DELETE", `/v1/tokens/${guest.id}`);
await other.getByText("Your session has ended").waitFor();
await other.getByLabel("Token").fill(token);
await other.keyboard.press("Enter");
await other.getByText("Nothing waits.").waitFor(); // where it was

step("without dygraphs there are tables");
const plain = await context.newPage();
await plain.route("**/dygraph.min.js", (route) => route.fulfill({ status: 404 }));
await plain.goto(`${url}/#/jobs/${job}`);
await plain.getByText("Charts need dygraphs").waitFor();
await plain.locator("[aria-label^='Loss.'] tbody tr").nth(4).waitFor();
assert.equal(await plain.locator("[aria-label^='Loss.'] tbody tr").last().locator("td").first().textContent(), "2,000");
await end();
