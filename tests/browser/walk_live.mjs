// The dashboard with jobs that run: signs in, submits from the form, watches live, compares, cancels, reloads, loses the
// daemon and finds it again; on a phone's width, in both themes.
import assert from "node:assert/strict";
import { allowed, ask, clean, end, has, page, phone, shot, step, token, until, url } from "./browser.mjs";

step("signs in; a wrong token is refused in words");
allowed(true); // the refusal and the question before it are 401, which the browser reports
await page.goto(url);
await page.getByLabel("Token").fill("ithaca-wrong");
await page.keyboard.press("Enter");
await page.getByRole("alert").waitFor();
await clean("sign-in");
await shot("signin");
await page.getByLabel("Token").fill(token);
await page.keyboard.press("Enter");
await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
allowed(false);
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
await page.locator("summary", { hasText: "profile" }).click();
await page.locator("#field-profile").selectOption("true");
await page.locator("#field-profile-steps").fill("2, 3");
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
allowed(true);
await ask("restart");
await until(async () => (await page.locator("#live").getAttribute("data-state")) === "live");
allowed(false);
await ask("hold none");
await page.locator(".badge", { hasText: "succeeded" }).first().waitFor({ timeout: 30000 });
await has("40 of 40");
await shot("done");

step("its profile, asked for with the form, is read; another job begins with its settings");
await page.locator("summary", { hasText: "Profile" }).click();
await has("A step of a rank");
await has("Trace, for ui.perfetto.dev");
await clean("profile");
await shot("profile");
await page.getByRole("link", { name: "New job like this" }).click();
await page.getByRole("heading", { name: "New job", exact: true }).waitFor();
await until(async () => (await page.locator("#field-max_steps").inputValue()) === "40" && (await page.locator("#field-profile-steps").inputValue()) === "2, 3");

step("an experiment, from its first point to its charts");
const experiment = await ask("experiment");
await page.keyboard.press("Escape");
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("e");
await page.getByRole("link", { name: "two lengths" }).click();
await page.locator(".badge", { hasText: "finished" }).waitFor();
await until(async () => (await page.locator(".picture circle").count()) === 4);
assert.equal(await page.locator(".badge", { hasText: "succeeded" }).count(), 2);
await clean("experiment");
await shot("experiment");

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
await phone([["job", `jobs/${first}`], ["jobs", "jobs"], ["form", "submit"], ["machine", "machine"], ["experiment", `experiments/${experiment}`]]);

step("signs out");
allowed(true);
await page.getByRole("button", { name: "Sign out" }).click();
await page.getByLabel("Token").waitFor();
await end();
