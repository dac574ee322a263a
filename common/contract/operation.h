// What a graph does. Stable numbers: they stand in records, in manifests and on the wire.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace helios {

enum class Operation : int32_t {
  kInvalid = 0,
  kAdmission = 1,
  kPrefill = 2,
  kDecode = 3,
  kMixed = 4,
  kVerify = 5,
  kDraft = 6,
  kMaintenance = 7,
  kVision = 8,
  kCacheRestore = 9,
  kCachePublish = 10,
  kReserved = 11,
  kScoredPrefill = 12,  // logprobs contract: SCORED_PREFILL
};

std::string_view to_string(Operation operation);
std::optional<Operation> operation_from_number(int32_t number);

}  // namespace helios
