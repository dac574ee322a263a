#include "kernels/logprobs/tile_candidates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logprobs/tile_candidates_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "common/contract/completion_layout.h"

#ifndef HELIOS_KERNELS_LOGPROBS_TILE_CANDIDATES_CPU_ONCE
#define HELIOS_KERNELS_LOGPROBS_TILE_CANDIDATES_CPU_ONCE
namespace helios {

// Keys of one tile above a rising threshold. Ids come in increasing order, so once 32 are kept an equal value loses.
class TileKeys {
 public:
  explicit TileKeys(float threshold) : threshold_(threshold) {}

  /// Ids whose reported value is below this cannot enter.
  float threshold() const { return threshold_; }

  void add(float value, TokenId id) {
    if (!(value >= threshold_)) return;
    keys_[size_++] = make_key(value, id);
    if (size_ == kRoom) shrink();
  }

  int finish(SortKey* out) {
    if (size_ > kKeptSortKeys) shrink();
    std::copy(keys_, keys_ + size_, out);
    return size_;
  }

 private:
  static constexpr int kRoom = 4 * kKeptSortKeys;

  void shrink() {
    std::nth_element(keys_, keys_ + kKeptSortKeys - 1, keys_ + size_, std::greater<>());
    size_ = kKeptSortKeys;
    const float worst = key_value(keys_[kKeptSortKeys - 1]);
    // A +inf cannot be reported (it makes the normaliser NaN), so there is always a next value.
    threshold_ = std::max(threshold_, std::nextafter(worst, std::numeric_limits<float>::infinity()));
  }

  float threshold_;
  int size_ = 0;
  SortKey keys_[kRoom];
};

}  // namespace helios
#endif

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int one_tile_candidates(const float* HWY_RESTRICT logits, int width, TokenId first_id, float normalizer,
                        float threshold, SortKey* out) {
  using D = hn::ScalableTag<float>;
  const D d;
  const int n = static_cast<int>(hn::Lanes(d));
  const auto subtrahend = hn::Set(d, normalizer);
  TileKeys keys(threshold);
  int i = 0;
  // Four vectors a branch: hardly any of them holds a candidate.
  for (; i + 4 * n <= width; i += 4 * n) {
    const auto limit = hn::Set(d, keys.threshold());
    const auto best01 = hn::Max(hn::LoadU(d, logits + i), hn::LoadU(d, logits + i + n));
    const auto best23 = hn::Max(hn::LoadU(d, logits + i + 2 * n), hn::LoadU(d, logits + i + 3 * n));
    if (hn::AllFalse(d, hn::Ge(hn::Sub(hn::Max(best01, best23), subtrahend), limit))) continue;
    for (int j = i; j < i + 4 * n; ++j) keys.add(reported_logprob(logits[j], normalizer), first_id + j);
  }
  for (; i < width; ++i) keys.add(reported_logprob(logits[i], normalizer), first_id + i);
  return keys.finish(out);
}

void tile_candidates_items(const TileCandidatesArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard.num_tiles;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t p = item / num_tiles;
    const LogprobPosition& position = args.positions[p];
    args.counts[item] = kTileNotRead;
    if (position.num_selected > 0) continue;
    // Judged on reported values: a smaller logit may round to the same logprob and win by its id. NaN fails both.
    const float normalizer = args.normalizers[p];
    const float threshold = reported_logprob(args.cuts[p], normalizer);
    if (!(reported_logprob(args.states[item].max, normalizer) >= threshold)) continue;
    const VocabTile& tile = args.shard.tiles[item % num_tiles];
    args.counts[item] =
        one_tile_candidates(args.logits + position.row * args.stride + tile.begin, tile.width,
                            args.shard.first_id + tile.begin, normalizer, threshold, args.keys + item * kKeptSortKeys);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(tile_candidates_items);

void tile_candidates(const TileCandidatesArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const TileCandidatesArgs* launch = &args;
  pool.parallel_for(*args.num_positions * static_cast<int64_t>(args.shard.num_tiles), 16,
                    [launch](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(tile_candidates_items)(*launch, begin, end);
                    });
}
}  // namespace helios
#endif
