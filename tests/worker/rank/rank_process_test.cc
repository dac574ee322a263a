// A rank against a coordinator's real socket: how it joins, serves, and leaves for every reason there is.
#include "worker/rank/rank_process.h"

#include <gtest/gtest.h>

#include "tests/worker/rank/rank_under_test.h"

namespace helios {
namespace {

using namespace testing;

class RankOver : public ::testing::TestWithParam<const char*> {
 protected:
  std::string endpoint() const { return std::string(GetParam()) == "ipc" ? fresh_ipc_endpoint() : "tcp://127.0.0.1:0"; }
};
INSTANTIATE_TEST_SUITE_P(Transports, RankOver, ::testing::Values("tcp", "ipc"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(RankOver, SaysHelloUntilWelcomedThenLoadsAndIsReady) {
  TestCoordinator coordinator(endpoint());
  RankUnderTest rank(coordinator.endpoint());
  const auto [identity, first] = coordinator.expect_control<Hello>();
  EXPECT_EQ(first, rank.hello());
  EXPECT_EQ(identity.substr(0, 7), "rank-0-");
  const Heartbeat early = coordinator.expect_control<Heartbeat>().second;
  EXPECT_EQ(early.incarnation, 0u);
  EXPECT_EQ(early.state, RankState::kStarting);
  EXPECT_EQ(coordinator.expect_control<Hello>().second, first) << "said again";

  coordinator.send(identity, Welcome{7, 1, "group", "shm"});
  const Ready ready = coordinator.expect_control<Ready>().second;
  EXPECT_EQ(ready.incarnation, 7u);
  EXPECT_EQ(ready.manifest.model_type, "scripted");
  const auto beat =
      coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.state == RankState::kReady; });
  EXPECT_EQ(beat.second.incarnation, 7u);
  EXPECT_EQ(beat.second.load_progress, 1.0);
  EXPECT_GT(beat.second.resident_bytes, 1 << 20);
  EXPECT_EQ(beat.second.busy_for_ms, 0);

  coordinator.send(identity, Welcome{7, 1, "group", "shm"});  // a repeated one changes nothing
  coordinator.send(identity, Drain{});
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST_P(RankOver, CompletesSubmissionsInOrder) {
  TestCoordinator coordinator(endpoint());
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 3);
  coordinator.send(identity, step(3, 1));
  for (uint64_t sequence = 1; sequence <= 50; ++sequence) {
    if (sequence < 50) coordinator.send(identity, step(3, sequence + 1));  // two frames in flight
    const Completion completion = coordinator.expect_completion();
    EXPECT_EQ(completion.incarnation, 3u);
    EXPECT_EQ(completion.rank, Rank(0));
    EXPECT_EQ(completion.sequence, Sequence(sequence));
    EXPECT_EQ(completion.frame, FrameIndex(static_cast<int32_t>(sequence % 2)));
    EXPECT_EQ(completion.record_digest, sequence * 1000);
  }
  const auto beat =
      coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.last_sequence.value == 50; });
  EXPECT_EQ(beat.second.busy_for_ms, 0);
  coordinator.send(identity, Drain{});
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, ASequenceGapIsAFaultAndIsNeverLaunched) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  coordinator.send(identity, step(1, 1));
  coordinator.expect_completion();
  coordinator.send(identity, step(1, 3));
  const Fault fault = coordinator.expect_control<Fault>().second;
  EXPECT_EQ(fault.incarnation, 1u);
  EXPECT_EQ(fault.message, "sequence gap: submission 3 after 1");
  EXPECT_EQ(rank.exit_code(), kExitRestart);
  EXPECT_EQ(rank.script->seen(), (std::vector<uint64_t>{1}));
}

TEST(RankProcess, ARepeatedSubmissionIsAFaultToo) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  coordinator.send(identity, step(1, 1));
  coordinator.send(identity, step(1, 1));
  EXPECT_EQ(coordinator.expect_control<Fault>().second.message, "sequence gap: submission 1 after 1");
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, SubmissionsOfAnotherIncarnationAreDropped) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 5);
  coordinator.send(identity, step(4, 9));
  coordinator.send(identity, step(6, 1));
  coordinator.send(identity, step(5, 1));
  EXPECT_EQ(coordinator.expect_completion().sequence, Sequence(1));
  EXPECT_EQ(rank.vitals.submissions_dropped, 2u);
  EXPECT_EQ(rank.script->seen(), (std::vector<uint64_t>{1}));
  coordinator.send(identity, Drain{});
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, MalformedBytesAreDroppedAndTheRankLives) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  const std::vector<std::vector<std::string>> garbage = {
      {"x"},
      {""},
      {"", ""},
      {"\x01", ""},
      {"\x01", "not capnp"},
      {"\x01", std::string(64, '\xff')},
      {"\x02", std::string(8, '\0')},
      {"\x02", std::string(4096, '\x7f')},
      {"\x03", encode_completion(Completion{})},
      {"\x09", encode_control(Drain{})},
      {"\x01\x01", encode_control(Drain{})},
      {"\x01", encode_control(Drain{}), "extra"},
      {"\x01", encode_submission(step(1, 1)).substr(0, 24)},
      {"\x01", encode_control(Hello{Rank(0), 1})},  // a rank's words, not the coordinator's
      {"\x01", encode_control(StoreGet{"key"})},
  };
  for (const auto& frames : garbage) coordinator.send_raw(identity, frames);
  coordinator.send(identity, step(1, 1));
  EXPECT_EQ(coordinator.expect_completion().sequence, Sequence(1));
  EXPECT_EQ(rank.vitals.messages_refused, garbage.size());
  coordinator.send(identity, Drain{});
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, AnUnaskedStoreValueIsForgotten) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  for (int i = 0; i < 100; ++i) coordinator.send(identity, StoreValue{"k" + std::to_string(i), "v"});
  coordinator.send(identity, Drain{});
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, DrainFinishesWhatWasTakenBeforeIt) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  rank.script->hold(true);
  coordinator.send(identity, step(1, 1));
  coordinator.send(identity, step(1, 2));
  ASSERT_TRUE(eventually([&] { return rank.script->seen().size() == 2; }));
  coordinator.send(identity, Drain{});
  coordinator.send(identity, step(1, 3));  // too late: not taken
  coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.state == RankState::kDraining; });
  rank.script->hold(false);
  EXPECT_EQ(coordinator.expect_completion().sequence, Sequence(1));
  EXPECT_EQ(coordinator.expect_completion().sequence, Sequence(2));
  coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.state == RankState::kLost; });
  EXPECT_EQ(rank.exit_code(), kExitDrained);
  EXPECT_EQ(rank.script->seen(), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(rank.ended_by_link, -1);
}

TEST(RankProcess, TerminationFinishesTheFramesInFlight) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  rank.script->hold(true);
  coordinator.send(identity, step(1, 1));
  ASSERT_TRUE(eventually([&] { return rank.script->seen().size() == 1; }));
  rank.terminate();
  coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.state == RankState::kDraining; });
  rank.script->hold(false);
  EXPECT_EQ(coordinator.expect_completion().sequence, Sequence(1));
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, TerminationWhileAStepHangsEndsTheProcessAtTheLimit) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint(), {.leave_limit = 100ms});
  const std::string identity = open_single(coordinator, 1);
  rank.script->hold(true);
  coordinator.send(identity, step(1, 1));
  ASSERT_TRUE(eventually([&] { return rank.script->seen().size() == 1; }));
  rank.terminate();
  EXPECT_TRUE(eventually([&] { return rank.ended_by_link == kExitDrained; }));
  rank.script->hold(false);  // a real process has ended by now
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, TerminationBeforeTheWelcomeEndsAtOnce) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  coordinator.expect_control<Hello>();
  rank.terminate();
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, AHangingStepShowsInTheHeartbeat) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  rank.script->hold(true);
  coordinator.send(identity, step(1, 1));
  const auto beat = coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.busy_for_ms >= 150; });
  EXPECT_EQ(beat.second.last_sequence, Sequence(1));
  rank.script->hold(false);
  coordinator.expect_completion();
  coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.busy_for_ms == 0; });
  coordinator.send(identity, Drain{});
  EXPECT_EQ(rank.exit_code(), kExitDrained);
}

TEST(RankProcess, ASilentCoordinatorEndsTheRank) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint(), {.silence_limit = 400ms});
  open_single(coordinator, 1);
  coordinator.fall_silent();
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, ACoordinatorThatNeverAnswersEndsTheRank) {
  RankUnderTest rank("tcp://127.0.0.1:9", {.first_contact_limit = 200ms});
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, ACoordinatorThatDiesEndsTheRank) {
  auto coordinator = std::make_unique<TestCoordinator>();
  RankUnderTest rank(coordinator->endpoint(), {.silence_limit = 400ms});
  open_single(*coordinator, 1);
  coordinator.reset();
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, AbortEndsAnIdleRankAndAHangingStepOnlyUntilTheLimit) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint(), {.leave_limit = 100ms});
  const std::string identity = open_single(coordinator, 1);
  rank.script->hold(true);
  coordinator.send(identity, step(1, 1));
  ASSERT_TRUE(eventually([&] { return rank.script->seen().size() == 1; }));
  coordinator.send(identity, Abort{"rank 1 is lost"});
  EXPECT_TRUE(eventually([&] { return rank.ended_by_link == kExitRestart; }));
  rank.script->hold(false);
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, AWelcomeToAnotherIncarnationEndsTheRank) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  coordinator.send(identity, Welcome{2, 1, "other", "shm"});
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, AWelcomeToASetOfAnotherSizeEndsTheRank) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const auto [identity, hello] = coordinator.expect_control<Hello>();
  coordinator.send(identity, Welcome{1, 4, "group", "shm"});
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, MoreSubmissionsThanAnyCoordinatorSendsEndTheRank) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  std::promise<void> go;
  rank.script->on_submit = [&, wait = go.get_future().share()](const Submission&) -> Status {
    wait.wait();
    return Ok{};
  };
  for (uint64_t sequence = 1; sequence <= 30; ++sequence) coordinator.send(identity, step(1, sequence));
  EXPECT_TRUE(eventually([&] { return rank.vitals.state() == RankState::kDraining; }));
  go.set_value();
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, WhatTheExecutorRefusesIsAFault) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  rank.script->on_submit = [](const Submission&) -> Status {
    return Error{Errc::kInvalidArgument, "slot 9, expected 0 to 3"};
  };
  coordinator.send(identity, step(1, 1));
  EXPECT_EQ(coordinator.expect_control<Fault>().second.message, "submission 1: slot 9, expected 0 to 3");
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, AFailingDeviceIsAFaultFromEitherThread) {
  for (const bool in_submit : {true, false}) {
    TestCoordinator coordinator;
    RankUnderTest rank(coordinator.endpoint());
    const std::string identity = open_single(coordinator, 1);
    if (in_submit) {
      rank.script->on_submit = [](const Submission&) -> Status {
        throw std::runtime_error("device fell off\nthe bus");
      };
    } else {
      rank.script->on_collect = [](Completion&) { throw std::runtime_error("device fell off\nthe bus"); };
    }
    coordinator.send(identity, step(1, 1));
    EXPECT_EQ(coordinator.expect_control<Fault>().second.message, "device fell off the bus");
    EXPECT_EQ(rank.exit_code(), kExitRestart);
  }
}

TEST(RankProcess, ACompletionOfAnotherSubmissionIsAFault) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint());
  const std::string identity = open_single(coordinator, 1);
  rank.script->on_collect = [](Completion& c) { c.sequence = Sequence(c.sequence.value + 1); };
  coordinator.send(identity, step(1, 1));
  EXPECT_EQ(coordinator.expect_control<Fault>().second.message, "the executor completed sequence 2, expected 1");
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, AModelThatCannotBeServedIsAFaultAndNotToBeRestarted) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint(),
                     {.prepare = [](Communicator&, const std::function<void(double)>&) -> PreparedCore {
                       throw LoadError("config.json: num_attention_heads: expected a number, found null");
                     }});
  const auto [identity, hello] = coordinator.expect_control<Hello>();
  coordinator.send(identity, Welcome{1, 1, "group", "shm"});
  EXPECT_EQ(coordinator.expect_control<Fault>().second.message,
            "config.json: num_attention_heads: expected a number, found null");
  EXPECT_EQ(rank.exit_code(), kExitCannotServe);
}

TEST(RankProcess, AnExchangeThatFailsWhileLoadingIsRestarted) {
  TestCoordinator coordinator;
  RankUnderTest rank(coordinator.endpoint(),
                     {.prepare = [](Communicator&, const std::function<void(double)>&) -> PreparedCore {
                       throw CollectiveError("rank 1 has ended");
                     }});
  const auto [identity, hello] = coordinator.expect_control<Hello>();
  coordinator.send(identity, Welcome{1, 1, "group", "shm"});
  EXPECT_EQ(coordinator.expect_control<Fault>().second.message, "rank 1 has ended");
  EXPECT_EQ(rank.exit_code(), kExitRestart);
}

TEST(RankProcess, LoadingIsLeftAtTheNextProgressReport) {
  for (const bool abort : {true, false}) {
    TestCoordinator coordinator;
    RankUnderTest rank(
        coordinator.endpoint(),
        {.prepare = [](Communicator&, const std::function<void(double)>& progress) -> PreparedCore {
          while (true) {
            progress(0.25);
            std::this_thread::sleep_for(1ms);
          }
        }});
    const auto [identity, hello] = coordinator.expect_control<Hello>();
    coordinator.send(identity, Welcome{1, 1, "group", "shm"});
    const auto beat = coordinator.expect_control<Heartbeat>([](const Heartbeat& h) { return h.load_progress > 0; });
    EXPECT_EQ(beat.second.state, RankState::kLoading);
    EXPECT_EQ(beat.second.load_progress, 0.25);
    coordinator.send(identity, abort ? ControlMessage(Abort{"rank 1 is lost"}) : ControlMessage(Drain{}));
    EXPECT_EQ(rank.exit_code(), abort ? kExitRestart : kExitDrained);
  }
}

// Two ranks with real exchanges between them.
class TwoRanks : public ::testing::TestWithParam<const char*> {
 protected:
  void open() {
    for (int r = 0; r < 2; ++r) {
      ranks_[r] =
          std::make_unique<RankUnderTest>(coordinator_.endpoint(), RankUnderTest::Options{.rank = r, .world_size = 2});
      ranks_[r]->script->exchanges = true;
    }
    while (identities_[0].empty() || identities_[1].empty()) {
      const auto [identity, hello] = coordinator_.expect_control<Hello>();
      identities_[hello.rank.value] = identity;
    }
    const std::string key = "rank-test-" + std::to_string(::getpid()) + "-" + std::to_string(g_next_life++);
    for (const auto& identity : identities_) coordinator_.send(identity, Welcome{1, 2, key, GetParam()});
    for (int r = 0; r < 2; ++r) coordinator_.expect_control<Ready>();
  }

  TestCoordinator coordinator_;
  std::unique_ptr<RankUnderTest> ranks_[2];
  std::string identities_[2];
};
INSTANTIATE_TEST_SUITE_P(Collectives, TwoRanks, ::testing::Values("shm", "gloo"),
                         [](const auto& collective) { return std::string(collective.param); });

TEST_P(TwoRanks, BootstrapThroughTheCoordinatorAndStepTogether) {
  open();
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    for (const auto& identity : identities_) coordinator_.send(identity, step(1, sequence));
    const Completion a = coordinator_.expect_completion();
    const Completion b = coordinator_.expect_completion();
    EXPECT_EQ(a.sequence, b.sequence);
    EXPECT_NE(a.rank, b.rank);
  }
  for (const auto& identity : identities_) coordinator_.send(identity, Drain{});
  EXPECT_EQ(ranks_[0]->exit_code(), kExitDrained);
  EXPECT_EQ(ranks_[1]->exit_code(), kExitDrained);
}

TEST_P(TwoRanks, AbortFreesARankThatWaitsInAnExchange) {
  open();
  coordinator_.send(identities_[0], step(1, 1));  // and not to rank 1: rank 0 waits for it
  coordinator_.expect_control<Heartbeat>([](const Heartbeat& h) { return h.last_sequence.value == 1; });
  for (const auto& identity : identities_) coordinator_.send(identity, Abort{"rank 1 missed a submission"});
  EXPECT_EQ(ranks_[0]->exit_code(), kExitRestart);
  EXPECT_EQ(ranks_[1]->exit_code(), kExitRestart);
  EXPECT_EQ(ranks_[0]->ended_by_link, -1) << "it ended by itself";
}

TEST_P(TwoRanks, TerminationOfBothInAnExchangeIsNoFailure) {
  open();
  coordinator_.send(identities_[0], step(1, 1));
  coordinator_.expect_control<Heartbeat>([](const Heartbeat& h) { return h.last_sequence.value == 1; });
  // Both are told before either can be missed: a rank whose peer has gone before its own signal reports a fault,
  // rightly.
  ranks_[0]->terminate();
  ranks_[1]->terminate();
  EXPECT_EQ(ranks_[1]->exit_code(), kExitDrained);
  coordinator_.send(identities_[0], Abort{"rank 1 left"});  // as the coordinator does when a rank goes
  EXPECT_EQ(ranks_[0]->exit_code(), kExitDrained);
}

}  // namespace
}  // namespace helios
