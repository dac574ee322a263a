#!/usr/bin/env bash
# Builds and runs every test: the Release tree whole, and under ASan and UBSan the parsers, codecs and fuzz tests.
#
#   deploy/test.sh [--fast]        --fast leaves the sanitizer tree out
#
# Reference models and golden values are looked for in $HELIOS_TEST_DATA; tests that need them skip without it and say so.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
fast=false
case "${1:-}" in
  '') ;;
  --fast) fast=true ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "test.sh: unknown flag $1 (see --help)" >&2; exit 2 ;;
esac
jobs=$(nproc)
step() { printf '\n==> %s (%d s)\n' "$*" "$SECONDS"; }

step "packages"
deploy/install_packages.sh packages.txt packages-test.txt
(cd tests/cluster/openai && npm ci --no-audit --no-fund --loglevel=error)
[ -n "${HELIOS_TEST_DATA:-}" ] || echo "HELIOS_TEST_DATA is not set: tests against reference values will be SKIPPED"

step "build, Release, warnings are errors"
# Where there is a CUDA toolkit: one architecture shows that the module compiles and links. The cuda preset builds all.
# The CUDA sources on the emulator are tested in the sanitizer tree, and here when there is none.
emulated=$($fast && echo ON || echo OFF)
cmake --preset release -DHELIOS_WERROR=ON -DHELIOS_CUDA_ARCHS=90-real -DHELIOS_EMULATED_TESTS="$emulated" > /dev/null
cmake --build --preset release

if ! $fast; then
  step "build, ASan and UBSan"
  cmake --preset asan -DHELIOS_WERROR=ON > /dev/null
  cmake --build --preset asan --target helios_sanitized_tests
  step "test, ASan and UBSan"
  ctest --test-dir build/asan --output-on-failure -j "$jobs" -L 'sanitized'
fi

step "test, Release"
ctest --test-dir build/release --output-on-failure -j "$jobs" --timeout 300
