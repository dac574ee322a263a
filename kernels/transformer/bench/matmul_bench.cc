// helios-matmul-bench: the matrix products alone, at the shapes of a layer, beside the machine's own limits.
//
// A round measures the limits and then, for each number of rows and each format of weights, goes through all matrices
// of several layers in the order of a step, so that none is found in a cache; with FP32 inputs, and with inputs that
// are BF16 values. Medians over rounds: on a shared machine only figures of the same minute compare. A build with
// HELIOS_BENCH_ONEDNN times that library too, in turn.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
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

/// How weights are stored, and of 8-bit ones for how many columns a scale holds.
struct Format {
  const char* name;
  DType dtype;
  int64_t scale_columns;  // 0: all of a row
};
constexpr std::array<Format, 4> kFormats = {{{"BF16", DType::kBFloat16, 0},
                                             {"INT8", DType::kInt8, 0},
                                             {"FP8", DType::kFloat8E4M3, 0},
                                             {"FP8, blocks of 128", DType::kFloat8E4M3, 128}}};

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

/// Codes as quantised weights have them: E4M3's exponents fall off as those of evenly spread numbers do.
std::vector<uint8_t> random_codes(int64_t count, DType dtype) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  uint64_t state = 88172645463325252u;
  for (uint8_t& code : codes) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const int exponent = std::max(0, 14 - std::countr_zero(state >> 16 | 1u << 14));
    code = dtype == DType::kInt8 ? static_cast<uint8_t>(state)
                                 : static_cast<uint8_t>((state & 0x87) | static_cast<uint64_t>(exponent) << 3);
  }
  return codes;
}

/// Seconds of each product over all layers.
using Times = std::array<double, kProducts.size()>;

class Layers {
 public:
  Layers(const Format& format, ThreadPool& pool) : pool_(pool), store_(pool) {
    int64_t weights = 0, scratch = 0, most_n = 0, most_k = 0;
    for (const Product& p : kProducts) {
      weights = std::max(weights, p.n * p.k), most_n = std::max(most_n, p.n), most_k = std::max(most_k, p.k);
    }
    const bool bytes = is_eight_bit(format.dtype);
    const std::vector<float> source = random_floats(bytes ? most_n * most_k / 64 : weights);
    std::vector<float> scales;
    for (const float value : source) scales.push_back(0x1p-8f + std::fabs(value) * 0x1p-8f);
    const std::vector<uint8_t> codes = random_codes(bytes ? weights : 0, format.dtype);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const Product& p : kProducts) {
        std::vector<int64_t> segments;
        for (int s = 0; s <= p.segments; ++s) segments.push_back(p.k * s / p.segments);
        WeightRows rows{source.data(), DType::kFloat32, p.n, p.k};
        if (bytes) {
          const int64_t columns = format.scale_columns == 0 ? p.k : format.scale_columns;
          rows = {codes.data(), format.dtype, p.n, p.k, scales.data(), (p.k + columns - 1) / columns, columns};
        }
        matrices_.push_back(PackedMatrix::pack({&rows, 1}, 0, p.k, segments, format.dtype, store_));
        scratch = std::max(scratch, matmul_scratch_bytes(matrices_.back(), kMaxRows, pool.num_threads()));
      }
    }
    scratch_ = store_.allocate(static_cast<size_t>(scratch));
    x_ = random_floats(kMaxRows * most_k);
    for (const float x : x_) rounded_x_.push_back(round_to_bf16(x));
    out_.resize(static_cast<size_t>(kMaxRows * most_n));
  }

  /// Bytes of a product over all layers, scales and all.
  double bytes(size_t product) const { return static_cast<double>(matrices_[product].bytes()) * kLayers; }

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

void print_row(int64_t rows, const char* name, double bytes, double weights, double seconds,
               const MachineLimits& limits) {
  const double gb = bytes / seconds * 1e-9, gflop = 2 * weights * static_cast<double>(rows) / seconds * 1e-9;
  std::printf("%6lld  %-8s %8.1f %10.0f %12.2f %10.2f\n", static_cast<long long>(rows), name, gb, gflop,
              gb / limits.read_gb_per_s, gflop / limits.fma_gflop_per_s);
}

/// The layers in one format, and the seconds of their products, round by round.
class FormatTimes {
 public:
  FormatTimes(const Format& format, ThreadPool& pool) : name_(format.name), layers_(format, pool) {}

  Layers& layers() { return layers_; }

  void run(size_t count, bool warm) {
    layers_.run(1, DType::kFloat32);  // a step finds its own pages as it left them, not another format's
    const Times times = layers_.run(kRowCounts[count], DType::kFloat32);
    const Times rounded = layers_.run(kRowCounts[count], DType::kBFloat16);
    if (!warm) return;
    for (size_t p = 0; p < times.size(); ++p) seconds_[count][p].push_back(times[p]);
    seconds_[count][kLayer].push_back(std::accumulate(times.begin(), times.end(), 0.0));
    seconds_[count][kRounded].push_back(std::accumulate(rounded.begin(), rounded.end(), 0.0));
  }

  void print(const MachineLimits& limits) const {
    std::printf("\n%s weights\n%6s  %-8s %8s %10s %12s %10s\n", name_, "rows", "product", "GB/s", "GFLOP/s",
                "of bandwidth", "of FMA");
    for (size_t c = 0; c < std::size(kRowCounts); ++c) {
      double bytes = 0, weights = 0;
      for (size_t p = 0; p < kProducts.size(); ++p) {
        const double count = static_cast<double>(kProducts[p].n * kProducts[p].k) * kLayers;
        bytes += layers_.bytes(p), weights += count;
        print_row(kRowCounts[c], kProducts[p].name, layers_.bytes(p), count, median(seconds_[c][p]), limits);
      }
      print_row(kRowCounts[c], "layer", bytes, weights, median(seconds_[c][kLayer]), limits);
      print_row(kRowCounts[c], "BF16 in", bytes, weights, median(seconds_[c][kRounded]), limits);
    }
  }

 private:
  static constexpr size_t kLayer = kProducts.size(), kRounded = kLayer + 1;  // all products; with BF16 inputs
  const char* name_;
  Layers layers_;
  std::array<std::array<std::vector<double>, kProducts.size() + 2>, std::size(kRowCounts)> seconds_;
};

void measure(const bench::Flags& options) {
  ThreadPool pool(options.threads);
  LimitMeter meter(pool, int64_t{512} << 20);
  std::vector<std::unique_ptr<FormatTimes>> formats;
  for (const Format& format : kFormats) formats.push_back(std::make_unique<FormatTimes>(format, pool));
  std::vector<double> bandwidth, peak;
  for (int round = -1; round < options.rounds; ++round) {  // the first warms up
    const MachineLimits limits = meter.measure(std::chrono::milliseconds(30));
    if (round >= 0) bandwidth.push_back(limits.read_gb_per_s), peak.push_back(limits.fma_gflop_per_s);
    for (size_t c = 0; c < std::size(kRowCounts); ++c) {
      for (const auto& format : formats) format->run(c, round >= 0);
    }
  }
  const MachineLimits limits{.read_gb_per_s = median(bandwidth), .fma_gflop_per_s = median(peak)};
  std::printf(
      "FP32 inputs (last row of each: BF16), %d threads, medians of %d rounds; limits: %.1f GB/s read, %.0f GFLOP/s of "
      "FP32 FMA\n",
      options.threads, options.rounds, limits.read_gb_per_s, limits.fma_gflop_per_s);
  for (const auto& format : formats) format->print(limits);
  std::vector<PeerProduct> products;
  for (const Product& p : kProducts) products.push_back({p.n, p.k});
  if (const auto peer = make_peer(products, kLayers, options.threads)) {
    measure_beside_peer(options, formats[0]->layers(), *peer);
  }
}

constexpr char kUsage[] =
    "helios-matmul-bench [--threads N] [--rounds N]\n"
    "  Times a layer's four matrix products for 1 to 512 rows of FP32 and of BF16 inputs, with weights in BF16, INT8 "
    "and FP8, beside the read bandwidth and FMA peak of this machine; then, in turn, a library where the build asked "
    "for one (-DHELIOS_BENCH_ONEDNN=ON).\n"
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
