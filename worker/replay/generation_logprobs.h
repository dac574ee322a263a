// Logprobs of the tokens that this step emitted: the prepared launches over this rank's raw logits and, at TP > 1, two
// all-gathers of 256 words a position a rank. Never a vocabulary on the wire, no allocation after construction.
//
// Four launches at TP 1 (R21), six at TP > 1 (R22); the same bits either way: tiles fold into the eight canonical
// vocabulary segments, and segments into one tree. Runs after commit has written the records (R15, R16) and reads
// emission, slot and epoch from them. Thread: rank.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/vocab_range.h"
#include "kernels/base/launcher.h"
#include "worker/collective/communicator.h"

namespace helios {

/// One step's sampling rows and the active frame. Pointers are to this rank's memory and stay fixed between steps.
struct GenerationLogprobsArgs {
  const float* logits = nullptr;  // [rows, logits_stride]: raw, this rank's shard; columns past the shard are padding
  int64_t logits_stride = 0;
  int64_t rows = 0;
  const int32_t* row_slots = nullptr;        // [rows] slot of each row; -1: no row
  const uint32_t* row_epochs = nullptr;      // [rows]
  const int64_t* records = nullptr;          // [capacity, 16 + T] of the active frame, after commit
  int32_t* packed = nullptr;                 // [capacity, T, packed_words] of the active frame
  const int32_t* requested = nullptr;        // [capacity]
  const int32_t* token_ids = nullptr;        // [capacity, 128], or null: a core without the id inputs
  const int32_t* token_id_counts = nullptr;  // [capacity], or null
};

class GenerationLogprobs {
 public:
  /// `alternatives` is K (1..20); `packed_words` 258 with the id inputs, else 2 + 2K.
  GenerationLogprobs(const VocabLayout& layout, int slot_capacity, int token_capacity, int alternatives,
                     int packed_words, Communicator& communicator);
  ~GenerationLogprobs();

  /// Writes position 0 of every row whose slot asks and whose record (same slot and epoch) emits a token. Rows that do
  /// not ask read no vocabulary and write nothing (R24); when no row asks, nothing is exchanged. The decision is made
  /// from values that are identical on all ranks. Throws CollectiveError.
  void run(const GenerationLogprobsArgs& args, const Launcher& on);

  int64_t workspace_bytes() const;

  struct Counters {
    int64_t positions = 0;        // reduced
    int64_t logits_read = 0;      // FP32 words
    int64_t words_exchanged = 0;  // sent by this rank
    int64_t launches = 0;         // of the last run that had a requested row
  };
  const Counters& counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
