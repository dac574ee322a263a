// The CUDA runtime and NCCL as a script: what the module's host code calls, on whose device, and what it holds at the
// end. For what no machine without a GPU can run and no GPU would do on demand: a call that fails in the middle, a peer
// that never comes, an abort that waits for graphs.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace helios::testing {

struct ScriptedCuda {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> calls;
  std::map<const void*, std::string> live;  // handles and memory that were not given back
  std::string failing;                      // the call that fails
  cudaError_t error = cudaSuccess;          // with this
  bool device_done = true;                  // what cudaStreamQuery tells
  int live_captured_graphs = 0;             // that captured an exchange, not yet destroyed

  // NCCL: a call is in progress for so many questions, then has this result. Aborting waits for the graphs.
  int questions = 0;
  ncclResult_t result = ncclSuccess;
  std::string words;  // of its last error
  int asked = 0;      // ncclCommGetAsyncError
  bool destroy_hangs = false;
  bool ended = false;   // destroyed or aborted
  int after_end = 0;    // calls with an ended communicator
  int blocking = -1;    // of the configuration

  int count(const std::string& name);
  bool wait_for_call(const std::string& name);
};

/// The process's; reset makes it anew, and is true.
ScriptedCuda& scripted_cuda();
bool reset_scripted_cuda();
/// The device that this thread chose, or -1.
int chosen_device();

}  // namespace helios::testing
