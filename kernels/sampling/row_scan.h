// The first pass over each row's columns: transformations where a slot asks for them, tile maxima, and whether a NaN is
// there. Then each row's maximum, and a first bound on its k-th largest logit.
//
// One item of the scan is one (row, tile): 4 bytes a column are read once; a transformed row's tile is made in scratch
// and scanned while it is near. The maxima of a tile's sixteen lanes belong to disjoint ids, so the k-th largest of
// them bounds the row's k-th largest logit from below.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/sampling_row.h"
#include "kernels/sampling/token_transforms.h"

namespace helios {

struct TileScan {
  float max = 0.0f;  // NaN does not count; -inf for a tile without a number
  int32_t has_nan = 0;
};

struct ScanRowsArgs {
  const float* logits = nullptr;  // [max_rows, stride] raw
  int64_t stride = 0;
  float* scratch = nullptr;  // [max_rows, stride] out: rows that are transformed
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  const SamplingRow* rows = nullptr;
  TransformTables tables;
  TilesView shard;
  TileScan* scans = nullptr;  // [max_rows, tiles] out
  float* lane_max = nullptr;  // [max_rows, tiles, 16] out
};

void scan_rows(const ScanRowsArgs& args, const Launcher& on);

struct SummarizeRowsArgs {
  const int32_t* num_rows = nullptr;
  int32_t max_rows = 0;
  SamplingRow* rows = nullptr;  // in and out: max, arg_max, count_bound, broken, as far as this shard shows
  TilesView shard;
  const TileScan* scans = nullptr;
  float* lane_max = nullptr;       // may be reordered
  RowMessage* messages = nullptr;  // [max_rows] out: by place among the filtered rows
};

void summarize_rows(const SummarizeRowsArgs& args, const Launcher& on);

}  // namespace helios
