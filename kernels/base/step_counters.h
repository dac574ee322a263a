// What a rank counts while it replays: one struct in device memory, added to by the kernels of each room.
//
// Zeroed once and never reset. A kernel adds with one thread, because launches of one stream follow each other; the
// host never touches it: the end of a step copies the whole struct beside the frame's records, and the read-back brings
// it home. Words are 32-bit words that this rank sent to its peers.
#pragma once

#include <cstdint>

namespace helios {

struct StepCounters {
  // kernels/step
  int64_t steps = 0;             // submissions replayed
  int64_t rows = 0;              // token rows that went through the model
  int64_t sampled = 0;           // rows whose next token was chosen
  int64_t emitted = 0;           // tokens that the commit put into records
  int64_t merged_records = 0;    // records that a mixed graph's merge copied into the active frame
  int64_t merged_positions = 0;  // and positions of packed logprobs
  // kernels/transformer
  int64_t partial_sum_words = 0;
  // kernels/sampling
  int64_t sampler_words = 0;
  int64_t sampler_rows_filtered = 0;  // rows that passed through filtering scratch
  // kernels/logprobs
  int64_t logprob_positions = 0;    // reduced
  int64_t logprob_logits_read = 0;  // FP32 words of raw logits
  int64_t logprob_words = 0;
  int64_t logprob_launches = 0;  // of the last reduction that had a requested row; set, not added to
  int64_t prompt_rows = 0;       // prompt positions that were scored
  int64_t prompt_words = 0;      // sent for them
};

}  // namespace helios
