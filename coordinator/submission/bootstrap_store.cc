#include "coordinator/submission/bootstrap_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace helios {

Status BootstrapStore::charge(size_t bytes) {
  if (entries_ >= kMaxEntries || bytes > kMaxBytes - bytes_) {
    return Error{Errc::kTooLarge,
                 fmt::format("bootstrap store: more than {} entries or {} bytes", kMaxEntries, kMaxBytes)};
  }
  entries_ += 1;
  bytes_ += bytes;
  return Ok{};
}

Result<std::vector<BootstrapStore::Answer>> BootstrapStore::set(StoreSet message) {
  if (auto status = charge(message.key.size() + message.value.size()); !status) return status.error();
  std::vector<Answer> answers;
  if (const auto it = waiting_.find(message.key); it != waiting_.end()) {
    for (std::string& identity : it->second) {
      answers.push_back({std::move(identity), {message.key, message.value}});
    }
    waiting_.erase(it);
  }
  values_.insert_or_assign(std::move(message.key), std::move(message.value));
  return answers;
}

Result<std::vector<BootstrapStore::Answer>> BootstrapStore::get(const std::string& identity, StoreGet message) {
  if (const auto it = values_.find(message.key); it != values_.end()) {
    return std::vector<Answer>{{identity, {it->first, it->second}}};
  }
  std::vector<std::string>& waiting = waiting_[message.key];
  if (std::find(waiting.begin(), waiting.end(), identity) != waiting.end())
    return std::vector<Answer>{};  // asked again
  if (auto status = charge(message.key.size() + identity.size()); !status) return status.error();
  waiting.push_back(identity);
  return std::vector<Answer>{};
}

}  // namespace helios
