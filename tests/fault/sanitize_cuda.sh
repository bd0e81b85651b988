#!/bin/sh
# sanitize_cuda.sh [--build DIR] [TOOL ...]: the CUDA backend's tests under NVIDIA's compute-sanitizer, one line a run;
# fails when a run does. Needs a GPU. Tools: memcheck, racecheck, initcheck, synccheck; all where none is named.
#
# Operations run one test at a time (test_cuda_limits and cuBLASLt's products are left out: minutes of other people's
# kernels). racecheck and synccheck look at kernels of our own alone; training, which forks its ranks,
# runs under memcheck.
set -u
build=build/ci
if [ "${1-}" = --build ]; then
    build=$2
    shift 2
fi
[ $# -gt 0 ] || set -- memcheck racecheck initcheck synccheck
export ITHACA_CUDA_PLUGIN="${ITHACA_CUDA_PLUGIN:-$build/worker/ithaca-cuda.so}" OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# check TOOL NAME COMMAND...
check() {
    tool=$1 name=$2 start=$(date +%s)
    shift 2
    limit=300
    if timeout $limit compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 --print-limit 5 "$@" >"$log" 2>&1; then
        verdict=ok
    else
        verdict="FAILED (status $?)"
        failed=1
    fi
    echo "$tool $name: $verdict, $(($(date +%s) - start)) s"
    if [ "$verdict" != ok ]; then
        grep -E '^=========|not ok|FAILED|Error' "$log" | head -30
    fi
}

for tool in "$@"; do
    case $tool in
    racecheck) options="--launch-count 48" ;; # a sort takes seconds; the later ones are like these
    *) options= ;;
    esac
    # shellcheck disable=SC2086 # words
    check "$tool" embed $options "$build/tests/test_cuda_embed"
    case $tool in
    synccheck) options="--num-cuda-barriers 65536" ;;
    *) options= ;;
    esac
    for name in rmsnorm rope elementwise cross_entropy sums adamw many_rows; do
        # shellcheck disable=SC2086 # words
        ITHACA_TEST_FILTER=test_$name check "$tool" "ops $name" $options "$build/tests/test_cuda_ops"
    done
    case $tool in
    memcheck | initcheck) check "$tool" dropout "$build/tests/test_cuda_dropout" ;;
    *) ;;
    esac
    if [ "$tool" = memcheck ]; then
        check "$tool" attention "$build/tests/test_cuda_attention"
        check "$tool" training "$build/tests/test_cuda_train" test_llama
    else
        check "$tool" attention --kernel-regex 'kns=attention_' "$build/tests/test_cuda_attention"
    fi
done
exit $failed
