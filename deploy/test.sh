#!/bin/sh
# test.sh: installs what building and testing need, builds, runs the tests, exits with their result.
#   sh deploy/test.sh          unit, backend, rank, fuzz corpus and end-to-end tests of a build with warnings as errors
#   sh deploy/test.sh --all    that, and the unit, rank and corpus tests again under AddressSanitizer and UBSan (what CI runs)
#   sh deploy/test.sh --long   that, and the long forms (clang-tidy, ThreadSanitizer, the complete matrix, storm, a
#                              file of 1 GiB, load, fuzzing: hours); outcome in tests/bench/results
#   sh deploy/test.sh --sanitized  the second part of --all alone, of a machine where the first has run once
# Runs as often as wanted. Only loopback is used; what a test starts it also ends.
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh

mode=${1:-}
case "$mode" in
"" | --all | --sanitized | --long) ;;
*)
    echo "usage: sh deploy/test.sh [--all | --sanitized | --long]" >&2
    exit 64
    ;;
esac

jobs=$(nproc)
build() { # preset; the log is shown when it fails
    { cmake --preset "$1" && cmake --build --preset "$1" -- -j "$jobs"; } >"build-$1.log" 2>&1 ||
        { cat "build-$1.log"; rm -f "build-$1.log"; return 1; }
    rm -f "build-$1.log"
}
tests() { # preset, then ctest arguments
    preset=$1
    shift
    ctest --test-dir "build/$preset" --output-on-failure "$@"
}
if [ "$mode" = --sanitized ]; then
    build debug
    tests debug -L 'unit|dist|fuzz' -j "$jobs" --repeat until-pass:2
    exit
fi

packages_install $PACKAGES_BUILD $PACKAGES_TEST
[ -z "$mode" ] || packages_install $PACKAGES_ALL
[ "$mode" != --long ] || packages_install $PACKAGES_LONG
[ -z "$mode" ] || packages_install $PACKAGES_BROWSER ||
    echo "chromium could not be installed (Ubuntu has it as a snap only): the dashboard's test is skipped" >&2
command -v npm >/dev/null 2>&1 || packages_install nodejs npm
# What tests compare with and drive the daemon with: reference encoders, OpenAI's client, a browser's driver. Without them
# (no registry) the tests that need them are skipped.
for folder in tests/reference tests/sdk tests/browser; do
    [ "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ] ||
        (cd "$folder" && npm ci --no-audit --no-fund --loglevel=error) ||
        echo "npm ci failed: the tests in $folder that need its packages are skipped" >&2
done

[ -z "$mode" ] || [ -x build/tools/usr/bin/promtool ] || packages_unpack prometheus build/tools ||
    echo "prometheus could not be fetched: the tests that need it are skipped" >&2

# Tests of one process run side by side. The others depend on how fast a shared machine is: in the release build they run
# one by one, and one that fails runs a second time, the output of both shown. They mostly wait: meanwhile the sanitized
# build and its tests take what time there is.
single='unit|backend|fuzz|golden|reference|tidy'

echo "== release build, all tests"
build ci
tests ci -L "$single" -j "$jobs"
if [ -n "$mode" ]; then
    nice -n 19 sh deploy/test.sh --sanitized >build/sanitized.log 2>&1 &
    sanitized=$!
fi
tests ci -LE "$single" --repeat until-pass:2 || { wait; exit 1; }
if [ -n "$mode" ]; then
    echo "== AddressSanitizer and UndefinedBehaviorSanitizer"
    wait "$sanitized" || { cat build/sanitized.log; exit 1; }
    tail -n 20 build/sanitized.log
fi
if [ "$mode" = --long ]; then
    echo "== clang-tidy"
    sh tests/tidy/clang_tidy.sh build/ci
    echo "== ThreadSanitizer"
    mkdir -p tests/bench/results
    build tsan
    OMP_NUM_THREADS=1 tests tsan -L 'unit|dist' --repeat until-pass:2 2>&1 | tee tests/bench/results/tsan.txt
    grep -q '100% tests passed' tests/bench/results/tsan.txt
    echo "== lengths of thousands of tokens that divide nothing, and the complete matrix of layouts"
    build/ci/tests/test_stack_cases --long
    OMP_NUM_THREADS=1 build/ci/tests/test_stack_parity --complete 2>&1 | tee tests/bench/results/stack.txt
    grep -q ' 0 bad' tests/bench/results/stack.txt
    export ITHACA_BUILD_DIR=$PWD/build/ci
    echo "== storm, 2,000 rounds"
    /usr/bin/python3 tests/fault/storm.py --rounds 2000 >tests/bench/results/storm.txt 2>&1 ||
        { cat tests/bench/results/storm.txt; exit 1; }
    echo "== twenty minutes of jobs that come and go"
    /usr/bin/python3 tests/fault/soak.py >tests/bench/results/soak.txt 2>&1 ||
        { cat tests/bench/results/soak.txt; exit 1; }
    echo "== ranks that die, hang and run out of memory; cancel, pause and visible GPUs"
    { /usr/bin/python3 tests/fault/drill_ranks.py && /usr/bin/python3 tests/fault/drill_service.py; } \
        >tests/bench/results/drill.txt 2>&1 || { cat tests/bench/results/drill.txt; exit 1; }
    echo "== every system call of the daemon fails in turn"
    /usr/bin/python3 tests/fault/failing_calls.py --all >tests/bench/results/calls.txt 2>&1 ||
        { cat tests/bench/results/calls.txt; exit 1; }
    echo "== a training file of 1 GiB, and three minutes of load"
    /usr/bin/python3 tests/fault/large_input.py >tests/bench/results/large_input.txt
    /usr/bin/python3 tests/fault/large_input.py --mebibytes 200 --one-line >>tests/bench/results/large_input.txt
    /usr/bin/python3 tests/bench/bench_api.py 15 >tests/bench/results/load.txt
    /usr/bin/python3 tests/fault/load.py --seconds 120 --connections 3000 --idle 12 >>tests/bench/results/load.txt
    echo "== fuzzing, 10 CPU-minutes a target"
    fuzzed=0
    sh tests/fuzz/run.sh 600 || fuzzed=$?
    cp build/fuzz/summary.txt tests/bench/results/fuzz.txt
    exit "$fuzzed"
fi
