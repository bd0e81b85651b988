#!/usr/bin/python3
"""Our chat templates against the models' own, run by the reference Jinja renderer, on seeded conversations."""
import sys

from reference import compare

if __name__ == "__main__":
    sys.exit(compare("render.mjs", "compare_chats",
                     dict.fromkeys(("llama3", "llama3.1", "llama3.2", "qwen2.5", "qwen3", "qwen3-second"), 200)))
