#include "coordinator/engine/sequence_pipe.h"

#include "common/base/check.h"

#include <algorithm>
#include <utility>

namespace helios {
namespace {

bool is_last(const SequenceEvent& event) {
  if (const auto* token = std::get_if<TokenEvent>(&event)) return token->finish != FinishCode::kNone;
  if (const auto* scores = std::get_if<PromptScores>(&event)) return scores->finish != FinishCode::kNone;
  return true;
}

}  // namespace

size_t SequencePipe::weight_of(const SequenceEvent& event) const {
  return std::holds_alternative<PromptScores>(event) ? std::max<size_t>(1, capacity_ / 8) : 1;
}

void SequencePipe::push(SequenceEvent event) {
  std::lock_guard lock(mutex_);
  if (cancelled_) return;
  HELIOS_CHECK(!ended_, id_.value);
  ended_ = is_last(event);
  weight_ += weight_of(event);
  events_.push_back(std::move(event));
}

bool SequencePipe::is_behind(size_t headroom) {
  std::lock_guard lock(mutex_);
  if (!behind_ && weight_ + headroom > capacity_ && !events_.empty()) behind_ = true;
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
    weight_ -= weight_of(*event);
    caught_up = behind_ && weight_ <= capacity_ / 2;
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
    weight_ = 0;
    if (ended_) return;  // the engine has let go of it already
  }
  inbox_->cancel(id_);
}

}  // namespace helios
