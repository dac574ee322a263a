// Engine -> one connection: the bounded pipe of one sequence's events.
//
// The engine asks is_behind() before it plans more; a consumer that has fallen behind costs its own sequence's speed
// and nobody else's. A chunk of prompt scores weighs as much as an eighth of the pipe: a few of them are buffered,
// however long the prompt (R31). Events go in on the engine thread and come out on the connection's strand.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "common/base/ids.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/engine/request_inbox.h"

namespace helios {

class SequencePipe {
 public:
  SequencePipe(RequestId id, size_t capacity, std::shared_ptr<RequestInbox> inbox)
      : id_(id), capacity_(capacity), inbox_(std::move(inbox)) {}

  /// Engine. Dropped when the consumer has cancelled.
  void push(SequenceEvent event);

  /// Engine: before the first event.
  void set_cached_tokens(int64_t tokens) { cached_tokens_ = tokens; }
  int64_t cached_tokens() const { return cached_tokens_; }

  /// Engine: true from when fewer than `headroom` places are left (what frames in flight may still bring) until the
  /// consumer has emptied half; it wakes the engine then.
  bool is_behind(size_t headroom);

  std::optional<SequenceEvent> try_pop();
  void cancel();

 private:
  const RequestId id_;
  const size_t capacity_;
  const std::shared_ptr<RequestInbox> inbox_;
  std::atomic<int64_t> cached_tokens_{0};
  size_t weight_of(const SequenceEvent& event) const;

  std::mutex mutex_;
  std::deque<SequenceEvent> events_;
  size_t weight_ = 0;  // of events_, against capacity_
  bool behind_ = false;
  bool ended_ = false;  // the last event went in
  bool cancelled_ = false;
};

/// The consumer's end: dropping it cancels.
class PipeStream final : public SequenceStream {
 public:
  explicit PipeStream(std::shared_ptr<SequencePipe> pipe) : pipe_(std::move(pipe)) {}
  ~PipeStream() override { pipe_->cancel(); }
  std::optional<SequenceEvent> try_pop() override { return pipe_->try_pop(); }
  int64_t cached_tokens() const override { return pipe_->cached_tokens(); }
  void cancel() override { pipe_->cancel(); }

 private:
  const std::shared_ptr<SequencePipe> pipe_;
};

}  // namespace helios
