// The CUDA part of a worker lives in one module, helios_cuda.so, beside the binary: everything else starts without
// toolkit and driver. This is its door.
//
// Module and worker are built from one tree, so C++ types cross; the version catches a module left over from another.
#pragma once

#include <chrono>
#include <functional>

#include "common/base/result.h"
#include "worker/collective/communicator.h"
#include "worker/replay/executor.h"

namespace helios {

inline constexpr int kCudaModuleVersion = 4;

struct CudaModule {
  int version = kCudaModuleVersion;
  /// Number of usable devices. Errors: kUnavailable with the driver's own reason.
  Result<int> (*probe)();
  /// Joins the ranks of `hosts` by NCCL, loads this rank's shard onto the device and captures every graph. `hosts` is
  /// used for the introduction alone; `timeout` bounds every wait of the device's group. Collective over the group.
  /// Throws LoadError, DeviceError, CollectiveError.
  PreparedCore (*prepare)(const CoreConfig& config, int device, Communicator& hosts, std::chrono::milliseconds timeout,
                          const std::function<void(double)>& progress);
};

/// Opens helios_cuda.so beside the running binary, once. Errors: kUnsupported: no module in this build, or its
/// libraries are missing, with the loader's words; kMismatch: a module of another version.
Result<const CudaModule*> load_cuda_module();

}  // namespace helios
