#include "tests/worker/cuda/scripted_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

namespace helios::testing {
namespace {

std::unique_ptr<ScriptedCuda> g_script = std::make_unique<ScriptedCuda>();
thread_local int t_device = -1;
int g_pending = 0;  // questions until the last call of NCCL is done; under the script's mutex

cudaError_t answer(const char* name) {
  ScriptedCuda& s = scripted_cuda();
  std::lock_guard lock(s.mutex);
  s.calls.emplace_back(name);
  s.changed.notify_all();
  return s.failing == name ? s.error : cudaSuccess;
}

template <class Handle>
cudaError_t make(const char* name, Handle* handle, size_t bytes = 1) {
  const cudaError_t status = answer(name);
  if (status != cudaSuccess) return status;
  void* const memory = std::malloc(bytes);
  *handle = static_cast<Handle>(memory);
  ScriptedCuda& s = scripted_cuda();
  std::lock_guard lock(s.mutex);
  s.live[memory] = name;
  return status;
}
cudaError_t give_back(const char* name, const void* handle) {
  ScriptedCuda& s = scripted_cuda();
  {
    std::lock_guard lock(s.mutex);
    if (handle && s.live.erase(handle) == 0) std::abort();  // twice, or never made
  }
  std::free(const_cast<void*>(handle));
  return answer(name);
}

/// A call on a communicator: taken, and in progress for a while.
ncclResult_t take(const char* name) {
  answer(name);
  ScriptedCuda& s = scripted_cuda();
  std::lock_guard lock(s.mutex);
  s.after_end += s.ended;
  g_pending = s.questions;
  return g_pending > 0 ? ncclInProgress : s.result;
}

}  // namespace

int ScriptedCuda::count(const std::string& name) {
  std::lock_guard lock(mutex);
  return static_cast<int>(std::count(calls.begin(), calls.end(), name));
}
bool ScriptedCuda::wait_for_call(const std::string& name) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::seconds(10),
                          [&] { return std::find(calls.begin(), calls.end(), name) != calls.end(); });
}

ScriptedCuda& scripted_cuda() { return *g_script; }
bool reset_scripted_cuda() {
  g_script = std::make_unique<ScriptedCuda>();
  t_device = -1;
  return true;
}
int chosen_device() { return t_device; }

}  // namespace helios::testing

using helios::testing::answer;
using helios::testing::give_back;
using helios::testing::make;
using helios::testing::scripted_cuda;
using helios::testing::take;

extern "C" {

cudaError_t cudaSetDevice(int device) {
  helios::testing::t_device = device;
  return answer("cudaSetDevice");
}
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorScripted"; }
const char* cudaGetErrorString(cudaError_t) { return "as the script says"; }
cudaError_t cudaGetLastError() { return answer("cudaGetLastError"); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return make("cudaEventCreateWithFlags", event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return give_back("cudaEventDestroy", event); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return answer("cudaEventSynchronize"); }
cudaError_t cudaEventQuery(cudaEvent_t) { return answer("cudaEventQuery"); }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return answer("cudaEventRecord"); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return make("cudaStreamCreateWithFlags", stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return give_back("cudaStreamDestroy", stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return answer("cudaStreamSynchronize"); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return answer("cudaStreamWaitEvent"); }
cudaError_t cudaStreamQuery(cudaStream_t) {
  const cudaError_t status = answer("cudaStreamQuery");
  return status == cudaSuccess && !scripted_cuda().device_done ? cudaErrorNotReady : status;
}
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return answer("cudaMemcpyAsync");
}
cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind, cudaStream_t) {
  return answer("cudaMemcpy2DAsync");
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  *static_cast<char*>(static_cast<void*>(stream)) = 1;
  return answer("cudaStreamBeginCapture");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const bool captures = *static_cast<char*>(static_cast<void*>(stream)) == 1;
  *status = captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return answer("cudaStreamIsCapturing");
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *static_cast<char*>(static_cast<void*>(stream)) = 0;
  return make("cudaStreamEndCapture", graph);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  *count = 3;
  return answer("cudaGraphGetNodes");
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  return make("cudaGraphInstantiate", executable);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return answer("cudaGraphUpload"); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return answer("cudaGraphLaunch"); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return give_back("cudaGraphExecDestroy", executable); }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return give_back("cudaGraphDestroy", graph); }

cudaError_t cudaMalloc(void** memory, size_t bytes) { return make("cudaMalloc", memory, bytes); }
cudaError_t cudaFree(void* memory) { return give_back("cudaFree", memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) { return make("cudaHostAlloc", memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return give_back("cudaFreeHost", memory); }
cudaError_t cudaMemset(void*, int, size_t) { return answer("cudaMemset"); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return answer("cudaMemGetInfo");
}

const char* ncclGetErrorString(ncclResult_t) { return "an error of NCCL"; }
const char* ncclGetLastError(ncclComm_t) { return scripted_cuda().words.c_str(); }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::fill_n(id->internal, sizeof id->internal, 'x');
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int, ncclUniqueId, int, ncclConfig_t* config) {
  scripted_cuda().blocking = config->blocking;
  *communicator = static_cast<ncclComm_t>(std::malloc(1));
  {
    std::lock_guard lock(scripted_cuda().mutex);
    scripted_cuda().live[*communicator] = "ncclCommInitRankConfig";
  }
  return take("ncclCommInitRankConfig");
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  auto& s = scripted_cuda();
  std::lock_guard lock(s.mutex);
  ++s.asked;
  s.after_end += s.ended;
  *state = helios::testing::g_pending > 0 && --helios::testing::g_pending > 0 ? ncclInProgress : s.result;
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return take("ncclAllGather");
}
ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return take("ncclAllReduce");
}
static ncclResult_t end(const char* name, ncclComm_t communicator, bool may_hang) {
  answer(name);
  auto& s = scripted_cuda();
  {
    std::unique_lock lock(s.mutex);
    s.after_end += s.ended;
    s.ended = true;
    s.changed.wait(lock, [&] { return s.live_captured_graphs == 0 && !(may_hang && s.destroy_hangs); });
  }
  give_back("the end of the communicator", communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) { return end("ncclCommAbort", communicator, false); }
ncclResult_t ncclCommDestroy(ncclComm_t communicator) { return end("ncclCommDestroy", communicator, true); }

}  // extern "C"
