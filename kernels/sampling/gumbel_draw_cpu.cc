#include "kernels/sampling/gumbel_draw.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/gumbel_draw_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/logprobs/simd_exp-inl.h"
#include "kernels/sampling/simd_philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {

constexpr int kBlocksPerTile = kTileWidth / kNoiseBlock + 2;  // a tile may begin and end inside a block
constexpr int kBlockRoom = (kBlocksPerTile + 15) / 16 * 16;   // whole vectors
constexpr float kMaxGumbel = 22.9f;                           // above gumbel(0)
// FP32 arguments of the bound are off by less than this where the bound decides (|d| < 64 nats).
constexpr float kBoundSlack = 1e-4f;

struct BlockRange {
  int begin, end;  // columns of the tile
};

HWY_INLINE BlockRange block_range(TokenId first_id, int width, int block) {
  const int begin = block * kNoiseBlock - first_id % kNoiseBlock;
  return {std::max(0, begin), std::min(width, begin + kNoiseBlock)};
}

HWY_INLINE float max_of(const float* HWY_RESTRICT logits, BlockRange range) {
  using D = hn::CappedTag<float, kNoiseLanes>;
  const D d;
  constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
  float max = kNegativeInfinity;
  int i = range.begin;
  if (range.end - range.begin >= kN) {
    auto acc = hn::LoadU(d, logits + i);
    for (i += kN; i + kN <= range.end; i += kN) acc = hn::Max(hn::LoadU(d, logits + i), acc);
    max = hn::GetLane(hn::MaxOfLanes(d, acc));
  }
  for (; i < range.end; ++i) max = logits[i] > max ? logits[i] : max;
  return max;
}

// For each block of a tile, the largest noise word that could still beat `best` there; none when `possible` is 0.
// A token wins only if z + gumbel(v) > best, and gumbel(v) <= -log(v): so only if v < exp(z - best).
struct BlockLimits {
  HWY_ALIGN float exponent[kBlockRoom];
  HWY_ALIGN float chance[kBlockRoom];

  void find(const SamplingRow& row, const SampledToken& best, const float* logits, TokenId first_id, int width,
            int num_blocks) {
    using D = hn::CappedTag<float, 16>;
    const D d;
    constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
    const float inverse = 1.0f / row.temperature;
    // Relative to the shard's maximum: small numbers where it matters, whatever the temperature.
    const float lead =
        best.id < 0
            ? -1e30f
            : static_cast<float>(best.score - static_cast<double>(row.max) / static_cast<double>(row.temperature));
    for (int b = 0; b < num_blocks; ++b) {
      const float max = max_of(logits, block_range(first_id, width, b));
      exponent[b] = max < row.floor ? kNegativeInfinity : (max - row.max) * inverse - lead + kBoundSlack;
    }
    for (int b = num_blocks; b < kBlockRoom; ++b) exponent[b] = kNegativeInfinity;
    for (int b = 0; b < num_blocks; b += kN) {
      const auto x = hn::Min(hn::Load(d, exponent + b), hn::Zero(d));
      hn::Store(exp_nonpositive(d, x), d, chance + b);
    }
  }

  bool possible(int b) const { return exponent[b] >= -kMaxGumbel; }
  uint32_t limit(int b) const {
    const double limit = static_cast<double>(chance[b]) * 4294967296.0 * (1.0 + 1e-6);
    return limit >= 4294967295.0 ? 4294967295u : static_cast<uint32_t>(limit);
  }
};

void draw_tile(const SamplingRow& row, const float* logits, TokenId first_id, int width, SampledToken* best,
               SampledToken* tile_best) {
  const int num_blocks = (first_id % kNoiseBlock + width + kNoiseBlock - 1) / kNoiseBlock;
  const uint32_t first_block = static_cast<uint32_t>(first_id) / kNoiseBlock;
  BlockLimits limits;
  limits.find(row, *best, logits, first_id, width, num_blocks);
  HWY_ALIGN uint32_t words[kNoiseBlock];
  for (int b = 0; b < num_blocks; ++b) {
    if (!limits.possible(b)) continue;
    const uint32_t limit = limits.limit(b);
    if (!noise_block(row.seed, row.position, first_block + b, limit, words)) continue;
    const BlockRange range = block_range(first_id, width, b);
    for (int i = range.begin; i < range.end; ++i) {
      const TokenId id = first_id + i;
      const uint32_t word = words[id % kNoiseBlock];
      if (word > limit || !(logits[i] >= row.floor)) continue;
      const SampledToken token{static_cast<double>(logits[i]) / static_cast<double>(row.temperature) + gumbel(word),
                               id};
      if (token.beats(*best)) *best = *tile_best = token;
    }
  }
}

void gumbel_draw_items(const GumbelDrawArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard->num_tiles();
  SampledToken best;
  for (int64_t item = begin; item < end; ++item) {
    const SamplingRow& row = args.rows[item / num_tiles];
    const int64_t t = item % num_tiles;
    SampledToken& tile_best = args.tile_best[item];
    tile_best = {};
    if (row.greedy || row.broken || row.arg_max < 0) continue;
    const float* logits = args.logits + row.row * args.stride;
    if (item == begin || t == 0) {  // the likeliest token first: it rules most others out
      best = {};
      const float top = logits[row.arg_max - args.shard->first_id];
      if (top >= row.floor) best = {gumbel_score(row, top, row.arg_max), row.arg_max};
      tile_best = best;
    }
    if (!(args.scans[item].max >= row.floor)) continue;
    const VocabTile& tile = args.shard->tiles[t];
    draw_tile(row, logits + tile.begin, args.shard->first_id + tile.begin, tile.width, &best, &tile_best);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(gumbel_draw_items);

void gumbel_draw(const GumbelDrawArgs& args, ThreadPool& pool) {
  const GumbelDrawArgs* launch = &args;
  const int num_tiles = args.shard->num_tiles();
  pool.parallel_for(static_cast<int64_t>(args.num_rows) * num_tiles, 8, [launch](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gumbel_draw_items)(*launch, begin, end);
  });
  for (int r = 0; r < args.num_rows; ++r) {
    args.best[r] = {};
    for (int t = 0; t < num_tiles; ++t) {
      const SampledToken& token = args.tile_best[static_cast<int64_t>(r) * num_tiles + t];
      if (token.beats(args.best[r])) args.best[r] = token;
    }
  }
}
}  // namespace helios
#endif
