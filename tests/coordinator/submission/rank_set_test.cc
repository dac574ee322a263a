// The rank set's state machine, driven with messages and times; sends are collected.
#include "coordinator/submission/rank_set.h"

#include "common/base/host_key.h"
#include "tests/support/small_core.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <thread>

namespace helios {
namespace {

using namespace std::chrono_literals;

class RankSetTest : public ::testing::Test {
 protected:
  RankSetTest() { make({.world_size = 2}); }

  void make(RankSetConfig config) {
    set_.emplace(config, host_key(), [this](const std::string& identity, const ControlMessage& message) -> Status {
      if (unreachable_.contains(identity)) return Error{Errc::kUnavailable, "no route"};
      sent_[identity].push_back(message);
      return Ok{};
    });
  }

  static Hello hello(int rank, std::string host = "elsewhere/1") {
    return {.rank = Rank(rank), .world_size = 2, .life = 9, .pid = 4242, .host_key = std::move(host), .device = "cpu"};
  }
  template <class T>
  std::vector<T> sent(const std::string& identity) {
    std::vector<T> out;
    for (const ControlMessage& message : sent_[identity]) {
      if (const T* typed = std::get_if<T>(&message)) out.push_back(*typed);
    }
    return out;
  }
  void say(const std::string& identity, const ControlMessage& message) { set_->on_message(identity, message, now_); }
  void beat(const std::string& identity, int64_t busy_ms = 0) {
    say(identity, Heartbeat{.incarnation = set_->incarnation(), .busy_for_ms = busy_ms});
  }
  void pass(std::chrono::milliseconds d) {
    now_ += d;
    set_->tick(now_);
  }
  void open(const std::string& a = "a", const std::string& b = "b") {
    say(a, hello(0));
    say(b, hello(1));
    say(a, Ready{set_->incarnation(), testing::small_core_manifest()});
    say(b, Ready{set_->incarnation(), testing::small_core_manifest()});
    ASSERT_EQ(set_->phase(), RankSet::Phase::kOpen);
    ASSERT_EQ(set_->next_event()->kind, RankSet::Event::Kind::kOpened);
  }
  void expect_broken(const std::string& reason_part) {
    const auto event = set_->next_event();
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->kind, RankSet::Event::Kind::kBroken);
    EXPECT_NE(event->reason.find(reason_part), std::string::npos) << event->reason;
    EXPECT_EQ(set_->phase(), RankSet::Phase::kGathering);
    EXPECT_NE(set_->reason().find(reason_part), std::string::npos) << set_->reason();
    EXPECT_FALSE(set_->next_event().has_value());
  }

  std::map<std::string, std::vector<ControlMessage>> sent_;
  std::set<std::string> unreachable_;
  RankSet::TimePoint now_ = RankSet::TimePoint{} + 1h;
  std::optional<RankSet> set_;
};

TEST_F(RankSetTest, WelcomesAllAtOnceWithOneKeyAndOpensWhenAllAreReady) {
  say("a", hello(0));
  EXPECT_TRUE(sent_["a"].empty());
  EXPECT_EQ(set_->reason(), "waiting for ranks: 1 of 2 are here");
  say("a", hello(0));  // ranks repeat it until they are welcomed
  say("b", hello(1));
  const auto a = sent<Welcome>("a"), b = sent<Welcome>("b");
  ASSERT_EQ(a.size(), 1u);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a[0].incarnation, 1u);
  EXPECT_EQ(a[0].group_key.size(), 32u);
  EXPECT_EQ(set_->phase(), RankSet::Phase::kLoading);
  say("b", Ready{1, testing::small_core_manifest()});
  EXPECT_EQ(set_->phase(), RankSet::Phase::kLoading);
  say("a", Ready{1, testing::small_core_manifest()});
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  EXPECT_EQ(set_->reason(), "");
  EXPECT_EQ(*set_->capabilities(), testing::small_core());
  EXPECT_EQ(set_->rank_of("b"), Rank(1));
  EXPECT_FALSE(set_->rank_of("c").has_value());
  EXPECT_FALSE(set_->rank_of("").has_value());
}

TEST_F(RankSetTest, ChoosesTheCollectiveByHostAndDevice) {
  say("a", hello(0, "boot/1"));
  say("b", hello(1, "boot/1"));
  EXPECT_EQ(sent<Welcome>("a")[0].collective, "shm");
  make({.world_size = 2});
  say("c", hello(0, "boot/1"));
  say("d", hello(1, "boot/2"));
  EXPECT_EQ(sent<Welcome>("c")[0].collective, "gloo");
  make({.world_size = 2});
  Hello first = hello(0, "boot/1"), second = hello(1, "boot/1");
  first.device = second.device = "cuda";
  say("e", first);
  say("f", second);
  EXPECT_EQ(sent<Welcome>("e")[0].collective, "shm");  // for the introduction
  make({.world_size = 2, .collective = "gloo"});
  say("g", hello(0, "boot/1"));
  say("h", hello(1, "boot/1"));
  EXPECT_EQ(sent<Welcome>("g")[0].collective, "gloo");
}

TEST_F(RankSetTest, RefusesHellosThatCannotBelong) {
  Hello wrong = hello(0);
  wrong.world_size = 4;
  say("w", wrong);
  ASSERT_EQ(sent<Abort>("w").size(), 1u);
  EXPECT_EQ(sent<Abort>("w")[0].reason, "world size 4, expected 2");
  say("r", hello(2));
  EXPECT_EQ(sent<Abort>("r").size(), 1u);
  say("n", hello(-1));
  EXPECT_EQ(sent<Abort>("n").size(), 1u);
  say("a", hello(0));
  say("dup", hello(0));
  EXPECT_TRUE(sent_["dup"].empty());  // not told to leave: the other may be dead without our knowing yet
  EXPECT_EQ(set_->reason(), "waiting for ranks: 1 of 2 are here");
}

TEST_F(RankSetTest, ADuplicateTakesThePlaceOnceTheFirstIsSilent) {
  make({.world_size = 2, .heartbeat_limit = 300ms});
  say("a", hello(0));
  say("a2", hello(0));
  for (int i = 0; i < 5; ++i) pass(100ms);
  say("a2", hello(0));
  say("b", hello(1));
  EXPECT_EQ(sent<Welcome>("a2").size(), 1u);
  EXPECT_TRUE(sent<Welcome>("a").empty());
}

TEST_F(RankSetTest, AStrangersHelloDoesNotDisturbAnOpenSet) {
  open();
  say("x", hello(1));
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  EXPECT_EQ(set_->rank_of("b"), Rank(1));
}

TEST_F(RankSetTest, ARanksCountersAreShownAndNotEchoed) {
  open();
  const std::vector<CounterValue> counters = {{"helios_steps_total", 3.0}};
  say("b", Heartbeat{.incarnation = 1, .state = RankState::kReady, .counters = counters});
  EXPECT_EQ(set_->views()[1].counters, counters);
  EXPECT_TRUE(set_->views()[0].counters.empty());
  EXPECT_TRUE(sent<Heartbeat>("b").back().counters.empty());
}

TEST_F(RankSetTest, HeartbeatsAreEchoedAndSilenceIsALoss) {
  open();
  beat("a");
  ASSERT_EQ(sent<Heartbeat>("a").size(), 1u);
  for (int i = 0; i < 28; ++i) {
    pass(100ms);
    beat("a");
  }
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  for (int i = 0; i < 4; ++i) {
    pass(100ms);
    beat("a");
  }
  expect_broken("rank 1 (pid 4242) is silent for");
  ASSERT_EQ(sent<Abort>("a").size(), 1u);
  EXPECT_EQ(set_->views()[0].state, RankState::kLost);
}

TEST_F(RankSetTest, OurOwnStopIsNotTheRanksSilence) {
  open();
  pass(100ms);
  now_ += 10s;  // we were stopped; nobody could be heard
  set_->tick(now_);
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  for (int i = 0; i < 31; ++i) pass(100ms);
  EXPECT_EQ(set_->phase(), RankSet::Phase::kGathering);
}

TEST_F(RankSetTest, ARankBusyBeyondTheStepLimitHangs) {
  make({.world_size = 2, .step_limit = 1000ms});
  open();
  beat("b", 900);
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  beat("b", 1100);
  expect_broken("rank 1 hangs: busy in one step for 1100 ms, the limit is 1000 ms");
}

TEST_F(RankSetTest, AFaultBreaksTheSetUnlessItIsOfAnEarlierLife) {
  open();
  say("b", Fault{7, "old"});
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  say("b", Fault{1, "submission 5 after 3"});
  expect_broken("rank 1 reports a fault: submission 5 after 3");
}

TEST_F(RankSetTest, DifferentCoresDoNotOpen) {
  say("a", hello(0));
  say("b", hello(1));
  say("a", Ready{1, testing::small_core_manifest()});
  say("b", Ready{1, testing::small_core_manifest({.slot_capacity = 8})});
  expect_broken("slot_capacity is 4 and 8");
  EXPECT_EQ(sent<Abort>("a").size() + sent<Abort>("b").size(), 2u);
}

TEST_F(RankSetTest, AMalformedCoreDoesNotOpen) {  // R36
  CoreManifest manifest = testing::small_core_manifest();
  manifest.buffers[1].shape[2] = 9;
  say("a", hello(0));
  say("b", hello(1));
  say("a", Ready{1, manifest});
  say("b", Ready{1, manifest});
  expect_broken("buffer completion_logprobs: expected int32[2, 4, 8, 258], found int32[2, 4, 9, 258]");
}

TEST(Capabilities, AVerifyGraphHasRoomForEverySlotAndAllProposalsOfOne) {  // R3, R36
  CoreManifest manifest = testing::small_core_manifest({.slot_capacity = 4, .num_proposals = 5});
  EXPECT_EQ(derive_capabilities(manifest)->verify_rows, 4 + 2 * 5);
  EXPECT_EQ(derive_capabilities(manifest)->max_proposals(), 5);
  EXPECT_EQ(testing::small_core().max_proposals(), 0) << "T is 8 there, but nothing verifies";
  GraphDeclaration& verify = manifest.graphs.back();
  ASSERT_EQ(verify.operation, Operation::kVerify);
  verify.row_capacity = 4 + 5;
  EXPECT_TRUE(derive_capabilities(manifest).ok());
  verify.row_capacity = 4 + 4;
  EXPECT_NE(derive_capabilities(manifest).error().message.find("graph verify[8]: expected at least 9 rows"),
            std::string::npos);
  CoreManifest narrow = testing::small_core_manifest({.slot_capacity = 4, .num_proposals = 5});
  narrow.token_capacity = 1;
  narrow.buffers.clear();
  narrow.buffers.push_back({std::string(buffer_name::kRecords), BufferDtype::kInt64, {kNumFrames, 4, record_words(1)}});
  for (GraphDeclaration& graph : narrow.graphs) graph.bindings.clear();
  EXPECT_NE(derive_capabilities(narrow).error().message.find("token_capacity of at least 2, found 1"),
            std::string::npos);
}

TEST_F(RankSetTest, ANewIncarnationForgetsTheOldOne) {
  open();
  const std::string first_key = sent<Welcome>("a")[0].group_key;
  set_->fail("records differ", std::nullopt, now_);
  expect_broken("records differ");
  EXPECT_FALSE(set_->rank_of("a").has_value());
  say("a", hello(0));  // a late Hello of a process that was told to leave
  say("a", Ready{1, testing::small_core_manifest()});
  EXPECT_EQ(set_->reason(), "waiting for ranks: 0 of 2 are here; before that: records differ");
  open("c", "d");
  EXPECT_EQ(set_->incarnation(), 2u);
  EXPECT_NE(sent<Welcome>("c")[0].group_key, first_key);
  say("a", Fault{2, "I am back"});
  EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);
  EXPECT_EQ(set_->reason(), "");
}

TEST_F(RankSetTest, ARankThatCannotBeWelcomedBreaksTheSet) {
  unreachable_.insert("b");
  say("a", hello(0));
  say("b", hello(1));
  expect_broken("rank 1 could not be welcomed: no route");
}

TEST_F(RankSetTest, TheStoreServesMembersOfOneIncarnation) {
  say("stranger", StoreSet{"k", "evil"});
  say("a", hello(0));
  say("a", StoreSet{"k", "too early"});
  say("b", hello(1));
  say("b", StoreGet{"k"});
  EXPECT_TRUE(sent<StoreValue>("b").empty());
  say("a", StoreSet{"k", "v"});
  ASSERT_EQ(sent<StoreValue>("b").size(), 1u);
  EXPECT_EQ(sent<StoreValue>("b")[0], (StoreValue{"k", "v"}));
  set_->fail("again", std::nullopt, now_);
  say("c", hello(0));
  say("d", hello(1));
  say("d", StoreGet{"k"});
  EXPECT_TRUE(sent<StoreValue>("d").empty());
}

TEST_F(RankSetTest, AHelloFromAMemberGetsItsWelcomeAgain) {
  say("a", hello(0));
  say("b", hello(1));
  say("a", hello(0));
  const auto welcomes = sent<Welcome>("a");
  ASSERT_EQ(welcomes.size(), 2u);
  EXPECT_EQ(welcomes[0], welcomes[1]);
  EXPECT_EQ(set_->incarnation(), 1u);
  EXPECT_EQ(sent<Welcome>("b").size(), 1u);
}

TEST_F(RankSetTest, ARankThatWasToldToLeaveEndsTheSetInOrder) {
  for (const RankState state : {RankState::kDraining, RankState::kLost}) {
    make({.world_size = 2});
    sent_.clear();
    open();
    say("b", Heartbeat{.incarnation = 1, .state = state});
    pass(100ms);
    EXPECT_EQ(set_->phase(), RankSet::Phase::kOpen);  // a Fault may follow, and say more
    pass(150ms);
    expect_broken("rank 1 was told to leave");
    EXPECT_TRUE(sent<Abort>("b").empty());
    EXPECT_EQ(sent<Abort>("a").size(), 1u);
  }
}

TEST_F(RankSetTest, AFaultAfterTheLeavingHeartbeatIsTheReason) {
  open();
  say("b", Heartbeat{.incarnation = 1, .state = RankState::kDraining});
  pass(50ms);
  say("b", Fault{1, "the exchange was cut"});
  expect_broken("rank 1 reports a fault: the exchange was cut");
}

TEST_F(RankSetTest, ARankThatLeavesBeforeItsWelcomeFreesItsPlace) {
  say("a", hello(0));
  say("a", Heartbeat{.state = RankState::kLost});
  EXPECT_EQ(set_->reason(), "waiting for ranks: 0 of 2 are here");
  say("a2", hello(0));
  say("b", hello(1));
  EXPECT_EQ(sent<Welcome>("a2").size(), 1u);
}

TEST_F(RankSetTest, ADrainingRanksLastWordIsEnough) {
  open();
  set_->drain(now_);
  for (const char* identity : {"a", "b"}) {
    say(identity, Heartbeat{.incarnation = 1, .state = RankState::kDraining});
    EXPECT_FALSE(set_->all_gone());
  }
  say("a", Heartbeat{.incarnation = 1, .state = RankState::kLost});
  say("b", Heartbeat{.incarnation = 1, .state = RankState::kLost});
  EXPECT_TRUE(set_->all_gone());
  EXPECT_FALSE(set_->next_event().has_value());
}

TEST_F(RankSetTest, DrainingRanksMayLeave) {
  open();
  set_->drain(now_);
  EXPECT_EQ(sent<Drain>("a").size() + sent<Drain>("b").size(), 2u);
  EXPECT_FALSE(set_->all_gone());
  unreachable_.insert("a");  // its socket has closed
  pass(20ms);
  EXPECT_FALSE(set_->all_gone());
  EXPECT_EQ(set_->views()[0].state, RankState::kLost);
  EXPECT_EQ(set_->views()[1].state, RankState::kDraining);
  for (int i = 0; i < 31; ++i) pass(100ms);  // the other falls silent
  EXPECT_TRUE(set_->all_gone());
  EXPECT_FALSE(set_->next_event().has_value());
  EXPECT_TRUE(sent<Abort>("a").empty());
}

TEST_F(RankSetTest, AbortedRanksAreFollowedUntilTheyAreGone) {
  open();
  set_->abort_all("stop", now_);
  EXPECT_EQ(sent<Abort>("a").size() + sent<Abort>("b").size(), 2u);
  EXPECT_FALSE(set_->rank_of("a").has_value());
  EXPECT_FALSE(set_->all_gone());
  unreachable_ = {"a", "b"};
  EXPECT_TRUE(set_->all_gone());
}

// A stand-in process: what matters is that it has a pid on this host.
class LocalProcess {
 public:
  LocalProcess() : pid_(::fork()) {
    if (pid_ == 0) {
      ::execlp("sleep", "sleep", "60", nullptr);
      ::_exit(127);
    }
  }
  ~LocalProcess() {
    ::kill(pid_, SIGKILL);
    reap();
  }
  pid_t pid() const { return pid_; }
  void end() { ::kill(pid_, SIGKILL); }
  /// The signal that ended it.
  int reap() {
    if (reaped_) return 0;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    reaped_ = true;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  const pid_t pid_;
  bool reaped_ = false;
};

TEST_F(RankSetTest, ADeadProcessOfOurHostIsALossAtOnce) {
  LocalProcess process;
  Hello local = hello(1, host_key());
  local.pid = process.pid();
  say("a", hello(0));
  say("b", local);
  set_->tick(now_);
  EXPECT_EQ(set_->phase(), RankSet::Phase::kLoading);
  process.end();
  process.reap();
  set_->tick(now_);  // no heartbeat limit has passed
  expect_broken(" ended");
}

TEST_F(RankSetTest, ADeathExplainsTheFaultsOfTheOthers) {
  LocalProcess process;
  Hello local = hello(1, host_key());
  local.pid = process.pid();
  say("a", hello(0));
  say("b", local);
  process.end();
  process.reap();
  say("a", Fault{1, "the exchange was cut"});
  expect_broken("rank 1 (pid ");
}

TEST_F(RankSetTest, AHungProcessOfOurHostIsKilled) {
  LocalProcess process;
  Hello local = hello(1, host_key());
  local.pid = process.pid();
  say("a", hello(0));
  say("b", local);
  for (int i = 0; i < 31; ++i) {
    pass(100ms);
    beat("a");
  }
  expect_broken("is silent");
  EXPECT_EQ(process.reap(), SIGKILL);
  EXPECT_TRUE(sent<Abort>("b").empty());
}

TEST_F(RankSetTest, ASurvivorThatDoesNotLeaveIsKilledAfterTheGrace) {
  LocalProcess process;
  Hello local = hello(0, host_key());
  local.pid = process.pid();
  say("a", local);
  say("b", hello(1));
  say("b", Fault{1, "broken"});
  expect_broken("broken");
  EXPECT_EQ(sent<Abort>("a").size(), 1u);
  pass(1000ms);
  EXPECT_EQ(::kill(process.pid(), 0), 0);
  EXPECT_EQ(::waitpid(process.pid(), nullptr, WNOHANG), 0);  // alive within the grace
  pass(1100ms);
  EXPECT_EQ(process.reap(), SIGKILL);
}

}  // namespace
}  // namespace helios
