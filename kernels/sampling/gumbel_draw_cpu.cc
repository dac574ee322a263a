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

// For each block of a tile, the largest uniform that could still beat `best` there. A token wins only if
// z + gumbel(uniform) > best, and gumbel(uniform) <= -log(uniform): so only if uniform < exp(z - best).
struct BlockLimits {
  HWY_ALIGN float exponent[kBlockRoom];
  HWY_ALIGN float limit[kBlockRoom];

  void find(const SamplingRow& row, const SampledToken& best, const float* logits, TokenId first_id, int width,
            int num_blocks) {
    using D = hn::CappedTag<float, 16>;
    const D d;
    constexpr int kN = static_cast<int>(hn::MaxLanes(D()));
    const float inverse = 1.0f / row.temperature;
    // Relative to the row's maximum: small numbers where it matters, whatever the temperature.
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
      hn::Store(exp_nonpositive(d, x), d, limit + b);
    }
  }

  bool possible(int b) const { return exponent[b] >= -static_cast<float>(kMaxGumbel); }
  // The smallest of 64 uniforms is below the limit only if 64 * limit exceeds the uniform that it was made from.
  bool worth_drawing(int b, uint32_t least_word) const {
    return static_cast<float>(unit_interval(least_word)) <= kNoiseBlock * limit[b];
  }
};

// The words that say each block's smallest uniform: 64 blocks at a time, kept from tile to tile.
struct BlockLeastWords {
  HWY_ALIGN uint32_t words[kNoiseBlock];
  int64_t group = -1;

  uint32_t at(NoiseKey key, uint32_t block) {
    if (group != block / kNoiseBlock) {
      group = block / kNoiseBlock;
      noise_words(key, NoiseStream::kBlockLeast, static_cast<uint32_t>(group), words);
    }
    return words[block % kNoiseBlock];
  }
};

// Draws every id of one block that could win. `logits` and `range` are the tile's columns.
void draw_block(const SamplingRow& row, const float* logits, BlockRange range, TokenId first_id, uint32_t block,
                uint32_t least_word, double limit, SampledToken* best, SampledToken* tile_best) {
  const double least = block_least(least_word);
  const int lane = block_lane(noise_word(row.noise, NoiseStream::kBlockLane, block));
  HWY_ALIGN uint32_t words[kNoiseBlock];
  noise_words(row.noise, NoiseStream::kToken, block, words);
  for (int i = range.begin; i < range.end; ++i) {
    if (!(logits[i] >= row.floor)) continue;
    const TokenId id = first_id + i;
    const int at = id % kNoiseBlock;
    const double uniform = at == lane ? least : above_least(least, words[at]);
    if (uniform > limit) continue;
    const SampledToken token{score_of(row, logits[i], uniform), id};
    if (token.beats(*best)) *best = *tile_best = token;
  }
}

void draw_tile(const SamplingRow& row, const float* logits, TokenId first_id, int width, BlockLeastWords* least_words,
               SampledToken* best, SampledToken* tile_best) {
  const int num_blocks = (first_id % kNoiseBlock + width + kNoiseBlock - 1) / kNoiseBlock;
  const uint32_t first_block = static_cast<uint32_t>(first_id) / kNoiseBlock;
  BlockLimits limits;
  limits.find(row, *best, logits, first_id, width, num_blocks);
  for (int b = 0; b < num_blocks; ++b) {
    if (!limits.possible(b)) continue;
    const uint32_t block = first_block + static_cast<uint32_t>(b);
    const uint32_t least_word = least_words->at(row.noise, block);
    if (!limits.worth_drawing(b, least_word)) continue;
    draw_block(row, logits, block_range(first_id, width, b), first_id, block, least_word, limits.limit[b], best,
               tile_best);
  }
}

void gumbel_draw_items(const GumbelDrawArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard.num_tiles;
  const TokenId first_id = args.shard.first_id;
  SampledToken best;
  BlockLeastWords least_words;
  for (int64_t item = begin; item < end; ++item) {
    const SamplingRow& row = args.rows[item / num_tiles];
    const int64_t t = item % num_tiles;
    SampledToken& tile_best = args.tile_best[item];
    tile_best = {};
    if (!row.draws()) continue;
    if (item == begin || t == 0) {  // the likeliest token first: it rules most others out
      best = {};
      least_words.group = -1;
      const float top = row.logits[row.arg_max - first_id];
      if (top >= row.floor) best = {gumbel_score(row, top, row.arg_max), row.arg_max};
      tile_best = best;
    }
    if (!(args.scans[item].max >= row.floor)) continue;
    const VocabTile& tile = args.shard.tiles[t];
    draw_tile(row, row.logits + tile.begin, first_id + tile.begin, tile.width, &least_words, &best, &tile_best);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(gumbel_draw_items);

void gumbel_draw(const GumbelDrawArgs& args, const Launcher& on) {
  const GumbelDrawArgs* launch = &args;
  on.pool().parallel_for(int64_t{*args.num_rows} * args.shard.num_tiles, 8, [launch](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gumbel_draw_items)(*launch, begin, end);
  });
}
}  // namespace helios
#endif
