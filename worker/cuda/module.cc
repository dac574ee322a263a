// The CUDA module's one exported symbol.
#include <cuda_runtime.h>

#include <string>
#include <vector>

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

/// Rank 0's group id, handed round by the hosts.
std::string agree_on_group_id(Communicator& hosts) {
  std::string mine = hosts.rank().value == 0 ? make_nccl_group_id() : std::string(kNcclGroupIdBytes, '\0');
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(hosts.world_size()));
  hosts.all_gather(std::as_bytes(std::span(mine)), all);
  return std::string(reinterpret_cast<const char*>(all.data()), kNcclGroupIdBytes);
}

/// A rank that gathers would wait for ever for one that adds.
void check_same_reduce(TpReduce mine, Communicator& hosts) {
  std::vector<TpReduce> all(static_cast<size_t>(hosts.world_size()));
  hosts.all_gather_words<TpReduce>({&mine, 1}, all);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != mine)
      throw LoadError("--tp-reduce: rank " + std::to_string(rank) + " has another one than this rank");
  }
}

PreparedCore prepare(const CoreConfig& config, int device_index, Communicator& hosts, std::chrono::milliseconds timeout,
                     const std::function<void(double)>& progress) {
  Device device{.backend = make_backend(device_index, config.num_threads)};
  device.compute = device.backend->make_stream("compute");
  PreparedCore core;
  check_same_reduce(config.tp_reduce, hosts);
  core.device_group = make_nccl_communicator(agree_on_group_id(hosts), hosts.rank(), hosts.world_size(),
                                             *device.compute, timeout, config.tp_reduce == TpReduce::kFast);
  core.executor = Executor::prepare(config, std::move(device), *core.device_group, progress);
  return core;
}

constexpr CudaModule kModule{kCudaModuleVersion, probe, prepare};

}  // namespace
}  // namespace helios::cuda

extern "C" __attribute__((visibility("default"))) const helios::CudaModule* helios_cuda_module() {
  return &helios::cuda::kModule;
}
