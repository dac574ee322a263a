// What comes back from a rank for one submission: the records of its lanes and the requested part of the payload.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/completion_layout.h"

namespace helios {

/// One requesting slot's packed positions, [emitted][packed_words(width)] int32, row-major.
struct CompletionPayload {
  SlotIndex slot;
  std::vector<int32_t> words;
  friend bool operator==(const CompletionPayload&, const CompletionPayload&) = default;
};

struct Completion {
  uint32_t incarnation = 0;
  Sequence sequence;
  FrameIndex frame;
  Rank rank;
  int32_t token_capacity = 0;  // T
  uint64_t record_digest = 0;  // over every lane's record words; ranks must agree (R28: records, never payloads)
  // Rank 0 only; empty elsewhere.
  std::vector<int64_t> records;  // [lanes, 16 + T], lane order
  int32_t width = 0;             // W: alternatives copied for this frame; 0 pairs copied when nobody asked
  std::vector<CompletionPayload> payloads;
  // Of a scored prefill, one row for each prompt token of the submission, lane order: [prompt tokens, 43] int32. R40.
  std::vector<int32_t> prompt_rows;
  int64_t bytes_copied = 0;      // device to host, for the counters
  friend bool operator==(const Completion&, const Completion&) = default;
};

}  // namespace helios
