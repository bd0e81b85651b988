#!/usr/bin/python3
"""Our encoder against reference encoders on a seeded corpus, string by string."""
import sys

from reference import compare

if __name__ == "__main__":
    sys.exit(compare("encode.mjs", "compare_tokens",
                     {"llama3": 100000, "qwen3": 100000, "llama3-second": 5000, "gpt2": 20000}))
