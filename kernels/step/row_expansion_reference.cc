// Each lane's positions first, then its rows from them.
#include "kernels/step/reference.h"

namespace helios::reference {
namespace {

std::vector<int32_t> lane_positions(const RowExpansionArgs& a, const LaneInput& lane) {
  std::vector<int32_t> out;
  for (int32_t t = 0; lane.decodes && t <= lane.num_tokens; ++t) out.push_back(a.slots[lane.slot].position + t);
  if (lane.decodes) return out;
  for (int32_t t = 0; t < lane.num_tokens; ++t) out.push_back(lane.start + t);
  return out;
}

LaneFate lane_fate(const RowExpansionArgs& a, const LaneInput& lane) {
  const SlotState& slot = a.slots[lane.slot];
  const bool owned = slot.epoch != 0 && slot.epoch == lane.epoch;
  if (!owned || slot.finished) return LaneFate::kDead;
  const bool continues = lane.decodes ? slot.last_token >= 0 : slot.position == 0 || slot.position == lane.start;
  if (!continues) return LaneFate::kBroken;
  // A row reads the keys of every position up to its own.
  for (int32_t p = 0; p <= lane_positions(a, lane).back(); ++p) {
    if (p >= a.max_model_len || a.block_tables[lane.slot * a.max_blocks + p / a.block_size] < 0)
      return LaneFate::kBroken;
  }
  return LaneFate::kRuns;
}

}  // namespace

Rows expand_rows(const RowExpansionArgs& a) {
  Rows out;
  for (int32_t i = 0; i < a.inputs.header->num_lanes; ++i) {
    const LaneInput& lane = a.inputs.lanes[i];
    out.fates.push_back(lane_fate(a, lane));
    out.halves.push_back(a.private_roles ? (lane.decodes ? 1 : 0) : a.inputs.header->frame);
    const bool runs = out.fates.back() == LaneFate::kRuns;
    out.sampling.push_back(runs && lane.samples ? static_cast<int32_t>(out.sampling_rows.size()) : -1);
    if (!runs) continue;
    const int32_t* given = a.inputs.prompt_tokens + lane.first_token;
    std::vector<int32_t> tokens(given, given + lane.num_tokens);
    if (lane.decodes) tokens.insert(tokens.begin(), a.slots[lane.slot].last_token);
    const std::vector<int32_t> positions = lane_positions(a, lane);
    const size_t first_sampling = !lane.samples ? tokens.size() : lane.decodes ? 0 : tokens.size() - 1;
    for (size_t t = 0; t < tokens.size(); ++t) {
      out.tokens.push_back(tokens[t]);
      out.positions.push_back(positions[t]);
      out.slots.push_back(lane.slot);
      if (t < first_sampling) continue;
      out.sampling_rows.push_back(static_cast<int32_t>(out.tokens.size()) - 1);
      out.sampling_slots.push_back(lane.slot);
      out.sampling_epochs.push_back(lane.epoch);
      out.sampling_positions.push_back(positions[t] + 1);
      out.sampling_halves.push_back(out.halves.back());
      out.sampling_tokens.push_back(static_cast<int32_t>(t - first_sampling));
    }
  }
  return out;
}

}  // namespace helios::reference
