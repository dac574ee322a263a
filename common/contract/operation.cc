#include "common/contract/operation.h"

namespace helios {

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::kInvalid: return "invalid";
    case Operation::kAdmission: return "admission";
    case Operation::kPrefill: return "prefill";
    case Operation::kDecode: return "decode";
    case Operation::kMixed: return "mixed";
    case Operation::kVerify: return "verify";
    case Operation::kDraft: return "draft";
    case Operation::kMaintenance: return "maintenance";
    case Operation::kVision: return "vision";
    case Operation::kCacheRestore: return "cache_restore";
    case Operation::kCachePublish: return "cache_publish";
    case Operation::kReserved: return "reserved";
    case Operation::kScoredPrefill: return "scored_prefill";
  }
  return "unknown";
}

std::optional<Operation> operation_from_number(int32_t number) {
  if (number < 0 || number > static_cast<int32_t>(Operation::kScoredPrefill)) return std::nullopt;
  return static_cast<Operation>(number);
}

}  // namespace helios
