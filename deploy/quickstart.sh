#!/usr/bin/env bash
# From a fresh clone to a streamed completion with exact logprobs: packages, build, a two-rank cluster, one sample.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'TEXT'
usage: deploy/quickstart.sh [--once] [--model DIR] [--nproc N] [--port P] [--host H] [-- LAUNCH_FLAGS...]

  --once        stop everything after the sample instead of serving until Ctrl-C
  --model DIR   a Hugging Face directory (default: the bundled demo model)
  --nproc N     ranks: 1, 2, 4 or 8 (default 2)
  --port P      HTTP port, 0 lets the kernel pick (default 8000, or a free one when 8000 is taken)
  --host H      address to listen on (default 127.0.0.1)
  --            everything after it goes to helios-launch as it is
TEXT
}

once=false model=$root/deploy/demo nproc=2 port='' host=127.0.0.1 extra=()
while [ $# -gt 0 ]; do
  case "$1" in
    --once) once=true ;;
    --model | --nproc | --port | --host)
      [ $# -ge 2 ] || { echo "quickstart.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    --) shift; extra=("$@"); break ;;
    *) echo "quickstart.sh: unknown flag $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
[ -f "$model/config.json" ] || { echo "quickstart.sh: $model has no config.json" >&2; exit 2; }
cd "$root"

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '==> %s\n' "$*"; }

say "packages"
deploy/install_packages.sh packages.txt

say "build (Release)"
[ -f build/release/build.ninja ] || cmake --preset release > build-configure.log 2>&1 || {
  cat build-configure.log >&2
  exit 1
}
rm -f build-configure.log
cmake --build --preset release --target helios-launch helios-coordinator helios-worker helios-bench

if [ -z "$port" ]; then
  port=8000
  (exec 3<> "/dev/tcp/127.0.0.1/8000") 2> /dev/null && port=0
fi

work=$(mktemp -d)
launch=''
cleanup() {
  trap - EXIT INT TERM
  if [ -n "$launch" ] && kill -0 "$launch" 2> /dev/null; then
    kill -TERM "$launch" 2> /dev/null || true
    wait "$launch" 2> /dev/null || true
  fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'echo; exit 130' INT
trap 'exit 143' TERM

say "start: coordinator and $nproc ranks on $model"
build/release/bin/helios-launch --model "$model" --nproc "$nproc" --host "$host" --port "$port" "${extra[@]}" \
  > "$work/stdout" 2> "$work/log" &
launch=$!
shown=0 begin=$SECONDS url=''
while [ -z "$url" ]; do
  if ! kill -0 "$launch" 2> /dev/null; then
    cat "$work/log" >&2
    echo "quickstart.sh: the cluster did not start" >&2
    exit 1
  fi
  lines=$(wc -l < "$work/log")
  if [ "$lines" -gt "$shown" ]; then
    sed -n "$((shown + 1)),${lines}p" "$work/log" | sed 's/^/    /'
    shown=$lines
  elif [ $((SECONDS - begin)) -ge 5 ] && [ $(((SECONDS - begin) % 5)) -eq 0 ]; then
    echo "    waiting for the ranks, $((SECONDS - begin)) s"
    sleep 0.8
  fi
  url=$(sed -n 's/^ready //p' "$work/stdout")
  sleep 0.2
done
echo "    ready after $((SECONDS - begin)) s"

say "one completion, streamed from $url/v1/completions"
python3 deploy/stream_table.py "$url"
cat <<TEXT

$url serves the OpenAI Completions, Chat and Responses APIs. Try:

  curl -s $url/v1/completions -H 'Content-Type: application/json' \\
    -d '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "logprobs": 3}'

TEXT
if $once; then exit 0; fi
echo "Serving until Ctrl-C; the log is $work/log"
status=0
wait "$launch" || status=$?
launch=''
exit "$status"
