#!/bin/sh
# quickstart.sh: from a fresh Debian or Ubuntu machine to a tuned model that answers: installs, builds, starts the
# daemon, runs the example job to its end, asks base and tuned model the same questions.
#   sh deploy/quickstart.sh [--model DIR] [--data FILE] [--set FIELD=VALUE]... [--data-dir DIR] [--stop]
# --model: a Hugging Face folder instead of the built-in model; --data: a training file instead of the example's. With a
# model 20 short steps are trained: enough to see it work. --set: a field of the job (data.chat_template=chatml for a
# base model; the last of one field counts). --stop ends the daemon at the end; otherwise it stays up, and
# a later run replaces it.
set -eu
here=$PWD
cd "$(dirname "$0")/.."
. deploy/packages.sh

whole() { # the path as seen from where the script was started, links as they are named; what must be there is there
    (cd "$here" && realpath -es -- "$1") || exit 66
}

data=$PWD/build/quickstart
model=
file=
stop=no
fields=
while [ $# -gt 0 ]; do
    case "$1" in
    --data-dir)
        [ $# -ge 2 ] || { echo "error: --data-dir needs a folder" >&2; exit 64; }
        data=$2
        shift 2
        ;;
    --model)
        [ $# -ge 2 ] || { echo "error: --model needs a folder" >&2; exit 64; }
        model=$(whole "$2")
        shift 2
        ;;
    --data)
        [ $# -ge 2 ] || { echo "error: --data needs a file" >&2; exit 64; }
        file=$(whole "$2")
        shift 2
        ;;
    --set)
        [ $# -ge 2 ] || { echo "error: --set needs FIELD=VALUE" >&2; exit 64; }
        case "$2" in
        *[[:space:]*?[]*) echo "error: --set $2: set such a value with ithaca submit" >&2; exit 64 ;;
        esac
        fields="$fields --set $2"
        shift 2
        ;;
    --stop)
        stop=yes
        shift
        ;;
    *)
        echo "usage: sh deploy/quickstart.sh [--model DIR] [--data FILE] [--set FIELD=VALUE]... [--data-dir DIR] [--stop]" >&2
        exit 64
        ;;
    esac
done

echo "== 1/5 packages"
packages_install $PACKAGES_BUILD

echo "== 2/5 build"
build=$PWD/build/release
mkdir -p build
{ cmake --preset release -DBUILD_TESTING=OFF && cmake --build --preset release; } >build/quickstart-build.log 2>&1 || {
    cat build/quickstart-build.log >&2
    exit 1
}
ithacad=$build/daemon/ithacad
ithaca() { "$build/clients/ithaca" --data-dir "$data" "$@"; }

echo "== 3/5 daemon"
mkdir -p "$data"
old=$(cat "$data/quickstart.pid" 2>/dev/null || true)
if [ -n "$old" ] && [ "$(readlink "/proc/$old/exe" 2>/dev/null | sed 's/ (deleted)$//')" = "$ithacad" ]; then
    kill "$old" # the daemon of an earlier run of this script
    for _ in $(seq 100); do kill -0 "$old" 2>/dev/null || break; sleep 0.1; done
fi
port=8620
while :; do
    rm -f "$data/url"
    "$ithacad" --data-dir "$data" --port "$port" >"$data/ithacad.log" 2>&1 </dev/null &
    daemon=$!
    for _ in $(seq 100); do
        [ -s "$data/url" ] && break
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.1
    done
    [ -s "$data/url" ] && break
    status=0
    wait "$daemon" || status=$?
    if [ "$status" -eq 75 ] && grep -qi 'port\|address' "$data/ithacad.log" && [ "$port" -lt 8650 ]; then
        echo "port $port is taken, trying the next"
        port=$((port + 1))
        continue
    fi
    cat "$data/ithacad.log" >&2
    exit 1
done
echo "$daemon" >"$data/quickstart.pid"
echo "ithacad $(cat "$data/url"), process $daemon"
trap 'kill "$daemon" 2>/dev/null || true' INT TERM

echo "== 4/5 fine-tune ${model:-the built-in model} on ${file:-the example}"
questions=deploy/example/valid.jsonl
if [ -n "$file" ]; then
    set -- --training-file "$file"
    questions=$file
else
    set -- --training-file deploy/example/train.jsonl --validation-file deploy/example/valid.jsonl
fi
name=tiny-llama
if [ -n "$model" ]; then
    name=$(basename "$model" | LC_ALL=C tr -c 'A-Za-z0-9_.:\n-' '-' | sed 's/^\.*//')
    [ -d "$data/models/$name" ] && [ ! -L "$data/models/$name" ] && name=$name.local
    ln -sfn "$model" "$data/models/$name"
    set -- "$@" --model "$name" --set gpus=1 --set seq_len=1024 --set max_steps=20 --set batch.sequences=1 \
        --set optimizer.learning_rate=1e-5
else
    set -- deploy/example/job.json "$@"
    [ "$(ithaca gpus | wc -l)" -ge 2 ] || set -- "$@" --set gpus=1 # the only GPU there is
fi
# shellcheck disable=SC2086 # a list of words
job=$(ithaca submit "$@" $fields)
ithaca watch "$job"

echo "== 5/5 the same questions to the base and to the tuned model"
LC_ALL=C sed -n '1p;7p;13{p;q;}' "$questions" | # of other formats than chat lines there are none to ask
    LC_ALL=C sed -n 's/.*"role": *"user", *"content": *"\([^"\\]*\)".*/\1/p' |
    while IFS= read -r question; do
        base=$(ithaca sample --model "$name" --max-tokens 48 --prompt "$question" | LC_ALL=C tr -c '[:print:]\n' '?')
        tuned=$(ithaca sample --job "$job" --max-tokens 96 --prompt "$question") || tuned=
        printf '  Q:     %s\n  base:  %s\n  tuned: %s\n' "$question" "${base:-(nothing)}" "${tuned:-(nothing)}"
    done

echo
echo "job      $job"
echo "model    $data/jobs/$job/model (Hugging Face folder)"
echo "metrics  $data/metrics.db, and $(cat "$data/url")/v1/fine_tuning/jobs/$job/metrics"
echo "look     $(cat "$data/url")/ in a browser (the dashboard; sign in with the token in $data/admin.token)"
echo "API      $(cat "$data/url")/v1, token in $data/admin.token"
echo "CLI      $build/clients/ithaca --data-dir $data --help"
if [ "$stop" = yes ]; then
    kill "$daemon"
    wait "$daemon" || true
    rm -f "$data/quickstart.pid"
    echo "daemon   stopped"
else
    echo "daemon   process $daemon; stop it with: kill $daemon"
fi
