#include "coordinator/engine/request_inbox.h"

#include "common/base/check.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace helios {

Status RequestInbox::push(std::vector<ArrivedSequence> sequences) {
  {
    std::lock_guard lock(mutex_);
    if (!refusal_.empty()) return Error{Errc::kUnavailable, refusal_};
    if (sequences.size() > max_waiting_ - waiting_) {
      return Error{Errc::kQueueFull, fmt::format("{} sequences are waiting and the limit is {}; try again later",
                                                 waiting_, max_waiting_)};
    }
    waiting_ += sequences.size();
    std::move(sequences.begin(), sequences.end(), std::back_inserter(pending_.arrived));
  }
  wake();
  return Ok{};
}

void RequestInbox::cancel(RequestId id) {
  {
    std::lock_guard lock(mutex_);
    pending_.cancelled.push_back(id);
  }
  wake();
}

RequestInbox::Taken RequestInbox::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(pending_, {});
}

void RequestInbox::no_longer_waiting(size_t n) {
  std::lock_guard lock(mutex_);
  HELIOS_CHECK(n <= waiting_, n, waiting_);
  waiting_ -= n;
}

void RequestInbox::set_refusal(std::string reason) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(reason);
}

size_t RequestInbox::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace helios
