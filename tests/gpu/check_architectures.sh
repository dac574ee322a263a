#!/usr/bin/env bash
# Registers, stack and shared memory of every GPU kernel on every architecture that Helios is built for. By hand: it needs
# the toolkit, no GPU, and some ten minutes of a core.
#
#   tests/gpu/check_architectures.sh OUT_DIR [ARCHITECTURE...]      (default: 80 90 100 120)
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- 80 90 100 120
targets=()
for arch in "$@"; do targets+=(-gencode "arch=compute_$arch,code=sm_$arch"); done

# A room's files are one unit, as in the build; attention is a unit of its own.
cd "$root"
failed=0
for room in step sampling logprobs transformer attention; do
  case $room in
    attention) files=(kernels/transformer/attention*_cuda.cu) ;;
    transformer) files=(kernels/transformer/{layers,matmul_stage,rope}_cuda.cu) ;;
    *) files=(kernels/"$room"/*_cuda.cu) ;;
  esac
  printf '#include "%s"\n' "${files[@]/#/$root/}" > "$out/$room.cu"
  nvcc -std=c++20 -O3 -DNDEBUG -I. --expt-relaxed-constexpr --fmad=false --resource-usage "${targets[@]}" \
    -fatbin "$out/$room.cu" -o "$out/$room.fatbin" > "$out/$room.log" 2>&1 || { tail -n 3 "$out/$room.log"; failed=1; }
  printf '%-12s' "$room"
  python3 tests/gpu/check_resources.py "$out/$room.log" || failed=1
done
exit $failed
