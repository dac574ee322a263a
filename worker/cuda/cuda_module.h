// The CUDA part of a worker lives in one module, helios_cuda.so, beside the binary: everything else starts without
// toolkit and driver. This is its door.
//
// Module and worker are built from one tree, so C++ types cross; the version catches a module left over from another.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"

namespace helios {

inline constexpr int kCudaModuleVersion = 1;

struct CudaModule {
  int version = kCudaModuleVersion;
  /// Number of usable devices. Errors: kUnavailable with the driver's own reason.
  Result<int> (*probe)();
  /// Throws DeviceError.
  std::unique_ptr<Backend> (*make_backend)(int device, int host_threads);
  /// 128 bytes that rank 0 makes and every rank of the group is given. Throws CollectiveError.
  std::string (*make_group_id)();
  /// Collective over the group; exchanges are ordered on `stream` and may be captured. Throws CollectiveError.
  std::unique_ptr<Communicator> (*make_communicator)(const std::string& group_id, Rank rank, int world_size,
                                                     Stream& stream, std::chrono::milliseconds timeout);
};

/// Opens helios_cuda.so beside the running binary, once. Errors: kUnsupported: no module in this build, or its
/// libraries are missing, with the loader's words; kMismatch: a module of another version.
Result<const CudaModule*> load_cuda_module();

}  // namespace helios
