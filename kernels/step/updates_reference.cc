// What every slot holds after the updates, entry by entry.
#include "kernels/step/reference.h"

namespace helios::reference {

Slots apply_updates(const UpdatesArgs& a, int32_t capacity) {
  Slots out;
  for (int32_t slot = 0; slot < capacity; ++slot) {
    const AdmissionInput* admission = nullptr;
    for (int32_t i = 0; i < a.inputs.header->num_admissions; ++i) {
      if (a.inputs.admissions[i].slot == slot) admission = &a.inputs.admissions[i];
    }
    out.states.push_back(admission ? admission->state : a.slots[slot]);
    out.sampling.push_back(admission ? admission->sampling : a.sampling[slot]);
    for (int32_t b = 0; b < a.max_blocks; ++b) {
      int32_t block = admission ? -1 : a.block_tables[slot * a.max_blocks + b];
      for (int32_t i = 0; i < a.inputs.header->num_block_updates; ++i) {
        const BlockUpdateInput& u = a.inputs.block_updates[i];
        if (u.slot == slot && u.index == b) block = u.block;
      }
      out.block_tables.push_back(block);
    }
  }
  return out;
}

}  // namespace helios::reference
