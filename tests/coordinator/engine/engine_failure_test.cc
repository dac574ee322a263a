// What ranks can do wrong: one lane's data (that request fails), or the set's agreement and life (the set restarts).
#include "coordinator/engine/engine.h"

#include "common/base/host_key.h"
#include "tests/coordinator/engine/engine_fixture.h"

#include <sys/wait.h>

#include <cmath>
#include <csignal>

namespace helios {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::eventually;
using testing::ScriptedRankOptions;

class EngineFailureTest : public testing::EngineFixture {
 protected:
  /// Runs three asking sequences while rank 0's completions are spoiled; the second must fail with kInternal after
  /// `delivered` tokens, the others must not notice.
  void expect_only_the_second_fails(std::function<void(const Submission&, Completion&, size_t lane)> spoil,
                                    size_t delivered, const std::string& message_part) {
    constexpr int kSpoiledSubmission = 4;
    ScriptedRankOptions options;
    options.spoil = [&, spoil](const Submission& s, Completion& c) {
      if (c.rank != Rank(0) || s.sequence != Sequence(kSpoiledSubmission)) return;
      for (size_t i = 0; i < s.lanes.size(); ++i) {
        if (s.lanes[i].slot == SlotIndex(1)) spoil(s, c, i);
      }
    };
    start_ready(options);
    std::vector<SequenceRequest> requests{request(2, 12, 1), request(2, 12, 2), request(2, 12, 3)};
    for (SequenceRequest& r : requests) r.logprobs = true, r.num_logprobs = 3;
    Client client;
    ASSERT_TRUE(client.submit(*engine_, requests).ok());
    const auto& outcomes = client.wait();
    expect_complete(requests[0], outcomes[0]);
    expect_complete(requests[2], outcomes[2]);
    ASSERT_TRUE(outcomes[1].error.has_value());
    EXPECT_EQ(outcomes[1].error->code, Errc::kInternal);
    EXPECT_NE(outcomes[1].error->message.find(message_part), std::string::npos) << outcomes[1].error->message;
    EXPECT_EQ(outcomes[1].tokens.size(), delivered);
    expect_idle();
    EXPECT_TRUE(engine_->status().ready);
    Client again;  // the failed sequence's slot serves its next tenant
    ASSERT_TRUE(again.submit(*engine_, requests).ok());
    for (size_t i = 0; i < 3; ++i) expect_complete(requests[i], again.wait()[i]);
  }
  static int64_t& record(Completion& c, size_t lane, int word) { return c.records.at(lane * record_words(8) + word); }
  static CompletionPayload& payload(Completion& c, SlotIndex slot) {
    return *std::find_if(c.payloads.begin(), c.payloads.end(), [&](const auto& p) { return p.slot == slot; });
  }
};

TEST_F(EngineFailureTest, AMismatchedChosenIdFailsThatOneRequest) {  // R27
  expect_only_the_second_fails(
      [](const Submission& s, Completion& c, size_t i) { payload(c, s.lanes[i].slot).words[0] ^= 1; }, 3, "chosen id");
}

TEST_F(EngineFailureTest, ANanLogprobFailsThatOneRequest) {
  expect_only_the_second_fails(
      [](const Submission& s, Completion& c, size_t i) { payload(c, s.lanes[i].slot).words[1] = float_bits(NAN); }, 3,
      "nan");
}

TEST_F(EngineFailureTest, AMissingPayloadFailsThatOneRequest) {  // R27: never dropped silently
  expect_only_the_second_fails(
      [](const Submission& s, Completion& c, size_t i) {
        std::erase_if(c.payloads, [&](const auto& p) { return p.slot == s.lanes[i].slot; });
      },
      3, "missing");
}

TEST_F(EngineFailureTest, ATruncatedPayloadFailsThatOneRequest) {
  expect_only_the_second_fails(
      [](const Submission& s, Completion& c, size_t i) { payload(c, s.lanes[i].slot).words.clear(); }, 3, "words");
}

TEST_F(EngineFailureTest, AStaleEpochIsNeverDelivered) {
  expect_only_the_second_fails(
      [](const Submission&, Completion& c, size_t i) { record(c, i, record_word::kEpoch) -= 1; }, 3,
      "epoch is 0, expected 1");
}

TEST_F(EngineFailureTest, ARunningSequenceThatEmitsNothingFails) {
  expect_only_the_second_fails(
      [](const Submission&, Completion& c, size_t i) { record(c, i, record_word::kEmitted) = 0; }, 3,
      "emitted no token");
}

TEST_F(EngineFailureTest, ATokenOutsideTheVocabularyFails) {
  expect_only_the_second_fails(
      [](const Submission&, Completion& c, size_t i) { record(c, i, record_word::kTokens) = 100; }, 3, "token is 100");
}

TEST_F(EngineFailureTest, StalePayloadOfLanesThatDidNotAskIsIgnored) {  // R26
  ScriptedRankOptions options;
  options.spoil = [](const Submission& s, Completion& c) {
    if (c.rank != Rank(0)) return;
    for (const Lane& lane : s.lanes) {
      if (s.logprob_requested[lane.slot.value] == 0) c.payloads.push_back({lane.slot, {-7, 1}});
    }
  };
  start_ready(options);
  Client client;
  const SequenceRequest plain = request(3, 10, 4);
  ASSERT_TRUE(client.submit(*engine_, {plain}).ok());
  expect_complete(plain, client.wait()[0]);
}

class EngineLossTest : public EngineFailureTest {
 protected:
  void SetUp() override {
    EngineFailureTest::SetUp();
    core_.max_model_len = 4096;
    core_.kv_num_blocks = 2048;
  }
  ScriptedRankOptions slow() const {
    ScriptedRankOptions options;
    options.step_time = 2ms;
    return options;
  }
  /// Four long sequences run and two short ones wait.
  void start_under_load(ScriptedRankOptions options) {
    start_ready(std::move(options));
    long_.assign(4, request(2, 1900));
    short_ = {request(3, 6, 8), request(4, 6, 9)};
    ASSERT_TRUE(running_.submit(*engine_, long_).ok());
    ASSERT_TRUE(eventually([&] { return engine_->status().running == 4; }));
    ASSERT_TRUE(waiting_.submit(*engine_, short_).ok());
  }
  /// The running ones got 503, readiness is off, and with new ranks the waiting ones finish.
  void expect_restart(const std::string& reason_part) {
    for (const auto& outcome : running_.wait()) {
      ASSERT_TRUE(outcome.error.has_value());
      EXPECT_EQ(outcome.error->code, Errc::kUnavailable);
      EXPECT_NE(outcome.error->message.find(reason_part), std::string::npos) << outcome.error->message;
    }
    EXPECT_FALSE(engine_->status().ready);
    EXPECT_NE(engine_->status().reason.find(reason_part), std::string::npos) << engine_->status().reason;
    EXPECT_EQ(engine_->status().running, 0);
    EXPECT_EQ(engine_->status().waiting, 2);
    Client refused;
    EXPECT_EQ(refused.submit(*engine_, {request(1, 1)}).error().code, Errc::kUnavailable);
    ranks_.clear();
    add_ranks();
    for (size_t i = 0; i < 2; ++i) expect_complete(short_[i], waiting_.wait()[i]);
    EXPECT_EQ(engine_->status().incarnation, 2u);
    EXPECT_TRUE(engine_->status().ready);
    EXPECT_EQ(engine_->status().reason, "");
    EXPECT_EQ(ranks_[0]->submissions().at(0).sequence, Sequence(1));
    expect_idle();
  }

  std::vector<SequenceRequest> long_, short_;
  Client running_, waiting_;
};

TEST_F(EngineLossTest, ADeadRankFailsWhatRunsAndKeepsWhatWaits) {
  config_.ranks.heartbeat_limit = 1500ms;
  start_under_load(slow());
  ranks_[1]->die();
  expect_restart("rank 1");
}

TEST_F(EngineLossTest, ASilentRankIsLost) {
  config_.ranks.heartbeat_limit = 1500ms;
  start_under_load(slow());
  ranks_[0]->hang();
  ASSERT_TRUE(eventually([&] { return ranks_[1]->aborted(); }));
  expect_restart("silent for");
}

TEST_F(EngineLossTest, ABusyRankHangs) {
  config_.ranks.step_limit = 20s;
  start_under_load(slow());
  ranks_[1]->pretend_busy(20001);
  expect_restart("rank 1 hangs: busy in one step for 20001 ms");
}

TEST_F(EngineLossTest, AFaultRestartsTheSet) {
  start_under_load(slow());
  ranks_[1]->say(Fault{ranks_[1]->incarnation(), "layer 3: the output is not finite"});
  expect_restart("rank 1 reports a fault: layer 3: the output is not finite");
}

TEST_F(EngineLossTest, DisagreeingRecordsRestartTheSet) {  // R28
  ScriptedRankOptions options = slow();
  options.spoil = [](const Submission& s, Completion& c) {
    if (s.sequence == Sequence(20) && c.rank == Rank(1) && c.incarnation == 1) c.record_digest ^= 1;
  };
  start_under_load(options);
  expect_restart("disagree about the records");
}

TEST_F(EngineLossTest, ALostSubmissionIsNoticed) {
  config_.ranks.step_limit = 300ms;
  config_.ranks.heartbeat_limit = 1500ms;
  ScriptedRankOptions options = slow();
  options.spoil = [](const Submission& s, Completion& c) {
    if (s.sequence >= Sequence(20)) c.incarnation = 77;  // the coordinator drops it, as it must
  };
  start_under_load(options);
  expect_restart("was not completed within");
}

TEST_F(EngineLossTest, AKilledProcessIsNoticedWithoutWaitingForItsSilence) {
  config_.ranks.heartbeat_limit = 60s;
  config_.ranks.world_size = 1;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execlp("sleep", "sleep", "60", nullptr);
    ::_exit(127);
  }
  ScriptedRankOptions options = slow();
  options.host_key = host_key();
  options.pid = pid;  // the thread speaks for a process that the engine can watch
  start_under_load(options);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  expect_restart("ended");
}

TEST_F(EngineLossTest, QueuedSequencesDoNotWaitForEver) {
  config_.restart_wait = 200ms;
  start_under_load(slow());
  ranks_[1]->say(Fault{ranks_[1]->incarnation(), "broken"});
  for (const auto& outcome : running_.wait()) EXPECT_EQ(outcome.error->code, Errc::kUnavailable);
  for (const auto& outcome : waiting_.wait()) {
    ASSERT_TRUE(outcome.error.has_value());
    EXPECT_EQ(outcome.error->message, "the ranks did not come back in time");
  }
  EXPECT_EQ(engine_->status().waiting, 0);
}

TEST_F(EngineLossTest, QueuedSequencesThatNoLongerFitAreRefused) {
  start_under_load(slow());
  ranks_[1]->say(Fault{ranks_[1]->incarnation(), "broken"});
  running_.wait();
  ranks_.clear();
  core_.max_model_len = 9;  // the first needs 9 positions, the second 10
  add_ranks();
  const auto& outcomes = waiting_.wait();
  expect_complete(short_[0], outcomes[0]);
  ASSERT_TRUE(outcomes[1].error.has_value());
  EXPECT_EQ(outcomes[1].error->code, Errc::kInvalidArgument);
}

TEST_F(EngineLossTest, TheStoreServesTheRanks) {
  start_ready();
  ranks_[0]->say(StoreGet{"address"});
  ranks_[1]->say(StoreSet{"address", "10.0.0.1:4000"});
  ASSERT_TRUE(eventually([&] { return ranks_[0]->store_values().size() == 1; }));
  EXPECT_EQ(ranks_[0]->store_values()[0], (StoreValue{"address", "10.0.0.1:4000"}));
}

TEST_F(EngineLossTest, StrangersAndNoiseAreIgnored) {
  start_ready();
  ZmqContext context;
  ZmqSocket stranger = ZmqSocket::dealer(context, "stranger");
  ASSERT_TRUE(stranger.connect(engine_->rank_endpoint()).ok());
  const std::vector<std::vector<std::string>> noise{{"x"},        {"\x01", "garbage"}, {"\x03", std::string(64, '\0')},
                                                    {"\x02", ""}, {"", "", ""},        {"\x09", "abcdefgh"}};
  ASSERT_TRUE(eventually([&] { return stranger.send("", noise[0]).ok(); }));
  for (int round = 0; round < 20; ++round) {
    for (const auto& frames : noise) (void)stranger.send("", frames);
  }
  Client client;
  const SequenceRequest r = request(3, 10, 4);
  ASSERT_TRUE(client.submit(*engine_, {r}).ok());
  expect_complete(r, client.wait()[0]);
  EXPECT_TRUE(engine_->status().ready);
}

}  // namespace
}  // namespace helios
