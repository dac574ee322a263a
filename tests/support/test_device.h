// The device that a test is linked for, and exchanges that its graphs can capture: the CPU; the emulator; or, in
// tests/gpu on a machine that has one, a GPU.
#pragma once

#include <memory>

#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"
#if defined(HELIOS_EMULATED_DEVICE)
#include "tests/support/simt/simt_backend.h"
#elif defined(HELIOS_CUDA_DEVICE)
#include "tests/gpu/cuda_device.h"
#endif

namespace helios::testing {

/// Where another order of summation is right: norms, attention and exponentials of the GPU's kernels.
#if defined(HELIOS_EMULATED_DEVICE) || defined(HELIOS_CUDA_DEVICE)
inline constexpr bool kGpuKernels = true;
#else
inline constexpr bool kGpuKernels = false;
#endif

/// For a rank of `world`; `threads` of the CPU's kernels.
inline Device test_device([[maybe_unused]] int world, [[maybe_unused]] int threads = 1) {
#if defined(HELIOS_EMULATED_DEVICE)
  return simt_device();
#elif defined(HELIOS_CUDA_DEVICE)
  return cuda_device(world);
#else
  Device device{.backend = make_cpu_backend(threads)};
  device.compute = device.backend->make_stream("test");
  return device;
#endif
}

/// What graphs of `device` exchange through, in the place of `group`; null where that is `group` itself. `adds_rows`,
/// on a GPU's kernels: partial sums are added there (Communicator::adds_rows).
inline std::unique_ptr<Communicator> captured_exchanges([[maybe_unused]] Communicator& group,
                                                        [[maybe_unused]] Device& device,
                                                        [[maybe_unused]] bool adds_rows = false) {
#if defined(HELIOS_EMULATED_DEVICE)
  return make_simt_communicator(group, *device.compute, adds_rows);
#elif defined(HELIOS_CUDA_DEVICE)
  return cuda_exchanges(group, device, adds_rows);
#else
  return nullptr;
#endif
}

}  // namespace helios::testing
