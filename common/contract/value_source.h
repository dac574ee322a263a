// Where a graph input's value comes from. Stable numbers: they stand in manifests and on the wire.
#pragma once

#include <cstdint>

namespace helios {

enum class ValueSource : int32_t {
  kNone = 0,
  kLaneSlots = 1,              // int32[lanes]
  kLaneEpochs = 2,             // int32[lanes]
  kLaneRoles = 3,              // int32[lanes]
  kLaneSamples = 4,            // int32[lanes]
  kRowTokens = 5,              // int32[rows]; -1: the slot's last token
  kRowLanes = 6,               // int32[rows]
  kRowPositions = 7,           // int32[rows]; -1: the slot's position
  kRowCount = 8,               // int32[1]
  kLaneCount = 9,              // int32[1]
  kBlockTables = 10,           // int32[capacity, max_blocks]
  kSlotStates = 11,            // one state a slot, written by admissions
  kFrame = 12,                 // int32[1], 0 or 1
  kSequence = 13,              // int64[1]
  kLogprobRequested = 20,      // int32[capacity]
  kLogprobTokenIds = 21,       // int32[capacity, 128]
  kLogprobTokenIdCounts = 22,  // int32[capacity]
  kPromptTargetToken = 39,     // logprobs contract: PROMPT_TARGET_TOKEN
};

}  // namespace helios
