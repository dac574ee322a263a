// The key-value store through which one incarnation's ranks find each other (Gloo addresses, NCCL's unique id).
//
// A get for a key that is not there yet is answered when it appears. Bounded, since peers fill it. Thread: engine.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "common/contract/control.h"

namespace helios {

class BootstrapStore {
 public:
  static constexpr size_t kMaxBytes = size_t{16} << 20;  // keys, values and waiting gets together
  static constexpr size_t kMaxEntries = 16384;

  struct Answer {
    std::string identity;
    StoreValue value;
  };

  /// The answers that this set makes possible. A key set twice keeps the last value. Errors: kTooLarge.
  Result<std::vector<Answer>> set(StoreSet message);
  /// At once, or nothing now. Errors: kTooLarge.
  Result<std::vector<Answer>> get(const std::string& identity, StoreGet message);

 private:
  Status charge(size_t bytes);

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::vector<std::string>> waiting_;  // key to identities
  size_t bytes_ = 0;
  size_t entries_ = 0;
};

}  // namespace helios
