// The first pass over each row's shard: tile maxima, and whether a NaN is there.
//
// One item is one (row, tile); reads every valid column once. The maxima of a tile's sixteen lanes belong to disjoint
// ids, so the k-th largest of them bounds the row's k-th largest logit from below.
#pragma once

#include <cstdint>

#include "kernels/base/launcher.h"
#include "kernels/logprobs/vocab_tiles.h"
#include "kernels/sampling/sampling_row.h"

namespace helios {

struct TileScan {
  float max = 0.0f;  // NaN does not count; -inf for a tile without a number
  bool has_nan = false;
};

struct RowScanArgs {
  const float* logits = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const SamplingRow* rows = nullptr;
  int num_rows = 0;
  const ShardTiles* shard = nullptr;
  TileScan* scans = nullptr;  // [num_rows, tiles] out
  float* lane_max = nullptr;  // [num_rows, tiles, 16] out
};

void row_scan(const RowScanArgs& args, const Launcher& on);

struct RowSummaryArgs {
  const float* logits = nullptr;
  int64_t stride = 0;
  SamplingRow* rows = nullptr;  // in and out: max, arg_max, count_bound, broken (as far as this shard shows)
  int num_rows = 0;
  const ShardTiles* shard = nullptr;
  const TileScan* scans = nullptr;
  float* lane_max = nullptr;  // reordered
};

void row_summary(const RowSummaryArgs& args, const Launcher& on);

}  // namespace helios
