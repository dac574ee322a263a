#include "kernels/logprobs/prompt_rank.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logprobs/prompt_rank_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int32_t count_greater(const float* HWY_RESTRICT logits, int width, float normalizer, float actual) {
  const hn::ScalableTag<float> d;
  const int n = static_cast<int>(hn::Lanes(d));
  const auto subtrahend = hn::Set(d, normalizer), limit = hn::Set(d, actual);
  int32_t count = 0;
  int i = 0;
  for (; i + n <= width; i += n) {  // -0 and +0 compare equal: no need to normalise
    count += static_cast<int32_t>(hn::CountTrue(d, hn::Gt(hn::Sub(hn::LoadU(d, logits + i), subtrahend), limit)));
  }
  for (; i < width; ++i) count += logits[i] - normalizer > actual;
  return count;
}

void prompt_rank_items(const PromptRankArgs& args, int64_t begin, int64_t end) {
  const int num_tiles = args.shard.num_tiles;
  for (int64_t item = begin; item < end; ++item) {
    const int64_t p = item / num_tiles;
    args.greater[item] = 0;
    if (!(reported_logprob(args.states[item].max, args.normalizers[p]) > args.actual[p])) continue;
    const VocabTile& tile = args.shard.tiles[item % num_tiles];
    args.greater[item] = count_greater(args.logits + args.positions[p].row * args.stride + tile.begin, tile.width,
                                       args.normalizers[p], args.actual[p]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(prompt_rank_items);

void prompt_rank(const PromptRankArgs& args, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const PromptRankArgs* launch = &args;
  pool.parallel_for(*args.num_positions * static_cast<int64_t>(args.shard.num_tiles), 16,
                    [launch](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(prompt_rank_items)(*launch, begin, end);
                    });
}
}  // namespace helios
#endif
