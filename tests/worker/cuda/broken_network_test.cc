// A rank whose steps' exchanges run inside replayed graphs, over a scripted NCCL: what breaks there no call of the rank
// returns, and the device would wait for its peer until the coordinator's limit for a step.
#include <gtest/gtest.h>

#include "tests/worker/cuda/scripted_cuda.h"
#include "tests/worker/rank/rank_under_test.h"
#include "worker/cuda/cuda_backend.h"
#include "worker/cuda/nccl_communicator.h"

namespace helios {
namespace {

using namespace testing;

/// A rank with a device group of its own, as the CUDA module prepares it; its executor is the script's.
class BrokenNetwork : public ::testing::Test {
 protected:
  BrokenNetwork() {
    RankUnderTest::Options options;
    options.prepare = [this](Communicator&, const std::function<void(double)>&) {
      PreparedCore core;
      core.device_group = cuda::make_nccl_communicator(cuda::make_nccl_group_id(), Rank(0), 1, *stream_, 20s);
      core.executor = std::make_unique<ScriptedExecutor>(rank_->script, *core.device_group);
      return core;
    };
    rank_ = std::make_unique<RankUnderTest>(coordinator_.endpoint(), options);
    identity_ = open_single(coordinator_, 1);
  }

  /// Submits step `sequence`, whose exchange waits for a peer.
  void hang_in_a_step(uint64_t sequence) {
    rank_->script->hold(true);
    coordinator_.send(identity_, step(1, sequence));
    ASSERT_TRUE(eventually([&] { return rank_->script->seen().size() == sequence; }));
  }
  int asked() {
    std::lock_guard lock(scripted_cuda().mutex);
    return scripted_cuda().asked;
  }

  const bool fresh_ = reset_scripted_cuda();  // before the others
  const std::unique_ptr<Backend> backend_ = cuda::make_backend(0, 1);
  const std::unique_ptr<Stream> stream_ = backend_->make_stream("compute");
  TestCoordinator coordinator_;
  std::unique_ptr<RankUnderTest> rank_;
  std::string identity_;
};

// And only then is the group aborted: the step that it lets go of carries nobody's logprobs, so its completion has to
// come behind the fault.
TEST_F(BrokenNetwork, IsToldWithinAFractionOfASecondAndEndsTheRank) {
  hang_in_a_step(1);
  const auto begin = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(scripted_cuda().mutex);
    scripted_cuda().result = ncclRemoteError;
    scripted_cuda().words = "NET/Socket: connection closed by remote peer 10.0.0.2<41000>";
  }
  std::thread device([&] {
    EXPECT_TRUE(scripted_cuda().wait_for_call("ncclCommAbort"));
    rank_->script->hold(false);  // its kernels leave
  });
  const FromRank first = coordinator_.expect("fault or completion", [](const FromRank& from) {
    const auto* control = std::get_if<ControlMessage>(&from.message);
    return !control || std::holds_alternative<Fault>(*control);
  });
  const auto noticed = std::chrono::steady_clock::now() - begin;
  device.join();
  ASSERT_TRUE(std::holds_alternative<ControlMessage>(first.message)) << "a completion before the fault";
  EXPECT_EQ(std::get<Fault>(std::get<ControlMessage>(first.message)).message,
            "NCCL cannot finish the exchanges of the steps in flight (ncclCommGetAsyncError): an error of NCCL: "
            "NET/Socket: connection closed by remote peer 10.0.0.2<41000>");
  EXPECT_LT(noticed, 2s) << "a turn of 0.1 s, every 0.2 s, when the machine is free";
  EXPECT_EQ(rank_->exit_code(), kExitRestart);
  EXPECT_EQ(scripted_cuda().count("ncclCommAbort"), 1);
  EXPECT_EQ(scripted_cuda().count("ncclCommDestroy"), 0);
  EXPECT_EQ(scripted_cuda().after_end, 0) << "used after the abort";
}

TEST_F(BrokenNetwork, AskingCostsAFewCallsASecondAndASlowStepIsNoError) {
  hang_in_a_step(1);
  const auto begin = std::chrono::steady_clock::now();
  const int before = asked();
  std::this_thread::sleep_for(500ms);
  const int calls = asked() - before;
  EXPECT_LE(calls, 1 + (std::chrono::steady_clock::now() - begin) / 200ms);
  EXPECT_TRUE(eventually([&] { return asked() > before; }));
  rank_->script->hold(false);
  EXPECT_EQ(coordinator_.expect_completion().sequence, Sequence(1));
  coordinator_.send(identity_, Drain{});
  EXPECT_EQ(rank_->exit_code(), kExitDrained);
  EXPECT_EQ(scripted_cuda().count("ncclCommAbort"), 0);
  EXPECT_EQ(scripted_cuda().count("ncclCommDestroy"), 1);
}

}  // namespace
}  // namespace helios
