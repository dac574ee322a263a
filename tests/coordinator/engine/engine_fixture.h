// An engine with scripted ranks over real sockets, and a client that collects what arrives.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"
#include "tests/support/scripted_rank.h"

namespace helios::testing {

using namespace std::chrono_literals;

/// Polls until it holds or half a minute has passed: long enough for any machine, never reached when all is well.
inline bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < limit) {
    if (condition()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return condition();
}

/// Counts what the engine tells; read after the engine has stopped, or through its atomics.
class CountingObserver final : public EngineObserver {
 public:
  void on_tokens(int64_t prompt, int64_t generated) override { prompt_tokens += prompt, generated_tokens += generated; }
  void on_prefix_lookup(int64_t prompt, int64_t cached, int64_t host) override {
    looked_up += prompt, found_cached += cached, found_on_host += host;
  }
  void on_preempted(int64_t sequences) override { preempted += sequences; }
  void on_first_token(double queue, double ttft) override {
    EXPECT_GE(queue, 0.0);
    EXPECT_GE(ttft, queue);
    ++first_tokens;
  }
  void on_inter_token(double, int64_t tokens) override { inter_tokens += tokens; }
  void on_verified(int32_t offered, int32_t accepted) override {
    EXPECT_LE(accepted, offered);
    ++rounds, proposed += offered, came_true += accepted;
  }
  void on_finished(const Finished& f) override {
    ++(f.failed ? failed : f.cancelled ? cancelled : finished);
    EXPECT_GE(f.e2e_seconds, f.prefill_seconds + f.decode_seconds - 1e-6);
  }
  void on_frame(const Frame& frame) override {
    ++(frame.requested ? requesting_frames : plain_frames);
    records += frame.records;
    payload_received += frame.payload_bytes;
  }

  std::atomic<int64_t> records{0}, payload_received{0};
  std::atomic<int64_t> prompt_tokens{0}, generated_tokens{0}, first_tokens{0}, inter_tokens{0};
  std::atomic<int64_t> rounds{0}, proposed{0}, came_true{0};
  std::atomic<int64_t> looked_up{0}, found_cached{0}, found_on_host{0}, preempted{0};
  std::atomic<int> finished{0}, cancelled{0}, failed{0}, requesting_frames{0}, plain_frames{0};
};

/// One submit() and its streams.
class Client {
 public:
  struct Outcome {
    std::vector<TokenEvent> tokens;
    std::vector<PromptScore> scores;  // from position 1 on
    std::optional<FinishCode> finish;
    std::optional<Error> error;
    bool ended = false;
  };

  Status submit(Engine& engine, std::vector<SequenceRequest> requests) {
    // The engine may call after this object is gone: the state is shared.
    auto wake = [signal = signal_] {
      std::lock_guard lock(signal->mutex);
      signal->raised = true;
      signal->changed.notify_all();
    };
    auto streams = engine.submit(std::move(requests), {.mark = [] {}, .wake = std::move(wake)});
    if (!streams) return streams.error();
    streams_ = *std::move(streams);
    outcomes_.resize(streams_.size());
    return Ok{};
  }

  /// Reads until every stream has ended.
  const std::vector<Outcome>& wait() {
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!read()) {
      std::unique_lock lock(signal_->mutex);
      if (!signal_->changed.wait_until(lock, limit, [&] { return signal_->raised; })) {
        ADD_FAILURE() << "streams did not end";
        break;
      }
      signal_->raised = false;
    }
    return outcomes_;
  }

  /// Takes what is there; true when every stream has ended.
  bool read() {
    bool all = true;
    for (size_t i = 0; i < streams_.size(); ++i) {
      while (streams_[i]) {
        auto event = streams_[i]->try_pop();
        if (!event) break;
        EXPECT_FALSE(outcomes_[i].ended) << "an event after the last";
        if (auto* token = std::get_if<TokenEvent>(&*event)) {
          end(outcomes_[i], token->finish);
          outcomes_[i].tokens.push_back(std::move(*token));
        } else if (const auto* scores = std::get_if<PromptScores>(&*event)) {
          take(outcomes_[i], *scores);
          end(outcomes_[i], scores->finish);
        } else {
          outcomes_[i].error = std::get<Error>(*event);
          outcomes_[i].ended = true;
        }
      }
      all = all && outcomes_[i].ended;
    }
    return all;
  }

  /// R40: chunks come without gaps and repeats, before the tokens.
  static void take(Outcome& outcome, const PromptScores& scores) {
    EXPECT_TRUE(outcome.tokens.empty()) << "prompt scores after a token";
    EXPECT_EQ(scores.first, static_cast<int32_t>(outcome.scores.size()) + 1);
    for (const auto& score : scores.scores) {
      EXPECT_TRUE(score.has_value());
      outcome.scores.push_back(score.value_or(PromptScore{}));
    }
  }
  static void end(Outcome& outcome, FinishCode finish) {
    outcome.ended = finish != FinishCode::kNone;
    if (outcome.ended) outcome.finish = finish;
  }

  SequenceStream& stream(size_t i) { return *streams_[i]; }
  void drop(size_t i) { streams_[i].reset(), outcomes_[i].ended = true; }
  const Outcome& outcome(size_t i) const { return outcomes_[i]; }

 private:
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
    bool raised = false;
  };
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::vector<std::shared_ptr<SequenceStream>> streams_;
  std::vector<Outcome> outcomes_;
};

class EngineFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    static std::atomic<int> counter{0};
    config_.rank_endpoint =
        "ipc:///tmp/helios-engine-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    config_.ranks.world_size = 2;
    config_.ranks.heartbeat_limit = 5s;  // a loaded machine stalls threads; the tests of losses set their own
  }
  void TearDown() override {
    engine_.reset();
    ranks_.clear();
  }

  void start() {
    auto engine = Engine::start(config_, &observer_);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = *std::move(engine);
  }
  /// Where ranks connect.
  virtual std::string rank_endpoint() const { return engine_->rank_endpoint(); }
  /// A full set of ranks with this script.
  void add_ranks(ScriptedRankOptions options = {}) {
    options.endpoint = rank_endpoint();
    options.world_size = config_.ranks.world_size;
    options.core = core_;
    options.period = period_;
    for (int r = 0; r < config_.ranks.world_size; ++r) {
      options.rank = r;
      ranks_.push_back(std::make_unique<ScriptedRank>(options));
    }
  }
  void start_ready(ScriptedRankOptions options = {}) {
    ASSERT_NO_FATAL_FAILURE(start());
    add_ranks(std::move(options));
    ASSERT_TRUE(eventually([&] { return engine_->status().ready; })) << engine_->status().reason;
  }

  static SequenceRequest request(int prompt, int max_tokens, uint64_t seed = 0) {
    SequenceRequest r;
    for (int i = 0; i < prompt; ++i) r.prompt.push_back(static_cast<TokenId>((i * 31 + seed) % 100));
    r.sampling.max_tokens = max_tokens;
    r.sampling.seed = seed;
    return r;
  }

  /// What the toy model says for a request: token ids up to and including the terminating one.
  std::vector<TokenId> expected_tokens(const SequenceRequest& r) const {
    std::vector<TokenId> out, prefix = r.prompt;
    while (static_cast<int>(out.size()) < r.sampling.max_tokens) {
      const TokenId last = toy_token(prefix, r.sampling.seed, core_.vocab_size, period_);
      prefix.push_back(last);
      out.push_back(last);
      const auto& stops = r.sampling.stop_ids;
      if ((last == r.sampling.eos_id && !r.sampling.ignore_eos) || std::count(stops.begin(), stops.end(), last) > 0)
        break;
    }
    return out;
  }
  static SequenceRequest scored_request(int prompt, int max_tokens, int alternatives, uint64_t seed = 0) {
    SequenceRequest r = request(prompt, max_tokens, seed);
    r.prompt_scores = true;
    r.num_prompt_logprobs = alternatives;
    return r;
  }
  /// Every prompt position but the first, once and in order, with the toy model's numbers, then the tokens if any.
  void expect_scored(const SequenceRequest& r, const Client::Outcome& outcome) const {
    ASSERT_FALSE(outcome.error.has_value()) << outcome.error->message;
    ASSERT_EQ(outcome.scores.size(), r.prompt.size() - 1);
    for (size_t p = 1; p < r.prompt.size(); ++p) {
      const PromptScore& score = outcome.scores[p - 1];
      EXPECT_EQ(score.token, r.prompt[p]);
      EXPECT_EQ(score.logprob, toy_logprob(r.prompt[p], static_cast<int64_t>(p)));
      EXPECT_EQ(score.rank, toy_rank(r.prompt[p], static_cast<int64_t>(p)));
      ASSERT_EQ(score.alternatives.size(), static_cast<size_t>(r.num_prompt_logprobs));
      for (int k = 0; k < r.num_prompt_logprobs; ++k) {
        EXPECT_EQ(score.alternatives[k].logprob, -static_cast<float>(k + 1) / 16.0f);
      }
    }
    expect_complete(r, outcome);
  }
  static std::vector<TokenId> ids(const Client::Outcome& outcome) {
    std::vector<TokenId> out;
    for (const TokenEvent& event : outcome.tokens) out.push_back(event.token);
    return out;
  }
  /// Exactly the toy model's tokens, ended, no error.
  void expect_complete(const SequenceRequest& r, const Client::Outcome& outcome) const {
    EXPECT_FALSE(outcome.error.has_value()) << outcome.error->message;
    EXPECT_TRUE(outcome.ended);
    EXPECT_EQ(ids(outcome), expected_tokens(r));
  }
  void expect_idle() const {
    EXPECT_TRUE(eventually([&] {
      const EngineStatus status = engine_->status();
      return status.running == 0 && status.waiting == 0 && status.kv_cache_usage == 0.0;
    })) << engine_->status().running
        << " running, " << engine_->status().kv_cache_usage << " of the cache in use";
  }

  EngineConfig config_;
  SmallCoreOptions core_;
  size_t period_ = 0;  // of what the ranks say
  CountingObserver observer_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<ScriptedRank>> ranks_;
};

}  // namespace helios::testing
