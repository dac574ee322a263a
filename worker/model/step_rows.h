// The live rows of one step, in device memory: written by row expansion, read by the forward pass.
//
// Rows of dead lanes do not exist here: what runs is decided by the live rows alone, identically on every rank.
#pragma once

#include <cstdint>

namespace helios {

struct StepRows {
  const int32_t* num_rows = nullptr;       // [1]
  const int32_t* num_sampling = nullptr;   // [1]
  const int32_t* tokens = nullptr;         // [rows]
  const int32_t* positions = nullptr;      // [rows] absolute
  const int32_t* slots = nullptr;          // [rows]
  const int32_t* sampling_rows = nullptr;  // [sampling] ascending row numbers whose logits are wanted
  const int32_t* block_tables = nullptr;   // [capacity, max_blocks]
  int32_t max_blocks = 0;
};

}  // namespace helios
