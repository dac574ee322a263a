#include "kernels/sampling/row_scan.h"

#include <algorithm>
#include <functional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/row_scan_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/lse_state.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body(column, bits) for each sixteen columns of a tile; bit i is the mask's for column + i. Tiles and shards
// begin at multiples of sixteen, so that the sixteen bits are half a word.
template <class Body>
HWY_INLINE void for_each_half_word(const uint32_t* words, TokenId first_id, int width, const Body& body) {
  for (int i = 0; i < width; i += 16) {
    const TokenId id = first_id + i;
    body(i, words[id / 32] >> (id % 32) & 0xffffu);
  }
}

void apply_penalties(const SlotSampling& sampling, const uint32_t* prompt_ids, const int32_t* HWY_RESTRICT counts,
                     TokenId first_id, int width, float* HWY_RESTRICT logits) {
  for_each_half_word(prompt_ids, first_id, width, [&](int begin, uint32_t in_prompt) {
    const int end = std::min(begin + 16, width);
    int32_t any = static_cast<int32_t>(in_prompt);
    for (int i = begin; i < end; ++i) any |= counts[i];
    if (any == 0) return;
    for (int i = begin; i < end; ++i) {
      if (counts[i] > 0 || (in_prompt >> (i - begin) & 1)) logits[i] = penalized(logits[i], sampling, counts[i]);
    }
  });
}

// token_transforms.h's list, on one tile of one row.
void transform_tile(const TransformTables& tables, const SamplingRow& row, int32_t begin, TokenId first_id, int width,
                    const float* HWY_RESTRICT raw, float* HWY_RESTRICT logits) {
  const int32_t slot = row.slot;
  const SlotSampling& sampling = tables.sampling[slot];
  const SlotState& state = tables.slots[slot];
  std::copy(raw, raw + width, logits);
  const auto mine = [&](TokenId id) { return id >= first_id && id < first_id + width; };
  for (int32_t b = 0; b < sampling.num_biases; ++b) {
    const LogitBias& bias = tables.biases[int64_t{slot} * kMaxLogitBias + b];
    if (mine(bias.id)) logits[bias.id - first_id] += bias.bias;
  }
  if (sampling.masked) {
    for_each_half_word(tables.allowed + int64_t{slot} * tables.mask_words, first_id, width,
                       [&](int i, uint32_t allowed) {
                         if (allowed == 0xffffu) return;
                         for (int end = std::min(i + 16, width); i < end; ++i, allowed >>= 1) {
                           if (!(allowed & 1)) logits[i] = kNegativeInfinity;
                         }
                       });
  }
  if (may_not_stop(state, row.ahead)) {
    if (mine(state.eos_id)) logits[state.eos_id - first_id] = kNegativeInfinity;
    for (int32_t s = 0; s < state.num_stop_ids; ++s) {
      if (mine(state.stop_ids[s])) logits[state.stop_ids[s] - first_id] = kNegativeInfinity;
    }
  }
  if (sampling.penalizes()) {
    apply_penalties(sampling, tables.prompt_ids + int64_t{slot} * tables.mask_words,
                    tables.token_counts + slot * tables.counts_stride + begin, first_id, width, logits);
  }
}

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
  const int full = width / kTileLanes * kTileLanes;
  alignas(64) float tail[kTileLanes];
  std::fill(tail, tail + kTileLanes, kNegativeInfinity);
  std::copy(logits + full, logits + width, tail);

  TileV max[kParts], nan[kParts];
  for (int part = 0; part < kParts; ++part) {
    max[part] = hn::Set(d, kNegativeInfinity);
    nan[part] = hn::Zero(d);
  }
  for (int i = 0; i < full; i += kTileLanes) scan_group(logits + i, max, nan);
  if (full < width) scan_group(tail, max, nan);
  bool has_nan = false;
  for (int part = 0; part < kParts; ++part) {
    hn::StoreU(max[part], d, lane_max + part * kN);
    has_nan |= !hn::AllFalse(d, hn::MaskFromVec(nan[part]));
  }
  float best = kNegativeInfinity;
  for (int lane = 0; lane < kTileLanes; ++lane) best = lane_max[lane] > best ? lane_max[lane] : best;
  *scan = {best, has_nan};
}

void scan_rows_items(const ScanRowsArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard.num_tiles;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t r = item / num_tiles;
    const SamplingRow& row = args.rows[r];
    if (row.slot < 0) continue;
    const VocabTile tile = args.shard.tiles[item % num_tiles];
    if (row.scratch >= 0) {
      transform_tile(args.tables, row, tile.begin, args.shard.first_id + tile.begin, tile.width,
                     args.logits + r * args.stride + tile.begin, args.scratch + row.scratch * args.stride + tile.begin);
    }
    scan_tile(row.logits + tile.begin, tile.width, args.scans + item, args.lane_max + item * kTileLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(scan_rows_items);

void scan_rows(const ScanRowsArgs& args, const Launcher& on) {
  const ScanRowsArgs* launch = &args;
  on.pool().parallel_for(int64_t{*args.num_rows} * args.shard.num_tiles, 8, [launch](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scan_rows_items)(*launch, begin, end);
  });
}

static void summarize(const SummarizeRowsArgs& args, int64_t index) {
  SamplingRow& row = args.rows[index];
  if (row.slot < 0) return;
  const int num_tiles = args.shard.num_tiles;
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
    const VocabTile& tile = args.shard.tiles[best_tile];
    const float* logits = row.logits + tile.begin;
    const float* first = std::find(logits, logits + tile.width, row.max);
    row.arg_max = args.shard.first_id + tile.begin + static_cast<TokenId>(first - logits);
  }
  const int64_t lanes = int64_t{num_tiles} * kTileLanes;
  if (row.top_k > 0 && row.top_k <= lanes) {
    float* lane_max = args.lane_max + index * lanes;
    std::nth_element(lane_max, lane_max + row.top_k - 1, lane_max + lanes, std::greater<>());
    row.count_bound = lane_max[row.top_k - 1];
  }
  if (row.filter >= 0) args.messages[row.filter] = {row.max, row.count_bound, row.broken, 0};
}

void summarize_rows(const SummarizeRowsArgs& args, const Launcher& on) {
  const SummarizeRowsArgs* launch = &args;
  on.pool().parallel_for(*args.num_rows, 2, [launch](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) summarize(*launch, index);
  });
}
}  // namespace helios
#endif
