// Runs the tests of this program on the GPU: `PROGRAM [FILTER]`. Prints `result | passed | failed | skipped | seconds`;
// what failed is on stderr. Exit status 1 when a test failed or none ran.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>

#include <gtest/gtest.h>
#if defined(HELIOS_SHARED_MEMORY_TESTS)
#include "tests/gpu/managed_memory.h"
#endif

namespace {

/// An error that no test saw: a kernel that failed behind the last look.
std::string device_trouble() {
  const cudaError_t waited = cudaDeviceSynchronize(), kept = cudaGetLastError();
  return waited != cudaSuccess ? cudaGetErrorString(waited) : kept != cudaSuccess ? cudaGetErrorString(kept) : "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  ::testing::standin::Counts counts;
  const auto run = [&] { counts = ::testing::standin::run_all(filter, device_trouble); };
  const auto start = std::chrono::steady_clock::now();
#if defined(HELIOS_SHARED_MEMORY_TESTS)
  if (const std::string missing = helios::testing::share_memory_with_gpu(); !missing.empty()) {
    std::printf("fail | %s\n", missing.c_str());
    return 1;
  }
  helios::testing::run_on_shared_stack(run);
#else
  run();
#endif
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("result | %d | %d | %d | %.1f\n", counts.passed, counts.failed, counts.skipped, seconds);
  return counts.failed > 0 || counts.passed == 0 ? 1 : 0;
}
