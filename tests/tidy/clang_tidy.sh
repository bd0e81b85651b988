#!/bin/sh
# clang_tidy.sh: the checks of .clang-tidy over common, daemon, worker (without CUDA) and clients; any finding fails.
#   sh tests/tidy/clang_tidy.sh [BUILD]      BUILD: a configured build folder, default build/ci; 15 minutes on 2 cores
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/ci}
find common daemon worker clients -name '*.c' ! -path 'worker/cuda/*' -print0 |
    xargs -0 -n 4 -P "$(nproc)" clang-tidy -quiet -p "$build" --warnings-as-errors='*' 2>&1 |
    { grep -E '(warning|error):' || true; } | sort -u >"$build/clang-tidy.txt"
cat "$build/clang-tidy.txt"
[ ! -s "$build/clang-tidy.txt" ]
