// The digest as its header describes it.
#include "common/contract/completion_layout.h"
#include "kernels/step/reference.h"

namespace helios::reference {
namespace {

uint64_t digest_of(const std::vector<uint64_t>& words) {
  uint64_t digest = 0x243f6a8885a308d3u;
  for (const uint64_t word : words) {
    digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
    digest ^= digest >> 29;
  }
  return digest;
}

}  // namespace

uint64_t step_digest(const StepSummaryArgs& a) {
  const StepHeader& h = *a.inputs.header;
  std::vector<int32_t> slots;
  for (int32_t i = 0; i < h.num_lanes; ++i) slots.push_back(a.inputs.lanes[i].slot);
  for (int32_t i = 0; h.num_lanes == 0 && i < h.num_admissions; ++i) slots.push_back(a.inputs.admissions[i].slot);
  std::vector<uint64_t> lanes;
  const int words = record_words(a.token_capacity);
  for (const int32_t slot : slots) {
    const int64_t* record = a.records + (h.frame * a.capacity + slot) * words;
    lanes.push_back(digest_of({record, record + words}));
  }
  return digest_of(lanes);
}

}  // namespace helios::reference
