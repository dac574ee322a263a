// Connections -> engine: new sequences and cancels, bounded; a full inbox is 429, a closed one 503.
//
// The bound counts sequences that wait for a slot, wherever they wait: here or in the scheduler's queue. Streams
// outlive the engine, so the inbox is shared and ends up answering nobody. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/net/wake_event.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/scheduler/request_state.h"

namespace helios {

class SequencePipe;
class TokenMask;

/// Who waits for the streams of one submit().
struct StreamWaiter {
  Notify notify;
  bool due = false;  // engine: to be notified at the end of this turn
};

struct ArrivedSequence {
  RequestId id;
  RequestSpec spec;
  int32_t num_logprobs = 0;
  int32_t num_prompt_logprobs = 0;
  std::shared_ptr<TokenMask> mask;  // null: none
  std::shared_ptr<SequencePipe> pipe;
  std::shared_ptr<StreamWaiter> waiter;  // shared by the sequences of one submit()
  std::chrono::steady_clock::time_point arrived;
};

class RequestInbox {
 public:
  explicit RequestInbox(size_t max_waiting) : max_waiting_(max_waiting) {}

  /// All or nothing. Errors: kQueueFull, kUnavailable.
  Status push(std::vector<ArrivedSequence> sequences);
  void cancel(RequestId id);
  void wake() noexcept { wake_.notify(); }

  struct Taken {
    std::vector<ArrivedSequence> arrived;
    std::vector<RequestId> cancelled;
  };
  /// Engine. A cancel never precedes its sequence.
  Taken take();
  /// Engine: `n` sequences got their slot, or left before.
  void no_longer_waiting(size_t n);
  /// Engine: refuses new sequences with kUnavailable and this reason; empty: accepts.
  void set_refusal(std::string reason);

  size_t waiting() const;
  int wake_fd() const { return wake_.fd(); }

 private:
  const size_t max_waiting_;
  WakeEvent wake_;
  mutable std::mutex mutex_;
  std::string refusal_ = "starting";
  size_t waiting_ = 0;
  Taken pending_;
};

}  // namespace helios
