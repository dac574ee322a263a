#include "kernels/sampling/row_scan.h"

#include <algorithm>
#include <functional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/row_scan_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileD = hn::CappedTag<float, kTileLanes>;
using TileV = hn::Vec<TileD>;
constexpr int kN = static_cast<int>(hn::MaxLanes(TileD()));
constexpr int kParts = kTileLanes / kN;

HWY_INLINE void scan_group(const float* HWY_RESTRICT group, TileV (&max)[kParts], TileV (&nan)[kParts]) {
  const TileD d;
  for (int part = 0; part < kParts; ++part) {
    const TileV x = hn::LoadU(d, group + part * kN);
    max[part] = hn::Max(x, max[part]);  // keeps max when x is NaN
    nan[part] = hn::Or(nan[part], hn::VecFromMask(d, hn::IsNaN(x)));
  }
}

void scan_tile(const float* HWY_RESTRICT logits, int width, TileScan* scan, float* HWY_RESTRICT lane_max) {
  const TileD d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int full = width / kTileLanes * kTileLanes;
  alignas(64) float tail[kTileLanes];
  std::fill(tail, tail + kTileLanes, kLowest);
  std::copy(logits + full, logits + width, tail);

  TileV max[kParts], nan[kParts];
  for (int part = 0; part < kParts; ++part) {
    max[part] = hn::Set(d, kLowest);
    nan[part] = hn::Zero(d);
  }
  for (int i = 0; i < full; i += kTileLanes) scan_group(logits + i, max, nan);
  if (full < width) scan_group(tail, max, nan);
  bool has_nan = false;
  for (int part = 0; part < kParts; ++part) {
    hn::StoreU(max[part], d, lane_max + part * kN);
    has_nan |= !hn::AllFalse(d, hn::MaskFromVec(nan[part]));
  }
  float best = kLowest;
  for (int lane = 0; lane < kTileLanes; ++lane) best = lane_max[lane] > best ? lane_max[lane] : best;
  *scan = {best, has_nan};
}

void row_scan_items(const RowScanArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard->num_tiles();
  for (int64_t item = begin; item < end; ++item) {
    const float* row = args.logits + args.rows[item / num_tiles].row * args.stride;
    const VocabTile& tile = args.shard->tiles[item % num_tiles];
    scan_tile(row + tile.begin, tile.width, args.scans + item, args.lane_max + item * kTileLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(row_scan_items);

void row_scan(const RowScanArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const RowScanArgs* launch = &args;
  pool.parallel_for(static_cast<int64_t>(args.num_rows) * args.shard->num_tiles(), 8,
                    [launch](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(row_scan_items)(*launch, begin, end);
                    });
}

static void summarize(const RowSummaryArgs& args, int64_t index) {
  SamplingRow& row = args.rows[index];
  const int num_tiles = args.shard->num_tiles();
  const TileScan* scans = args.scans + index * num_tiles;
  int best_tile = -1;
  for (int t = 0; t < num_tiles; ++t) {
    row.broken |= scans[t].has_nan || scans[t].max == std::numeric_limits<float>::infinity();
    if (scans[t].max > row.max) {
      row.max = scans[t].max;
      best_tile = t;
    }
  }
  if (best_tile >= 0) {
    const VocabTile& tile = args.shard->tiles[best_tile];
    const float* logits = args.logits + row.row * args.stride + tile.begin;
    const float* first = std::find(logits, logits + tile.width, row.max);
    row.arg_max = args.shard->first_id + tile.begin + static_cast<TokenId>(first - logits);
  }
  const int64_t lanes = static_cast<int64_t>(num_tiles) * kTileLanes;
  if (row.top_k > 0 && row.top_k <= lanes) {
    float* lane_max = args.lane_max + index * lanes;
    std::nth_element(lane_max, lane_max + row.top_k - 1, lane_max + lanes, std::greater<>());
    row.count_bound = lane_max[row.top_k - 1];
  }
}

void row_summary(const RowSummaryArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const RowSummaryArgs* launch = &args;
  pool.parallel_for(args.num_rows, 2, [launch](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) summarize(*launch, index);
  });
}
}  // namespace helios
#endif
