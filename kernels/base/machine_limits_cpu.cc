// Read bandwidth: every thread reads its part of a large buffer. FMA peak: independent chains of fused multiply-adds,
// enough of them to cover latency times throughput of any unit in use.
#include "kernels/base/machine_limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/base/machine_limits_cpu.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Reads `floats` (a multiple of 4096) as four streams side by side, which is faster than one, and than any software
/// prefetch. Returns a value that depends on all of them.
float ReadAll(const float* data, int64_t floats) {
  const hn::ScalableTag<uint32_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), part = floats / 4;
  const auto* words = reinterpret_cast<const uint32_t*>(data);
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  for (int64_t i = 0; i < part; i += 32) {
    for (int64_t j = i; j < i + 32; j += lanes) {
      a = hn::Xor(a, hn::Load(d, words + j));
      b = hn::Xor(b, hn::Load(d, words + part + j));
      c = hn::Xor(c, hn::Load(d, words + 2 * part + j));
      e = hn::Xor(e, hn::Load(d, words + 3 * part + j));
    }
  }
  return static_cast<float>(hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e))) & 1u);
}

/// `rounds` times 12 vector FMAs; adds the number of floating-point operations to `flops`.
float MultiplyAdd(int64_t rounds, int64_t& flops) {
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f), addend = hn::Set(d, 0.001f);
  // Twelve different starts: equal chains would be computed once.
  auto c0 = hn::Set(d, 0.1f), c1 = hn::Set(d, 0.2f), c2 = hn::Set(d, 0.3f), c3 = hn::Set(d, 0.4f);
  auto c4 = hn::Set(d, 0.5f), c5 = hn::Set(d, 0.6f), c6 = hn::Set(d, 0.7f), c7 = hn::Set(d, 0.8f);
  auto c8 = hn::Set(d, 0.9f), c9 = hn::Set(d, 1.1f), c10 = hn::Set(d, 1.2f), c11 = hn::Set(d, 1.3f);
  for (int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, factor, addend);
    c1 = hn::MulAdd(c1, factor, addend);
    c2 = hn::MulAdd(c2, factor, addend);
    c3 = hn::MulAdd(c3, factor, addend);
    c4 = hn::MulAdd(c4, factor, addend);
    c5 = hn::MulAdd(c5, factor, addend);
    c6 = hn::MulAdd(c6, factor, addend);
    c7 = hn::MulAdd(c7, factor, addend);
    c8 = hn::MulAdd(c8, factor, addend);
    c9 = hn::MulAdd(c9, factor, addend);
    c10 = hn::MulAdd(c10, factor, addend);
    c11 = hn::MulAdd(c11, factor, addend);
  }
  flops += rounds * kChains * 2 * static_cast<int64_t>(hn::Lanes(d));
  const auto sum = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(c6, c7)));
  return hn::GetLane(hn::Add(sum, hn::Add(hn::Add(c8, c9), hn::Add(c10, c11))));
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {
namespace {

HWY_EXPORT(ReadAll);
HWY_EXPORT(MultiplyAdd);

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Median rate of pass(), which returns the work that it did, over passes that take `time` together; at least three.
template <class Pass>
double median_rate(std::chrono::milliseconds time, const Pass& pass) {
  std::vector<double> rates;
  const auto start = Clock::now();
  do {
    const auto begin = Clock::now();
    const double work = pass();
    rates.push_back(work / seconds_since(begin));
  } while (rates.size() < 3 || Clock::now() - start < time);
  return median(rates);
}

int64_t default_buffer_bytes() {
  const int64_t free = sysconf(_SC_AVPHYS_PAGES) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return std::clamp<int64_t>(free / 4, int64_t{64} << 20, int64_t{1} << 30);
}

int64_t floats_each(const ThreadPool& pool, int64_t buffer_bytes) {
  const int64_t total = buffer_bytes > 0 ? buffer_bytes : default_buffer_bytes();
  return std::max<int64_t>(total / 4 / pool.num_threads() / 4096 * 4096, 4096);
}

}  // namespace

LimitMeter::LimitMeter(ThreadPool& pool, int64_t buffer_bytes)
    : pool_(pool),
      floats_each_(floats_each(pool, buffer_bytes)),
      buffer_(static_cast<size_t>(floats_each_ * pool.num_threads() * 4 + 8192)) {}  // read-ahead may look past the end

MachineLimits LimitMeter::measure(std::chrono::milliseconds time_each) {
  std::atomic<float> sink{0};  // the results are used, so the loops stay
  MachineLimits limits;
  limits.read_gb_per_s =
      1e-9 * median_rate(time_each, [&] {
        pool_.run([&](int thread, int) {
          sink = HWY_DYNAMIC_DISPATCH(ReadAll)(buffer_.as<float>() + thread * floats_each_, floats_each_);
        });
        return 4.0 * static_cast<double>(floats_each_) * pool_.num_threads();
      });
  limits.fma_gflop_per_s = 1e-9 * median_rate(time_each, [&] {
                             std::atomic<int64_t> flops{0};
                             pool_.run([&](int, int) {
                               int64_t mine = 0;
                               sink = HWY_DYNAMIC_DISPATCH(MultiplyAdd)(int64_t{1} << 20, mine);
                               flops += mine;
                             });
                             return static_cast<double>(flops.load());
                           });
  return limits;
}

MachineLimits measure_machine_limits(ThreadPool& pool, std::chrono::milliseconds time_each, int64_t buffer_bytes) {
  return LimitMeter(pool, buffer_bytes).measure(time_each);
}

}  // namespace helios
#endif  // HWY_ONCE
