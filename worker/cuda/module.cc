// The CUDA module's one exported symbol.
#include <cuda_runtime.h>

#include "worker/cuda/cuda_backend.h"
#include "worker/cuda/cuda_module.h"
#include "worker/cuda/nccl_communicator.h"

namespace helios::cuda {
namespace {

Result<int> probe() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess)
    return Error{Errc::kUnavailable, std::string("no CUDA device: ") + cudaGetErrorString(status)};
  return count;
}

constexpr CudaModule kModule{kCudaModuleVersion, probe, make_backend, make_nccl_group_id, make_nccl_communicator};

}  // namespace
}  // namespace helios::cuda

extern "C" __attribute__((visibility("default"))) const helios::CudaModule* helios_cuda_module() {
  return &helios::cuda::kModule;
}
