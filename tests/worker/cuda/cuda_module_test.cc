// The CUDA module's host code over a script in the place of the runtime and of NCCL (scripted_cuda.h): what it holds it
// gives back, whichever call fails; no wait is unbounded; and nobody who aborts waits. What kernels and libraries do on
// a device is tests/gpu's to show.
#include <gtest/gtest.h>

#include <thread>

#include "tests/worker/cuda/scripted_cuda.h"
#include "worker/cuda/cuda_backend.h"
#include "worker/cuda/nccl_communicator.h"

namespace helios::cuda {
namespace {

using testing::scripted_cuda;
using namespace std::chrono_literals;

constexpr int kDevice = 3;

class CudaModule : public ::testing::Test {
 protected:
  std::unique_ptr<Communicator> join(std::chrono::milliseconds timeout = 5s) {
    return make_nccl_communicator(make_nccl_group_id(), Rank(1), 2, *stream_, timeout);
  }
  /// All that the script has seen made and not given back, but for this fixture's stream.
  size_t held() {
    std::lock_guard lock(scripted_cuda().mutex);
    return scripted_cuda().live.size() - (stream_ ? 1 : 0);
  }

  const bool fresh_ = testing::reset_scripted_cuda();  // before the others
  const std::unique_ptr<Backend> backend_ = make_backend(kDevice, 1);
  std::unique_ptr<Stream> stream_ = backend_->make_stream("compute");
};

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "none";
}

TEST_F(CudaModule, WhicheverCallFailsIsNamedAndNothingStaysBehind) {
  const auto all = [&] {
    const auto stream = backend_->make_stream("another");
    const auto event = backend_->make_event();
    const Memory memory = backend_->device_memory(64), pinned = backend_->pinned_memory(64);
    stream->begin_capture();
    stream->launch([](const Launcher&) {});
    const auto graph = stream->end_capture();
    EXPECT_EQ(graph->num_launches(), 3);
    stream->copy(memory.data(), pinned.data(), 64);
    stream->copy_rows(memory.data(), 8, pinned.data(), 8, 8, 8);
    stream->replay(*graph);
    stream->record(*event);
    stream->wait(*event);
    event->synchronize();
    stream->synchronize();
  };
  all();
  EXPECT_EQ(held(), 0u);
  for (const char* call :
       {"cudaSetDevice", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaMalloc", "cudaMemset",
        "cudaHostAlloc", "cudaStreamBeginCapture", "cudaGetLastError", "cudaStreamEndCapture", "cudaGraphGetNodes",
        "cudaGraphInstantiate", "cudaGraphUpload", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaGraphLaunch",
        "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize", "cudaStreamSynchronize"}) {
    scripted_cuda().failing = call;
    scripted_cuda().error = cudaErrorIllegalAddress;  // and so for every later call of a broken device
    const std::string said = error_of(all);
    EXPECT_NE(said.find("cudaErrorScripted, as the script says (cuda_backend.cc:"), std::string::npos)
        << call << ": " << said;
    EXPECT_EQ(held(), 0u) << call;
  }
}

// A graph's first replay is like every other: what it needs was brought to the device when it was made.
TEST_F(CudaModule, R25_AGraphIsUploadedBeforeItsFirstReplay) {
  stream_->begin_capture();
  const auto graph = stream_->end_capture();
  EXPECT_EQ(scripted_cuda().count("cudaGraphUpload"), 1);
  EXPECT_EQ(scripted_cuda().count("cudaGraphLaunch"), 0);
}

// Otherwise it would open a context on device 0, beside the rank that has it.
TEST_F(CudaModule, R26_AThreadThatWaitsForAnEventChoosesItsDevice) {
  const auto event = backend_->make_event();
  int while_waiting = -1, while_asking = -1;
  std::thread([&] {
    event->synchronize();
    while_waiting = testing::chosen_device();
  }).join();
  std::thread([&] {
    event->query();
    while_asking = testing::chosen_device();
  }).join();
  EXPECT_EQ(while_waiting, kDevice);
  EXPECT_EQ(while_asking, kDevice);
}

TEST_F(CudaModule, AGroupIsJoinedWithoutBlockingAndDestroyedOnce) {
  scripted_cuda().questions = 4;
  {
    const auto group = join();
    EXPECT_EQ(scripted_cuda().blocking, 0);
    std::byte bytes[8] = {};
    group->gather(std::span(bytes).first(4), bytes, 4);
    group->barrier();
  }
  EXPECT_EQ(scripted_cuda().count("ncclAllGather"), 2);
  EXPECT_EQ(scripted_cuda().count("ncclCommDestroy"), 1);
  EXPECT_EQ(scripted_cuda().count("ncclCommAbort"), 0);
  EXPECT_EQ(scripted_cuda().after_end, 0);
  EXPECT_EQ(held(), 0u);
}

TEST_F(CudaModule, APeerThatNeverComesIsGivenUp) {
  scripted_cuda().questions = 1 << 30;
  EXPECT_EQ(error_of([&] { join(50ms); }), "NCCL did not join the group within 50 ms");
  EXPECT_EQ(scripted_cuda().count("ncclCommAbort"), 1);
  EXPECT_EQ(held(), 0u);
}

TEST_F(CudaModule, AnErrorOfTheNetworkAbortsAndIsToldInTheLibrarysWords) {
  const auto group = join();
  scripted_cuda().device_done = false;  // a kernel that waits for the peer
  scripted_cuda().result = ncclRemoteError;
  scripted_cuda().words = "peer 0 closed the connection";
  const std::string said = "NCCL cannot meet at a barrier: an error of NCCL: peer 0 closed the connection";
  EXPECT_EQ(error_of([&] { group->barrier(); }), said);
  EXPECT_TRUE(scripted_cuda().wait_for_call("ncclCommAbort"));
  EXPECT_EQ(error_of([&] { group->barrier(); }), "cannot meet at a barrier: the group is gone: " + said);
}

TEST_F(CudaModule, WhoChecksTheGroupIsToldAndItIsNotAbortedYet) {
  const auto group = join();
  group->check_group();
  scripted_cuda().result = ncclInProgress;
  group->check_group();
  scripted_cuda().result = ncclSystemError;
  scripted_cuda().words = "no route to host";
  const std::string said = "NCCL cannot finish the exchanges of the steps in flight (ncclCommGetAsyncError): "
                           "an error of NCCL: no route to host";
  EXPECT_EQ(error_of([&] { group->check_group(); }), said);
  EXPECT_EQ(error_of([&] { group->check_group(); }), said) << "the group was not left standing";
}

TEST_F(CudaModule, ABarrierHasATimeLimit) {
  const auto group = join(50ms);
  scripted_cuda().device_done = false;
  EXPECT_EQ(error_of([&] { group->barrier(); }), "NCCL did not meet at a barrier within 50 ms");
  EXPECT_TRUE(scripted_cuda().wait_for_call("ncclCommAbort"));
}

// NCCL's abort returns once the graphs that captured the group are destroyed, and who destroys them may be waiting for
// the very thread that aborts.
TEST_F(CudaModule, WhoAbortsDoesNotWaitForTheGraphsOfTheGroup) {
  auto group = join();
  scripted_cuda().live_captured_graphs = 1;
  group->abort("rank 0 was lost");  // from the link's thread; would hang here
  ASSERT_TRUE(scripted_cuda().wait_for_call("ncclCommAbort"));
  group->abort("again");
  std::byte bytes[8] = {};
  EXPECT_EQ(error_of([&] { group->gather(std::span(bytes).first(4), bytes, 4); }),
            "cannot all-gather: the group is gone: rank 0 was lost");
  {
    std::lock_guard lock(scripted_cuda().mutex);
    scripted_cuda().live_captured_graphs = 0;  // the executor is gone
  }
  scripted_cuda().changed.notify_all();
  group.reset();
  EXPECT_EQ(scripted_cuda().count("ncclCommAbort"), 1);
  EXPECT_EQ(scripted_cuda().count("ncclCommDestroy"), 0);
  EXPECT_EQ(scripted_cuda().after_end, 0) << "used after the abort";
  EXPECT_EQ(held(), 0u);
}

TEST_F(CudaModule, AThreadThatWaitsForNcclIsStoppedByAnAbort) {
  const auto group = join(60s);
  scripted_cuda().questions = 1 << 30;
  std::string said;
  std::thread rank([&] { said = error_of([&] { group->barrier(); }); });
  ASSERT_TRUE(scripted_cuda().wait_for_call("ncclAllGather"));
  group->abort("the coordinator said so");
  rank.join();
  EXPECT_EQ(said, "cannot meet at a barrier: the group is gone: the coordinator said so");
  EXPECT_EQ(scripted_cuda().after_end, 0) << "used after the abort";
}

TEST_F(CudaModule, AnEndThatHangsHoldsNobody) {
  auto group = join(50ms);
  scripted_cuda().destroy_hangs = true;
  const auto start = std::chrono::steady_clock::now();
  group.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_EQ(scripted_cuda().count("cudaFree"), 0) << "which would wait for the device";
  {
    std::lock_guard lock(scripted_cuda().mutex);
    scripted_cuda().destroy_hangs = false;
  }
  scripted_cuda().changed.notify_all();
  EXPECT_TRUE(scripted_cuda().wait_for_call("the end of the communicator"));
}

}  // namespace
}  // namespace helios::cuda
