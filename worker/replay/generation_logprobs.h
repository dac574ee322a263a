// Logprobs of the tokens that a step emitted: prepared launches over this rank's raw logits and, at TP > 1, two
// all-gathers of 256 words a position a rank. Never a vocabulary on the wire, no allocation after construction.
//
// Four launches at TP 1 (R21), six at TP > 1 (R22); the same bits either way: tiles fold into the eight canonical
// vocabulary segments, and segments into one tree. Before them one small launch lists the positions from the records
// that the commit has just written (R15, R16): it belongs to the token writer, all the others read its list, and when
// it is empty they read and write nothing (R24). Thread: rank.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/vocab_range.h"
#include "common/contract/completion_layout.h"
#include "kernels/base/step_counters.h"
#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"

namespace helios {

/// What a core fixes.
struct GenerationLogprobsShape {
  int slot_capacity = 0;
  int token_capacity = 0;  // T
  int alternatives = 0;    // K, 1..20
  int position_words = 0;  // 258 with the id inputs, else 2 + 2K
  int64_t max_rows = 0;    // logit rows of the largest graph
};

/// A graph's logit rows and the completion bundle, all in device memory. Ordinary sampling has a row a slot; a
/// verification may have several, which row_tokens tells apart.
struct GenerationLogprobsArgs {
  const float* logits = nullptr;  // [max_rows, logits_stride]: raw, this rank's shard; columns past it are padding
  int64_t logits_stride = 0;
  int64_t max_rows = 0;                      // of this graph, at most the core's; 0: the core's
  const int32_t* num_rows = nullptr;         // of this step, at most max_rows
  const int32_t* row_slots = nullptr;        // [max_rows] slot of each row; -1: no row
  const uint32_t* row_epochs = nullptr;      // [max_rows]
  const int32_t* row_tokens = nullptr;       // [max_rows] index of the row's token within its record; null: 0 for all
  const int32_t* row_halves = nullptr;       // [max_rows] half of the outputs that takes the row's, 0 or 1
  const int64_t* records = nullptr;          // [2, capacity, 16 + T] after commit: the frames, or a mixed graph's roles
  int32_t* packed = nullptr;                 // [2, capacity, T, position_words]
  const int32_t* requested = nullptr;        // [capacity]
  const int32_t* token_ids = nullptr;        // [capacity, 128], or null: a core without the id inputs
  const int32_t* token_id_counts = nullptr;  // [capacity], or null
};

class GenerationLogprobs {
 public:
  /// `counters` in device memory, or null. Throws DeviceError.
  GenerationLogprobs(const VocabLayout& layout, const GenerationLogprobsShape& shape, StepCounters* counters,
                     Communicator& communicator, Backend& backend);
  ~GenerationLogprobs();

  /// Inside a capture, behind the commit: writes every emitted position that has a row and whose slot asks. Slots that
  /// do not ask read no vocabulary and write nothing (R24); on the CPU nothing is exchanged when none asks. (A captured
  /// exchange of a GPU has the size of max_rows positions; the counters name what the positions need.) Decided from
  /// values that are identical on all ranks. A replay throws CollectiveError. Graphs replay one after another:
  /// they share this object's workspace (R25).
  void record(const GenerationLogprobsArgs& args, Stream& stream);

  int64_t workspace_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
