#include "kernels/logprobs/bench/read_once.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logprobs/bench/read_once.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float read_all(const float* HWY_RESTRICT values, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t n = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Set(d, -1e30f), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * n <= count; i += 4 * n) {
    a = hn::Max(a, hn::LoadU(d, values + i));
    b = hn::Max(b, hn::LoadU(d, values + i + n));
    c = hn::Max(c, hn::LoadU(d, values + i + 2 * n));
    e = hn::Max(e, hn::LoadU(d, values + i + 3 * n));
  }
  float max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
  for (; i < count; ++i) max = std::max(max, values[i]);
  return max;
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
HWY_EXPORT(read_all);
float read_once(const float* values, int64_t count) { return HWY_DYNAMIC_DISPATCH(read_all)(values, count); }
}  // namespace helios
#endif
