// OpenAI's own client, unchanged, against a daemon: each thing its users do with fine-tuning, once.
//     node sdk.mjs URL TOKEN GATE FILE     GATE: the step gate (tests/e2e/ithaca_e2e.py); FILE: training data
import assert from "node:assert/strict";
import * as buffer from "node:buffer";
import { createHash } from "node:crypto";
import { createReadStream, readFileSync, renameSync, unlinkSync, writeFileSync } from "node:fs";

globalThis.File ??= buffer.File; // Node 18, as the client's own error asks
const { default: OpenAI, APIError, toFile } = await import("openai");

const [url, apiKey, gate, path] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, timeout: 60_000 });
const jobs = client.fineTuning.jobs;

// No job begins a step above this one; null: all go on.
function hold(step) {
  if (step === null) return unlinkSync(gate);
  writeFileSync(`${gate}.new`, `${step}\n`);
  renameSync(`${gate}.new`, gate);
}

async function until(what, question) {
  for (const end = Date.now() + 60_000; Date.now() < end; await new Promise((done) => setTimeout(done, 50))) {
    const answer = await question();
    if (answer) return answer;
  }
  assert.fail(`${what}: not within 60 s`);
}

const all = async (pages) => {
  const items = [];
  for await (const item of pages) items.push(item);
  return items;
};

const refused = (promise, kind, status, code, param = null) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof OpenAI[kind] && error instanceof APIError, `${error}`);
    assert.deepEqual([error.status, error.code, error.param], [status, code, param]);
    assert.match(error.requestID, /^req_/);
    assert.ok(error.message.length > status.toString().length + 10, error.message);
    return true;
  });

async function models() {
  const names = (await all(client.models.list())).map((model) => model.id);
  assert.ok(names.includes("tiny-llama"), `${names}`);
  assert.equal((await client.models.retrieve("tiny-llama")).object, "model");
  await refused(client.models.retrieve("none"), "NotFoundError", 404, "not_found", "model");
}

async function files() {
  const made = [];
  for (let i = 0; i < 5; i++) {
    const file = await toFile(Buffer.from(`{"text":"${i}"}\n`), `${i}.jsonl`);
    made.push(await client.files.create({ file, purpose: "fine-tune", expires_after: { anchor: "created_at", seconds: 3600 } }));
  }
  assert.equal(made[0].expires_at - made[0].created_at, 3600);
  const pages = await client.files.list({ limit: 2, purpose: "fine-tune", order: "asc" });
  assert.ok(pages.hasNextPage());
  assert.deepEqual((await all(pages)).map((file) => file.id), made.map((file) => file.id));
  assert.equal((await client.files.waitForProcessing(made[0].id)).status, "processed");
  const content = await client.files.content(made[3].id);
  let streamed = "";
  for await (const piece of content.body) streamed += Buffer.from(piece).toString();
  assert.equal(streamed, '{"text":"3"}\n');
  for await (const file of client.files.list({ limit: 2 })) {  // whose page is deleted when the next one is asked for
    assert.equal((await client.files.delete(file.id)).deleted, true);
  }
  assert.deepEqual(await all(client.files.list()), []);
  await refused(client.files.retrieve(made[0].id), "NotFoundError", 404, "not_found");
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 }); // told so, not cut off as it sends
  const much = await toFile(Buffer.alloc(8 << 20, "x"), "much.jsonl");
  await refused(stranger.files.create({ file: much, purpose: "fine-tune" }), "AuthenticationError", 401, "invalid_api_key");
  await refused(client.files.create({ file: await toFile(Buffer.from("x"), "x"), purpose: "batch" }),
    "BadRequestError", 400, "invalid_value", "purpose");
}

// The training file in three parts, sent out of order.
async function upload() {
  const bytes = readFileSync(path);
  const cuts = [0, 1000, 5000, bytes.length];
  const upload = await client.uploads.create({
    bytes: bytes.length, filename: "train.jsonl", mime_type: "application/jsonl", purpose: "fine-tune",
  });
  assert.equal(upload.status, "pending");
  const ids = [];
  for (const i of [2, 0, 1]) {
    const data = await toFile(bytes.subarray(cuts[i], cuts[i + 1]), "part");
    ids[i] = (await client.uploads.parts.create(upload.id, { data })).id;
  }
  await refused(client.uploads.complete(upload.id, { part_ids: ids.slice(1) }), "BadRequestError", 400, "invalid_value",
    "part_ids");
  const md5 = createHash("md5").update(bytes).digest("hex");
  await refused(client.uploads.complete(upload.id, { part_ids: [ids[1], ids[0], ids[2]], md5 }), "BadRequestError", 400,
    "invalid_value", "md5");
  const done = await client.uploads.complete(upload.id, { part_ids: ids, md5 });
  assert.equal(done.status, "completed");
  assert.equal(await (await client.files.content(done.file.id)).text(), bytes.toString());
  const other = await client.uploads.create({ bytes: 1, filename: "a", mime_type: "text/plain", purpose: "fine-tune" });
  assert.equal((await client.uploads.cancel(other.id)).status, "cancelled");
  return done.file.id;
}

// Created, paused at a step, resumed and followed to its result.
async function train(training_file) {
  hold(2);
  const created = await jobs.create({
    model: "tiny-llama", training_file, suffix: "sdk", seed: 7, metadata: { team: "a b", run: "1" },
    method: { type: "supervised", supervised: { hyperparameters: { n_epochs: "auto", batch_size: 2 } } },
    ithaca: { seq_len: 128, max_steps: 4, save: { every_steps: 1 } },
  });
  assert.deepEqual([created.object, created.status, created.error], ["fine_tuning.job", "validating_files", null]);
  assert.deepEqual(created.metadata, { team: "a b", run: "1" });
  const at = async () => (await jobs.retrieve(created.id)).ithaca;
  await until("the job holds at step 2", async () => (await at()).steps_done >= 2);
  assert.equal((await jobs.pause(created.id)).status, "paused");
  const checkpoints = await all(jobs.checkpoints.list(created.id, { limit: 1 }));
  assert.deepEqual(checkpoints.map((one) => one.step_number), [2, 1]);
  assert.ok(checkpoints[0].metrics.train_loss > 1, "a checkpoint's loss");
  assert.equal((await jobs.resume(created.id)).status, "queued");
  hold(null);
  const job = await until("the job ends", async () => {
    const job = await jobs.retrieve(created.id);
    return ["succeeded", "failed", "cancelled"].includes(job.status) && job;
  });
  assert.equal(job.status, "succeeded", JSON.stringify(job.error));
  assert.ok(job.trained_tokens > 100 && job.finished_at >= job.created_at);
  return job;
}

async function look(job) {
  const events = await all(jobs.listEvents(job.id, { limit: 2 }));
  assert.ok(events.length > 4);
  assert.equal(events.at(-1).object, "fine_tuning.job.event");
  assert.equal(new Set(events.map((event) => event.id)).size, events.length);
  const found = async (metadata) => (await all(jobs.list({ limit: 1, metadata }))).map((one) => one.id);
  assert.deepEqual(await found({ team: "a b" }), [job.id]);
  assert.deepEqual(await found({ team: "a b", run: "2" }), []);
  assert.deepEqual(await found(null), []);
  const [result] = job.result_files;
  assert.equal((await client.files.retrieve(result)).purpose, "fine-tune-results");
  const lines = (await (await client.files.content(result)).text()).trimEnd().split("\n");
  assert.match(lines[0], /^step,train_loss,train_mean_token_accuracy,valid_loss,/);
  assert.deepEqual(lines.slice(1).map((line) => line.split(",")[0]), ["1", "2", "3", "4"]);
  assert.ok(lines.slice(1).every((line) => Number(line.split(",")[1]) > 1), lines.join("\n"));
  const chat = await client.chat.completions.create({
    model: job.fine_tuned_model, max_tokens: 4, messages: [{ role: "user", content: "a" }],
  });
  assert.equal(chat.choices[0].message.role, "assistant");
}

async function ends(training_file, job) {
  await refused(jobs.cancel(job.id), "BadRequestError", 400, "invalid_state");
  await refused(jobs.create({ model: "none", training_file }), "NotFoundError", 404, "not_found", "model");
  await refused(jobs.create({ model: "tiny-llama", training_file, ithaca: { gpu: 1 } }), "BadRequestError", 400,
    "unknown_parameter", "ithaca.gpu");
  hold(0);
  const other = await jobs.create({ model: "tiny-llama", training_file, ithaca: { seq_len: 128 } });
  assert.deepEqual((await all(jobs.list({ metadata: null }))).map((one) => one.id), [other.id]);
  assert.equal((await jobs.cancel(other.id)).status, "cancelled");
  assert.equal((await jobs.retrieve(other.id)).status, "cancelled");
  const page = await jobs.list({ limit: 1 });
  assert.deepEqual([page.data[0].id, page.has_more], [other.id, true]);
  for (const one of [job, other]) {
    const deleted = await client.delete(`/fine_tuning/jobs/${one.id}`);
    assert.equal(deleted.deleted, true);
    await refused(jobs.retrieve(one.id), "NotFoundError", 404, "not_found");
  }
  await refused(client.files.retrieve(job.result_files[0]), "NotFoundError", 404, "not_found");
  await refused(new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" }).files.list(), "AuthenticationError", 401,
    "invalid_api_key");
}

await models();
await files();
const training_file = await upload();
const fromStream = await client.files.create({ file: createReadStream(path), purpose: "fine-tune" }); // chunked
assert.equal(fromStream.bytes, readFileSync(path).length);
const job = await train(training_file);
await look(job);
await ends(training_file, job);
console.log(`openai ${client.constructor.name} on node ${process.version}: all as its users expect`);
