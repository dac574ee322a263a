// A handful of small writes: one thread.
#include "kernels/step/updates.h"

#include <algorithm>

namespace helios {

void apply_updates(const UpdatesArgs& args, const Launcher&) {
  const StepHeader& header = *args.inputs.header;
  for (int32_t i = 0; i < header.num_admissions; ++i) {
    const AdmissionInput& a = args.inputs.admissions[i];
    args.slots[a.slot] = a.state;
    args.sampling[a.slot] = a.sampling;
    std::fill_n(args.block_tables + int64_t{a.slot} * args.max_blocks, args.max_blocks, -1);
  }
  for (int32_t i = 0; i < header.num_block_updates; ++i) {
    const BlockUpdateInput& u = args.inputs.block_updates[i];
    args.block_tables[int64_t{u.slot} * args.max_blocks + u.index] = u.block;
  }
}

}  // namespace helios
