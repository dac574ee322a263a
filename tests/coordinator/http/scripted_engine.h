// An EngineClient whose tokens a test dictates: it keeps what was submitted, and says whether a stream was cancelled.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "coordinator/engine/engine_client.h"

namespace helios::testing {

class ScriptedStream final : public SequenceStream {
 public:
  explicit ScriptedStream(std::function<void()> notify) : notify_(std::move(notify)) {}

  std::optional<SequenceEvent> try_pop() override {
    std::lock_guard lock(mutex_);
    if (events_.empty()) return std::nullopt;
    SequenceEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void cancel() override {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

  void push(SequenceEvent event) {
    {
      std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    notify_();
  }
  void token(TokenId id, FinishCode finish = FinishCode::kNone) {
    TokenEvent event;
    event.token = id;
    event.finish = finish;
    push(std::move(event));
  }
  size_t unread() {
    std::lock_guard lock(mutex_);
    return events_.size();
  }
  bool wait_for_cancel(std::chrono::milliseconds limit = std::chrono::seconds(5)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return cancelled_; });
  }

 private:
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SequenceEvent> events_;
  bool cancelled_ = false;
};

class ScriptedEngine final : public EngineClient {
 public:
  ScriptedEngine() {
    status_.ready = true;
    status_.incarnation = 1;
    status_.capabilities = Capabilities{.vocab_size = 300,
                                        .max_model_len = 4096,
                                        .slot_capacity = 4,
                                        .token_capacity = 8,
                                        .prefill_chunk = 64,
                                        .kv_block_size = 16,
                                        .kv_num_blocks = 1024,
                                        .max_logprobs = 20,
                                        .logprob_token_ids = true,
                                        .prompt_scoring = true};
    RankStatus rank;
    rank.rank = Rank(0);
    rank.pid = 4242;
    rank.state = RankState::kReady;
    rank.device = "cpu";
    rank.heartbeat_age_s = 0.25;
    status_.ranks = {rank};
  }

  Result<std::vector<std::shared_ptr<SequenceStream>>> submit(std::vector<SequenceRequest> requests,
                                                              Notify notify) override {
    std::lock_guard lock(mutex_);
    if (refusal_) return *refusal_;
    std::vector<std::shared_ptr<SequenceStream>> out;
    for (SequenceRequest& request : requests) {
      requests_.push_back(std::move(request));
      streams_.push_back(std::make_shared<ScriptedStream>(notify));
      out.push_back(streams_.back());
    }
    changed_.notify_all();
    return out;
  }
  EngineStatus status() const override {
    std::lock_guard lock(mutex_);
    return status_;
  }

  /// The i-th sequence ever submitted; null after 5 s.
  std::shared_ptr<ScriptedStream> stream(size_t i) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(5), [&] { return streams_.size() > i; });
    return streams_.size() > i ? streams_[i] : nullptr;
  }
  SequenceRequest request(size_t i) {
    std::lock_guard lock(mutex_);
    return requests_.at(i);
  }
  void refuse(std::optional<Error> error) {
    std::lock_guard lock(mutex_);
    refusal_ = std::move(error);
  }
  void change(const std::function<void(EngineStatus&)>& action) {
    std::lock_guard lock(mutex_);
    action(status_);
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  EngineStatus status_;
  std::optional<Error> refusal_;
  std::vector<SequenceRequest> requests_;
  std::vector<std::shared_ptr<ScriptedStream>> streams_;
};

}  // namespace helios::testing
