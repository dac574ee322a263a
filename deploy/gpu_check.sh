#!/usr/bin/env bash
# Checks the CUDA device on a machine with NVIDIA GPUs and without a network: once built, in at most four minutes.
#
#   deploy/gpu_check.sh [--build DIR] [--no-figures]
#
# Needs the CUDA toolkit (12.8 or later) with NCCL, cmake, ninja, python3 and a driver; no package of Helios' own: it builds
# the kernels, the executor and their tests alone (tests/gpu). Prints one table; exits 0 when every check passed, 1 when one
# failed, 2 when the machine lacks something. Lines beginning with `failed` name the log.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/gpu-check
figures=true
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?--build needs a directory}; shift ;;
    --no-figures) figures=false ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "gpu_check.sh: unknown flag $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

# ---- what the machine has
driver=${HELIOS_GPU_DRIVER:-/dev/nvidiactl}
[ -e "$driver" ] || { echo "gpu_check.sh: no NVIDIA driver here: $driver does not exist" >&2; exit 2; }
[ -x /usr/local/cuda/bin/nvcc ] && PATH=$PATH:/usr/local/cuda/bin
for tool in nvcc cmake ninja python3; do
  command -v "$tool" > /dev/null || { echo "gpu_check.sh: $tool is not on the PATH" >&2; exit 2; }
done
mkdir -p "$build"
logs=$build/logs
rm -rf "$logs"
mkdir -p "$logs"

# PyTorch's wheels bring an NCCL of their own; the toolkit's goes first.
nccl=$(python3 -c 'import nvidia.nccl, os; print(list(nvidia.nccl.__path__)[0])' 2> /dev/null) || nccl=
if [ -n "$nccl" ] && [ ! -e /usr/include/nccl.h ] && [ ! -e /usr/local/cuda/include/nccl.h ]; then
  export NCCL_HOME=$nccl
  export LD_LIBRARY_PATH=$nccl/lib:${LD_LIBRARY_PATH:-}
  # A wheel has libnccl.so.2 alone, and cmake looks for libnccl.so.
  mkdir -p "$build/nccl"
  ln -sfn "$nccl/include" "$build/nccl/include"
  mkdir -p "$build/nccl/lib"
  ln -sf "$nccl/lib/libnccl.so.2" "$build/nccl/lib/libnccl.so"
  export NCCL_HOME=$build/nccl
fi

rows=()
bad=0
row() { rows+=("$1|$2|$3"); }
fail() {
  row "$1" FAILED "$2"
  bad=1
}
print_table() {
  printf '\n%-48s %-8s %s\n' check verdict figures
  printf '%s\n' "${rows[@]}" | while IFS='|' read -r name verdict more; do printf '%-48s %-8s %s\n' "$name" "$verdict" "$more"; done
  printf '%d s\n' "$SECONDS"
  exit "$bad"
}

gpus=$(nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader 2> "$logs/smi") || gpus=
[ -n "$gpus" ] || { echo "gpu_check.sh: the driver shows no GPU: $(tail -n 1 "$logs/smi")" >&2; exit 2; }
num_gpus=$(printf '%s\n' "$gpus" | wc -l)
row "device" "" "$num_gpus x $(printf '%s\n' "$gpus" | head -n 1)"

# ---- build, and beside it the model that figures are measured with
model=$build/bench_model
if $figures; then
  python3 "$root/deploy/make_bench_model.py" "$model" > "$logs/model" 2>&1 &
  maker=$!
fi
archs=$(printf '%s\n' "$gpus" | awk -F', ' '{gsub(/\./, "", $2); print $2 "-real"}' | sort -u | paste -sd';')
echo "building for $archs in $build ..."
cmake -S "$root/tests/gpu" -B "$build" -G Ninja -DHELIOS_CUDA_ARCHS="$archs" > "$logs/configure" 2>&1 &&
  cmake --build "$build" > "$logs/build" 2>&1
built=$?
if [ $built -ne 0 ]; then
  fail build "see $logs/configure and $logs/build"
  print_table
fi
row build passed "$SECONDS s"
# A log holds what was compiled just now: in a build directory from before that may be nothing.
if grep -q 'Compiling entry function' "$logs/build"; then
  if used=$(python3 "$root/tests/gpu/check_resources.py" "$logs/build"); then
    row "registers and shared memory" passed "$used"
  else
    fail "registers and shared memory" "$(printf '%s' "$used" | paste -sd';')"
  fi
fi

# ---- run; a program's lines are `result`, `figure`, `digest`, `skip` or `fail`
checks_end=$((SECONDS + 240))
run() {  # run NAME SECONDS PROGRAM...: status 124 when its time, or that of all checks, is over
  local name=$1 limit=$2 left=$((checks_end - SECONDS)) log status
  shift 2
  [ "$left" -ge "$limit" ] || limit=$((left > 1 ? left : 1))
  log=$logs/${name// /_}
  echo "$name ..."
  timeout "$limit" "$@" > "$log" 2> "$log.err"
  status=$?
  while IFS= read -r line; do row "  ${line%% | *}" "" "${line#* | }"; done < <(sed -n 's/^figure | //p' "$log")
  return $status
}
field() { awk -F' [|] ' -v n="$2" '$1 == "result" { print $n }' "$logs/${1// /_}"; }
suite() {  # suite NAME PROGRAM...
  local name=$1 status
  run "$name" 150 "${@:2}"
  status=$?
  local counts
  counts="$(field "$name" 2) passed, $(field "$name" 3) failed, $(field "$name" 4) skipped, $(field "$name" 5) s"
  if [ $status -eq 0 ]; then row "$name" passed "$counts"; else
    fail "$name" "status $status, $counts: $(tail -n 1 "$logs/${name// /_}.err"); see $logs/${name// /_}.err"
  fi
}
suite "kernels against their definitions" "$build/gpu_kernel_tests"
suite "graphs, core, TP 1 to 8 in one process" "$build/gpu_core_tests"

demo=$root/deploy/demo
digest() { sed -n 's/^digest | //p' "$logs/${1// /_}"; }
if run "one rank over NCCL" 60 "$build/gpu_run" "$demo" 1 bits; then
  row "one rank over NCCL" passed "digest $(digest "one rank over NCCL")"
else
  fail "one rank over NCCL" "$(tail -n 1 "$logs/one_rank_over_NCCL"); see $logs"
fi
for ranks in 2 4 8; do
  [ "$ranks" -eq 2 ] || [ "$ranks" -le "$num_gpus" ] || continue
  name="$ranks ranks over NCCL, same bits as one"
  run "$name" 90 "$build/gpu_run" "$demo" "$ranks" bits
  status=$?
  if [ $status -eq 77 ]; then
    row "$name" SKIPPED "not possible here, NCCL takes no two ranks on one GPU: $(sed -n 's/^skip | //p' "$logs/${name// /_}")"
  elif [ $status -eq 124 ] && [ "$ranks" -gt "$num_gpus" ]; then
    row "$name" SKIPPED "not possible here, two ranks that share a GPU came to no end in time"
  elif [ $status -ne 0 ]; then
    fail "$name" "status $status, $(tail -n 1 "$logs/${name// /_}"); see $logs"
  elif [ "$(digest "$name")" != "$(digest "one rank over NCCL")" ]; then
    fail "$name" "digest $(digest "$name")"
  else
    row "$name" passed "$([ "$ranks" -le "$num_gpus" ] && echo "a GPU each" || echo "on one GPU")"
  fi
done

if $figures; then
  if ! wait "$maker"; then
    fail "figures" "no model: $(tail -n 1 "$logs/model")"
  elif run "figures" 120 "$build/gpu_run" "$model" 1 figures; then
    row "figures" passed "a random model of Qwen3-0.6B's shape, BF16; FP32 inputs and cache unless a line says otherwise"
  else
    fail "figures" "$(tail -n 1 "$logs/figures"); see $logs"
  fi
fi
print_table
