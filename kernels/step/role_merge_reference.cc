// Every word of both frames: from which role, or left as it is.
#include "common/contract/completion_layout.h"
#include "kernels/step/reference.h"

namespace helios::reference {

Frames merge_roles(const RoleMergeArgs& a) {
  Frames out;
  const int words = record_words(a.token_capacity), slot_words = a.token_capacity * a.packed_words;
  for (int32_t frame = 0; frame < kNumFrames; ++frame) {
    for (int32_t slot = 0; slot < a.capacity; ++slot) {
      int role = -1;  // of the slot's lane
      for (int32_t i = 0; i < a.inputs.header->num_lanes; ++i) {
        if (a.inputs.lanes[i].slot == slot && frame == a.inputs.header->frame) role = a.inputs.lanes[i].decodes ? 1 : 0;
      }
      for (int w = 0; w < words; ++w) {
        out.records.push_back(role < 0 ? a.records[(frame * a.capacity + slot) * words + w]
                                       : a.role_records[(role * a.capacity + slot) * words + w]);
      }
      const int64_t emitted = role < 0 || a.requested[slot] == 0
                                  ? 0
                                  : a.role_records[(role * a.capacity + slot) * words + record_word::kEmitted];
      for (int w = 0; w < slot_words; ++w) {
        const bool merged = w < emitted * a.packed_words;
        out.packed.push_back(merged ? a.role_packed[(role * a.capacity + slot) * slot_words + w]
                                    : a.packed[(frame * a.capacity + slot) * slot_words + w]);
      }
    }
  }
  return out;
}

}  // namespace helios::reference
