// corpus: seeded strings that try a tokenizer where tokenizers differ. strings(seed, count) is the same for the same
// seed everywhere; no string holds the text of a special token or an unpaired surrogate.

// mulberry32: a small generator of 32-bit numbers, enough for choosing test strings.
export function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  const below = (bound) => next() % bound;
  const pick = (list) => list[below(list.length)];
  return { next, below, pick };
}

const range = (first, last) => (r) => String.fromCodePoint(first + r.below(last - first + 1));
const words = (list) => (r) => r.pick(list);
const repeat = (make, most) => (r) => {
  let text = "";
  for (let n = 1 + r.below(most); n > 0; n--) text += make(r);
  return text;
};

// Scripts: letters that Unicode had before version 14, so that every engine knows them.
const scripts = [
  range(0x61, 0x7a), range(0x41, 0x5a), range(0xc0, 0x17e), range(0x391, 0x3a1), range(0x3b1, 0x3c9),
  range(0x410, 0x44f), range(0x5d0, 0x5ea), range(0x627, 0x64a), range(0x905, 0x94d), range(0xe01, 0xe3a),
  range(0x10d0, 0x10f0), range(0x1100, 0x1112), range(0x1161, 0x1175), range(0x11a8, 0x11c2), range(0x1e00, 0x1eff),
  range(0x3041, 0x3096), range(0x30a1, 0x30fa), range(0x4e00, 0x9fa5), range(0xac00, 0xd7a3), range(0xf900, 0xfa2d),
  range(0x20000, 0x2a6d6), range(0x1d400, 0x1d454),
];
const marks = [range(0x300, 0x36f), range(0x591, 0x5bd), range(0x64b, 0x652), words(["\u093c", "\u094d", "\u3099",
  "\u309a", "\u0344", "\u20d0", "\u0338", "\ufe0f", "\u200d"])];
const singles = words(["\u212b", "\u2126", "\u0958", "\u0340", "\u0341", "\u0343", "\u0374", "\u037e", "\u0387",
  "\u1f71", "\u2000", "\u2329", "\ufb1d", "\ufb2a", "\ud834\udd5e", "\u0f43", "\u1e9b\u0323", "\ufb01"]);
const digits = [range(0x30, 0x39), range(0x660, 0x669), range(0x966, 0x96f), words(["\u00bd", "\u2167", "\u3007",
  "\u2460", "\u00b2", "\ud835\udfd8"])];
const spaces = words([" ", " ", " ", "  ", "\t", "\n", "\n", "\r\n", "\r", "\u000b", "\u000c", "\u0085", "\u00a0",
  "\u1680", "\u180e", "\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u3000", "\ufeff"]);
const controls = [range(0x00, 0x1f), range(0x7f, 0x9f)];
const punctuation = words([..."!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'", "...", "->", "=>", "::", "//", "/*", "*/", "==",
  "!=", "&&", "||", "</", "/>", "\u2018", "\u2019", "\u201c", "\u00ab", "\u3001", "\u3002", "\uff01", "\u20ac"]);
const contractions = words(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'M", "'lL", "'D",
  "'", "''", "'x", "\u2019s"]);
const emoji = words(["\ud83d\ude00", "\u2764\ufe0f", "\ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67",
  "\ud83c\uddee\ud83c\uddf3", "\ud83d\udc4d\ud83c\udffd", "1\ufe0f\u20e3", "\u2603", "\ud83e\udd70"]);
const code = words(["int main(void)\n{\n    return 0;\n}\n", "def f(x):\n\treturn x**2\n", "for (let i = 0; i < n; i++) {",
  "\n        ", "\t\t", "if err != nil {", "return", "self.", "const", "0x7fff", "1e-5", "snake_case_name", "camelCaseName",
  "</div>\n", "SELECT * FROM t WHERE a=1;", "#include <stdio.h>\n", "\\n", "%d", "{{ x }}", "}\n\n", ");\n"]);
const english = words(["the", "of", "and", "Hello", "world", "tokenizer", "I", "it", "don't", "we'll", "ALLCAPS",
  "antidisestablishmentarianism", "zzyzx", "qwertyuiop", "e", "na\u00efve", "cafe\u0301"]);
const added = words(["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<think", "</tool_call"]);

const kinds = [
  (r) => { const one = r.pick(scripts); return repeat(one, 9)(r); },
  (r) => r.pick(scripts)(r),
  (r) => r.pick(scripts)(r) + repeat((q) => q.pick(marks)(q), 4)(r),
  (r) => { const one = r.pick(digits); return repeat(one, 9)(r); },
  (r) => { const one = spaces(r); return one.repeat(1 + r.below(9)); },
  (r) => " ", (r) => " ", spaces, singles, punctuation, contractions, emoji, code, english, english, english, added,
  (r) => r.pick(controls)(r),
  (r) => punctuation(r).repeat(1 + r.below(12)),
  (r) => r.pick(scripts)(r).repeat(1 + r.below(30)),
];

export function strings(seed, count) {
  const r = random(seed);
  const made = [];
  while (made.length < count) {
    let text = "";
    for (let n = r.below(25) === 0 ? 1 + r.below(40) : 1 + r.below(6); n > 0; n--) text += r.pick(kinds)(r);
    // The reference folds (?i:) over ASCII only; the engine it stands for, and ours, over Unicode.
    if (!text.includes("'\u017f")) made.push(text);
  }
  return made;
}
