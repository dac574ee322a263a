// helios-matmul-bench: the matrix products alone, at the shapes of a layer, beside the machine's own limits.
//
// A round measures the limits and then, for each number of rows, goes through all matrices of several layers in the
// order of a step, so that none is found in a cache; with FP32 inputs, and with inputs that are BF16 values. Medians
// over rounds: on a shared machine only figures of the same minute compare. A build with HELIOS_BENCH_ONEDNN times that
// library too, in turn.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/bench_flags.h"
#include "kernels/base/machine_limits.h"
#include "kernels/transformer/bench/peer.h"
#include "kernels/transformer/matmul.h"

namespace helios {
namespace {

using bench::median;
using Clock = std::chrono::steady_clock;

constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128, 512};
constexpr int64_t kMaxRows = 512;
constexpr int kLayers = 8;

struct Product {
  const char* name;
  int64_t n, k;
  int segments;
};
constexpr std::array<Product, 4> kProducts = {
    {{"qkv", 4096, 1024, 1}, {"o", 1024, 2048, 8}, {"gate_up", 6144, 1024, 1}, {"down", 1024, 3072, 8}}};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// As the CPU device allocates: pages of 2 MB where the system has them.
class HostStore final : public WeightStore {
 public:
  explicit HostStore(ThreadPool& pool) : pool_(pool) {}
  ThreadPool& pool() override { return pool_; }
  Memory allocate(size_t bytes) override {
    if (bytes == 0) return {};
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    madvise(data, bytes, MADV_HUGEPAGE);
    return Memory(data, bytes, [](void* at, size_t size) { munmap(at, size); });
  }
  void upload(void*, const void*, size_t) override { std::abort(); }  // packing is in place

 private:
  ThreadPool& pool_;
};

std::vector<float> random_floats(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint64_t state = 88172645463325252u;
  for (float& value : values) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    value = static_cast<float>(static_cast<int64_t>(state)) * 0x1p-66f;
  }
  return values;
}

/// Seconds of each product over all layers.
using Times = std::array<double, kProducts.size()>;

class Layers {
 public:
  explicit Layers(ThreadPool& pool) : pool_(pool), store_(pool) {
    int64_t weights = 0, scratch = 0, most_n = 0, most_k = 0;
    for (const Product& p : kProducts) {
      weights = std::max(weights, p.n * p.k), most_n = std::max(most_n, p.n), most_k = std::max(most_k, p.k);
    }
    const std::vector<float> source = random_floats(weights);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const Product& p : kProducts) {
        std::vector<int64_t> segments;
        for (int s = 0; s <= p.segments; ++s) segments.push_back(p.k * s / p.segments);
        const WeightRows rows{source.data(), DType::kFloat32, p.n, p.k};
        matrices_.push_back(PackedMatrix::pack({&rows, 1}, 0, p.k, segments, DType::kBFloat16, store_));
        scratch = std::max(scratch, matmul_scratch_bytes(matrices_.back(), kMaxRows, pool.num_threads()));
      }
    }
    scratch_ = store_.allocate(static_cast<size_t>(scratch));
    x_ = random_floats(kMaxRows * most_k);
    for (const float x : x_) rounded_x_.push_back(round_to_bf16(x));
    out_.resize(static_cast<size_t>(kMaxRows * most_n));
  }

  Times run(int64_t rows, DType inputs) {
    Times times{};
    const auto count = static_cast<int32_t>(rows);
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const PackedMatrix& w = matrices_[i];
      const auto start = Clock::now();
      matmul({.x = inputs == DType::kBFloat16 ? rounded_x_.data() : x_.data(),
              .x_stride = w.k(),
              .w = &w,
              .out = out_.data(),
              .out_stride = w.n(),
              .num_rows = &count,
              .max_rows = rows,
              .x_rounded_to = inputs},
             scratch_.data(), pool_);
      times[i % kProducts.size()] += seconds_since(start);
    }
    return times;
  }

 private:
  ThreadPool& pool_;
  HostStore store_;
  std::vector<PackedMatrix> matrices_;
  Memory scratch_;
  std::vector<float> x_, rounded_x_, out_;
};

/// Seconds of all layers, both sides' threads asleep before each. The peer's inputs are BF16, and so are ours.
struct Turns {
  std::vector<double> ours, peers, ratio;
};

void take_turns(Layers& layers, Peer& peer, int64_t rows, bool peer_first, Turns* turns) {
  constexpr auto kAsleep = std::chrono::milliseconds(5);
  const auto time_ours = [&] {
    std::this_thread::sleep_for(kAsleep);
    double sum = 0;
    for (const double seconds : layers.run(rows, DType::kBFloat16)) sum += seconds;
    turns->ours.push_back(sum);
  };
  if (!peer_first) time_ours();
  std::this_thread::sleep_for(kAsleep);
  turns->peers.push_back(peer.run(rows));
  if (peer_first) time_ours();
  turns->ratio.push_back(turns->peers.back() / turns->ours.back());
}

void measure_beside_peer(const bench::Flags& options, Layers& layers, Peer& peer) {
  std::array<Turns, std::size(kRowCounts)> turns;
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t c = 0; c < turns.size(); ++c) {
      take_turns(layers, peer, kRowCounts[c], round % 2 != 0, &turns[c]);
      if (round < 0) turns[c] = Turns();
    }
  }
  double weights = 0;
  for (const Product& p : kProducts) weights += static_cast<double>(p.n * p.k) * kLayers;
  std::printf("\nin turn with %s, BF16 inputs\n%6s %15s %15s %14s\n", peer.name().c_str(), "rows", "Helios GFLOP/s",
              "its GFLOP/s", "times as fast");
  for (size_t c = 0; c < turns.size(); ++c) {
    const double gflop = 2e-9 * weights * static_cast<double>(kRowCounts[c]);
    std::printf("%6lld %15.0f %15.0f %14.2f\n", static_cast<long long>(kRowCounts[c]), gflop / median(turns[c].ours),
                gflop / median(turns[c].peers), median(turns[c].ratio));
  }
}

void print_row(int64_t rows, const char* name, double weights, double seconds, const MachineLimits& limits) {
  const double gb = 2 * weights / seconds * 1e-9, gflop = 2 * weights * static_cast<double>(rows) / seconds * 1e-9;
  std::printf("%6lld  %-8s %8.1f %10.0f %12.2f %10.2f\n", static_cast<long long>(rows), name, gb, gflop,
              gb / limits.read_gb_per_s, gflop / limits.fma_gflop_per_s);
}

void measure(const bench::Flags& options) {
  ThreadPool pool(options.threads);
  LimitMeter meter(pool, int64_t{512} << 20);
  Layers layers(pool);
  constexpr size_t kCounts = std::size(kRowCounts);
  std::vector<double> bandwidth, peak;
  std::array<std::array<std::vector<double>, kProducts.size() + 1>, kCounts> seconds;
  std::array<std::vector<double>, kCounts> rounded_seconds;  // of a layer with BF16 inputs
  for (int round = -1; round < options.rounds; ++round) {    // the first warms up
    const MachineLimits limits = meter.measure(std::chrono::milliseconds(30));
    if (round >= 0) bandwidth.push_back(limits.read_gb_per_s), peak.push_back(limits.fma_gflop_per_s);
    for (size_t c = 0; c < kCounts; ++c) {
      const Times times = layers.run(kRowCounts[c], DType::kFloat32);
      const Times rounded = layers.run(kRowCounts[c], DType::kBFloat16);
      if (round < 0) continue;
      rounded_seconds[c].push_back(std::accumulate(rounded.begin(), rounded.end(), 0.0));
      double sum = 0;
      for (size_t p = 0; p < times.size(); ++p) seconds[c][p].push_back(times[p]), sum += times[p];
      seconds[c].back().push_back(sum);
    }
  }
  const MachineLimits limits{.read_gb_per_s = median(bandwidth), .fma_gflop_per_s = median(peak)};
  std::printf(
      "BF16 weights, FP32 inputs (last row of each: BF16), %d threads, medians of %d rounds; limits: %.1f GB/s read, "
      "%.0f GFLOP/s of FP32 FMA\n\n",
      options.threads, options.rounds, limits.read_gb_per_s, limits.fma_gflop_per_s);
  std::printf("%6s  %-8s %8s %10s %12s %10s\n", "rows", "product", "GB/s", "GFLOP/s", "of bandwidth", "of FMA");
  for (size_t c = 0; c < kCounts; ++c) {
    double all = 0;
    for (size_t p = 0; p < kProducts.size(); ++p) {
      const double weights = static_cast<double>(kProducts[p].n * kProducts[p].k) * kLayers;
      all += weights;
      print_row(kRowCounts[c], kProducts[p].name, weights, median(seconds[c][p]), limits);
    }
    print_row(kRowCounts[c], "layer", all, median(seconds[c].back()), limits);
    print_row(kRowCounts[c], "BF16 in", all, median(rounded_seconds[c]), limits);
  }
  std::vector<PeerProduct> products;
  for (const Product& p : kProducts) products.push_back({p.n, p.k});
  if (const auto peer = make_peer(products, kLayers, options.threads)) measure_beside_peer(options, layers, *peer);
}

constexpr char kUsage[] =
    "helios-matmul-bench [--threads N] [--rounds N]\n"
    "  Times a layer's four matrix products for 1 to 512 rows of FP32 and of BF16 inputs, beside the read bandwidth "
    "and FMA peak of this machine; then, in turn, a library where the build asked for one "
    "(-DHELIOS_BENCH_ONEDNN=ON).\n"
    "  --threads N   compute threads, 1 to 256 (default 1)\n"
    "  --rounds N    rounds that each median is taken over, 1 to 10000 (default 7)\n"
    "  --help        this text\n";

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  helios::bench::Flags options;
  if (!helios::bench::parse_flags(argc, argv, "helios-matmul-bench", helios::kUsage, false, &options)) return 2;
  helios::measure(options);
  return 0;
}
