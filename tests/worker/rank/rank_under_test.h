// A rank's threads in the test's process, around an executor whose every step the test decides.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/rank/test_coordinator.h"
#include "worker/rank/rank_process.h"

namespace helios::testing {

/// What the executor of a test does at each step; shared with the test.
struct StepScript {
  std::function<Status(const Submission&)> on_submit;  // unset: takes it
  std::function<void(Completion&)> on_collect;         // unset: as submitted
  bool exchanges = false;                              // every step is a barrier of the group

  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;  // steps do not complete
  std::vector<uint64_t> submitted;

  void hold(bool on) {
    {
      std::lock_guard lock(mutex);
      held = on;
    }
    changed.notify_all();
  }
  std::vector<uint64_t> seen() {
    std::lock_guard lock(mutex);
    return submitted;
  }
};

/// Takes submissions in submit(), completes them in order in collect(): the threads and the link are real, the model is
/// not there.
class ScriptedExecutor final : public Executor {
 public:
  ScriptedExecutor(std::shared_ptr<StepScript> script, Communicator& communicator)
      : script_(std::move(script)), communicator_(communicator) {
    manifest_.model_type = "scripted";
    manifest_.device = "cpu";
    manifest_.dtype = "float32";
    manifest_.kv_cache_dtype = "float32";
    manifest_.vocab_size = 300;
    manifest_.slot_capacity = 4;
    manifest_.token_capacity = 8;
  }

  const CoreManifest& manifest() const override { return manifest_; }

  Status submit(const Submission& submission) override {
    if (script_->on_submit) {
      if (Status status = script_->on_submit(submission); !status.ok()) return status;
    }
    if (script_->exchanges) communicator_.barrier();
    std::lock_guard lock(script_->mutex);
    script_->submitted.push_back(submission.sequence.value);
    in_flight_.push_back(submission);
    return Ok{};
  }

  Completion collect() override {
    std::unique_lock lock(script_->mutex);
    script_->changed.wait(lock, [&] { return !script_->held; });
    Completion completion;
    completion.sequence = in_flight_.front().sequence;
    completion.frame = in_flight_.front().frame;
    completion.rank = communicator_.rank();
    completion.token_capacity = 8;
    completion.record_digest = completion.sequence.value * 1000;
    in_flight_.pop_front();
    if (script_->on_collect) script_->on_collect(completion);
    return completion;
  }

  bool collectable() const override {
    std::lock_guard lock(script_->mutex);
    return !script_->held && !in_flight_.empty();
  }

  std::vector<Counter> counters() const override {
    std::lock_guard lock(script_->mutex);
    return {{"helios_test_steps_total", "Steps.", static_cast<double>(script_->submitted.size())}};
  }

 private:
  const std::shared_ptr<StepScript> script_;
  Communicator& communicator_;
  CoreManifest manifest_;
  std::deque<Submission> in_flight_;
};

inline std::atomic<uint64_t> g_next_life{1};

/// One rank; its "process" ends when serve_rank() returns, or when the link says that it must.
class RankUnderTest {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds silence_limit{20000};
    std::chrono::milliseconds first_contact_limit{20000};
    std::chrono::milliseconds leave_limit{20000};
    std::chrono::milliseconds collective_timeout{20000};
    PrepareCore prepare;  // unset: a ScriptedExecutor
  };

  RankUnderTest(const std::string& endpoint, Options options) : script(std::make_shared<StepScript>()) {
    hello_ = {.rank = Rank(options.rank),
              .world_size = options.world_size,
              .life = g_next_life++,
              .pid = ::getpid(),
              .host_key = "boot/pid:[1]",
              .host_name = "127.0.0.1",
              .device = "cpu",
              .status_url = "http://127.0.0.1:1"};
    LinkConfig config{.endpoint = endpoint,
                      .hello = hello_,
                      .silence_limit = options.silence_limit,
                      .first_contact_limit = options.first_contact_limit,
                      .leave_limit = options.leave_limit,
                      .termination_requested = [this] { return terminated_.load(); },
                      .end_process = [this](int code) { ended_by_link = code; }};
    PrepareCore prepare = options.prepare;
    if (!prepare) {
      prepare = [this](Communicator& communicator, const std::function<void(double)>& progress) {
        progress(0.5);
        return PreparedCore{.executor = std::make_unique<ScriptedExecutor>(script, communicator)};
      };
    }
    thread_ = std::thread([this, config, prepare, timeout = options.collective_timeout] {
      CoordinatorLink link(config, vitals, wake_);
      const int code = serve_rank(hello_, timeout, prepare, link, vitals);
      exit_code_.set_value(code);
      ended_ = true;
    });
  }
  explicit RankUnderTest(const std::string& endpoint) : RankUnderTest(endpoint, Options{}) {}
  ~RankUnderTest() {
    terminate();  // when a test gives up early
    script->hold(false);
    thread_.join();
  }

  const Hello& hello() const { return hello_; }
  void terminate() {
    terminated_ = true;
    wake_.notify();
  }
  bool ended() const { return ended_; }
  int exit_code() {
    auto future = exit_code_.get_future();
    if (future.wait_for(kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "the rank does not end";
      std::abort();  // its thread cannot be ended otherwise
    }
    return future.get();
  }

  std::shared_ptr<StepScript> script;
  RankVitals vitals;
  std::atomic<int> ended_by_link{-1};

 private:
  Hello hello_;
  WakeEvent wake_;
  std::atomic<bool> terminated_{false}, ended_{false};
  std::promise<int> exit_code_;
  std::thread thread_;
};

inline Submission step(uint32_t incarnation, uint64_t sequence) {
  Submission submission;
  submission.incarnation = incarnation;
  submission.sequence = Sequence(sequence);
  submission.frame = FrameIndex(static_cast<int32_t>(sequence % 2));
  submission.operation = Operation::kDecode;
  return submission;
}

/// Welcomes one rank into a set of its own and waits until it is ready. Returns its identity.
inline std::string open_single(TestCoordinator& coordinator, uint32_t incarnation) {
  const auto [identity, hello] = coordinator.expect_control<Hello>();
  coordinator.send(identity, Welcome{incarnation, hello.world_size, "group", "shm"});
  const Ready ready = coordinator.expect_control<Ready>().second;
  EXPECT_EQ(ready.incarnation, incarnation);
  return identity;
}

template <class Check>
bool eventually(Check check) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (check()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

}  // namespace helios::testing
