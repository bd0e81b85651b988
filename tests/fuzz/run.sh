#!/bin/sh
# run.sh: builds the fuzz targets with clang (preset `fuzz`) and runs each for SECONDS of CPU time.
#   sh tests/fuzz/run.sh SECONDS [noun ...]     all targets, or those named: job, wire, ...
# What is found on the way is kept in build/fuzz/corpus; an input that fails in build/fuzz/failed.
# The summary goes to stdout and to build/fuzz/summary.txt. Exits with 1 when a target failed.
set -eu
cd "$(dirname "$0")/../.."

seconds=${1:-}
case "$seconds" in
"" | *[!0-9]*)
    echo "usage: sh tests/fuzz/run.sh SECONDS [noun ...]" >&2
    exit 64
    ;;
esac
shift
[ $# -gt 0 ] || set -- $(ls tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_||; s|\.c$||')

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz >build/fuzz/build.log 2>&1 || { cat build/fuzz/build.log; exit 1; }

# Files whose string literals are the words of a format: they make the dictionary.
words_of() {
    case "$1" in
    job) ls api/job_*.def common/job_request.c ;;
    launch_plan | prepare_request) ls api/job_*.def common/"$1".c common/job_request.c ;;
    tokenizer | chat_template) ls common/tokenizer*.c common/chat_template.c ;;
    dataset_prepare) ls common/example.c common/dataset_prepare.c ;;
    safetensors | safetensors_index) ls common/safetensors.c common/dtype.h ;;
    http) ls api/routes.def daemon/http_check.c tests/fuzz/fuzz_http.c ;;
    settings) ls api/settings.def ;;
    experiment) ls api/experiment_fields.def common/experiment_spec.c ;;
    checkpoint_file) ls worker/checkpoint_file.c ;;
    *) ls common/"$1".c ;;
    esac
}
dictionary() { # one literal without spaces a line; of dotted paths also the parts
    words_of "$1" | xargs grep -oh '"[][A-Za-z0-9_./:{}-]\{2,40\}"' | tr -d '"' |
        awk '{ print; n = split($0, part, "[.]"); for (i = 1; n > 1 && i <= n; i++) if (length(part[i]) > 1) print part[i] }' |
        sort -u | sed 's/.*/"&"/'
}

TMPDIR=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/ithaca-fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM

summary=build/fuzz/summary.txt
failures=0
{
    echo "# sh tests/fuzz/run.sh $seconds"
    echo "# commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(clang --version | head -n 1)"
    echo "# cov: edges reached; ft: features; both count the target with all that it links"
    printf '%-20s %8s %12s %7s %7s  %s\n' target seconds executions cov ft result
} | tee "$summary"
mkdir -p build/fuzz/failed
for noun in "$@"; do
    mkdir -p "build/fuzz/corpus/$noun"
    dictionary "$noun" >"build/fuzz/$noun.dict"
    log=build/fuzz/$noun.log
    status=0
    ( # the soft limit ends the run in good order (fuzz.c)
        ulimit -S -t "$seconds"
        exec "build/fuzz/tests/fuzz_$noun" -dict="build/fuzz/$noun.dict" -max_len=4096 -timeout=20 \
            -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="build/fuzz/failed/$noun-" \
            "build/fuzz/corpus/$noun" "tests/fuzz/corpus/$noun"
    ) >"$log" 2>&1 || status=$?
    last=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -n 1)
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    result=ok
    if [ "$status" -ne 0 ]; then
        result="FAILED ($status), see $log"
        failures=$((failures + 1))
    fi
    printf '%-20s %8s %12s %7s %7s  %s\n' "$noun" "$seconds" "${executed:-?}" \
        "$(echo "$last" | cut -d' ' -f2)" "$(echo "$last" | cut -d' ' -f4)" "$result" | tee -a "$summary"
done
[ "$failures" -eq 0 ]
