// gpt2: GPT-2's tokenizer.json from its ranks. A token's rank is its id and its merge's place; the merge is the last
// step of merging the token's bytes by the ranks below its own.
import fs from "node:fs";

// The printable spelling of bytes.
function alphabet() {
  const spelled = [];
  let next = 256;
  for (let byte = 0; byte < 256; byte++) {
    const itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    spelled[byte] = String.fromCodePoint(itself ? byte : next++);
  }
  return spelled;
}

// The two parts that become `token` by its own merge.
function halves(token, rank, ranks) {
  const parts = [...token];
  while (parts.length > 2) {
    let best = -1;
    let lowest = rank;
    for (let i = 0; i + 1 < parts.length; i++) {
      const found = ranks.get(parts[i] + parts[i + 1]);
      if (found !== undefined && found < lowest) [best, lowest] = [i, found];
    }
    if (best < 0) throw Error(`no merge makes ${token}`);
    parts.splice(best, 2, parts[best] + parts[best + 1]);
  }
  return parts;
}

export function gpt2Json(ranksFile) {
  const spelled = alphabet();
  const ranks = new Map(); // spelling -> id
  for (const line of fs.readFileSync(ranksFile, "utf8").split("\n")) {
    const [base64, rank] = line.split(" ");
    if (rank !== undefined) ranks.set([...Buffer.from(base64, "base64")].map((b) => spelled[b]).join(""), Number(rank));
  }
  const merges = [];
  for (const [token, rank] of ranks) if ([...token].length > 1) merges.push(halves(token, rank, ranks).join(" "));
  const end = { id: 50256, content: "<|endoftext|>", single_word: false, lstrip: false, rstrip: false,
    normalized: true, special: true };
  return JSON.stringify({ version: "1.0", added_tokens: [end], normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true },
    model: { type: "BPE", vocab: { ...Object.fromEntries(ranks), "<|endoftext|>": 50256 }, merges } });
}
