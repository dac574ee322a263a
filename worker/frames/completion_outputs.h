// The one owner of the completion bundle: records, packed logprobs, flags and id inputs, allocated together (R10, R37),
// and with prompt scoring of its targets and rows (R40).
//
// Allocated from the core's own declarations, so declared and allocated cannot differ. Buffers that a core does not
// declare do not exist: their pointers are null. The two frames are halves of the outputs and alias nothing else (R25).
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/completion_layout.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"

namespace helios {

class CompletionOutputs {
 public:
  /// Throws DeviceError.
  CompletionOutputs(const CoreShape& shape, Backend& backend);

  int slot_capacity() const { return slot_capacity_; }
  int token_capacity() const { return token_capacity_; }
  int alternatives() const { return alternatives_; }        // K
  int words_per_position() const { return packed_words_; }  // last extent of the packed output; 0 without it

  int64_t* records(FrameIndex frame) const {  // [capacity, 16 + T]
    return records_.as<int64_t>() + int64_t{frame.value} * slot_capacity_ * record_words(token_capacity_);
  }
  int32_t* packed(FrameIndex frame) const {  // [capacity, T, words_per_position], or null
    return packed_words_ == 0
               ? nullptr
               : logprobs_.as<int32_t>() + int64_t{frame.value} * slot_capacity_ * token_capacity_ * packed_words_;
  }
  int32_t* requested() const { return requested_.as<int32_t>(); }              // [capacity], or null
  int32_t* token_ids() const { return token_ids_.as<int32_t>(); }              // [capacity, 128], or null
  int32_t* token_id_counts() const { return token_id_counts_.as<int32_t>(); }  // [capacity], or null

  int32_t prompt_capacity() const { return prompt_capacity_; }               // C; 0 without prompt scoring
  int32_t* prompt_targets() const { return prompt_targets_.as<int32_t>(); }  // [C], or null
  int32_t* prompt_rows(FrameIndex frame) const {                             // [C, 43], or null
    return prompt_capacity_ == 0
               ? nullptr
               : prompt_rows_.as<int32_t>() + int64_t{frame.value} * prompt_capacity_ * kPromptScoreWords;
  }

  /// Physical bytes of the whole bundle (R25), prompt scoring's buffers included.
  int64_t bytes() const { return bytes_; }

 private:
  const int slot_capacity_, token_capacity_, alternatives_;
  int packed_words_ = 0;
  int32_t prompt_capacity_ = 0;
  int64_t bytes_ = 0;
  Memory records_, logprobs_, requested_, token_ids_, token_id_counts_, prompt_targets_, prompt_rows_;
};

}  // namespace helios
