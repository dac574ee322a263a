#include "coordinator/engine/sequence_pipe.h"

#include "common/base/check.h"

#include <utility>

namespace helios {
namespace {

bool is_last(const SequenceEvent& event) {
  const auto* token = std::get_if<TokenEvent>(&event);
  return !token || token->finish != FinishCode::kNone;
}

}  // namespace

void SequencePipe::push(SequenceEvent event) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return;
  HELIOS_CHECK(!ended_, id_.value);
  ended_ = is_last(event);
  events_.push_back(std::move(event));
}

bool SequencePipe::is_behind(size_t headroom) {
  std::lock_guard lock(mutex_);
  if (!behind_ && events_.size() + headroom > capacity_ && !events_.empty()) behind_ = true;
  return behind_;
}

std::optional<SequenceEvent> SequencePipe::try_pop() {
  bool caught_up = false;
  std::optional<SequenceEvent> event;
  {
    std::lock_guard lock(mutex_);
    if (events_.empty()) return std::nullopt;
    event = std::move(events_.front());
    events_.pop_front();
    caught_up = behind_ && events_.size() <= capacity_ / 2;
    if (caught_up) behind_ = false;
  }
  if (caught_up) inbox_->wake();
  return event;
}

void SequencePipe::cancel() {
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    events_.clear();
    if (ended_) return;  // the engine has let go of it already
  }
  inbox_->cancel(id_);
}

}  // namespace helios
