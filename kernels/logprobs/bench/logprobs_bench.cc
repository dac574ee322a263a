// helios-logprobs-bench: the generation reduction alone, beside a loop that only reads the logits and beside the plain
// way (softmax of the row, then partial_sort).
//
// All three run in turn within each round on the same rows, and medians are printed: on a shared machine only figures
// of the same moment compare. Logits stay where the rounds leave them (L2 or L3), as after a step's output head.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/contract/completion_layout.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/logprobs/bench/read_once.h"
#include "kernels/logprobs/emit_logprobs.h"
#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"

namespace helios {
namespace {

struct Options {
  int threads = 1;
  int rounds = 25;
};

struct Report {
  const char* name;
  int alternatives;
  int num_ids;
};
constexpr Report kReports[] = {{"K=0", 0, 0}, {"K=5", 5, 0}, {"K=20", 20, 0}, {"ids=128", 20, 128}};

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// A language model's shape: a bulk, and two dozen ids far above it.
void fill_row(float* row, int64_t vocab, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  const auto uniform = [&] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53;
  };
  for (int64_t i = 0; i < vocab; ++i) {
    double sum = 0.0;
    for (int k = 0; k < 4; ++k) sum += uniform();
    row[i] = static_cast<float>(4.0 * (sum - 2.0) - 1.0);
  }
  for (int i = 0; i < 24; ++i) {
    row[static_cast<int64_t>(uniform() * static_cast<double>(vocab))] = static_cast<float>(6.0 + 9.0 * uniform());
  }
}

// One step's buffers for `lanes` positions, and the launches of one rank.
class Step {
 public:
  Step(int64_t vocab, int lanes, const Report& report, const float* logits, ThreadPool& pool)
      : vocab_(vocab),
        lanes_(lanes),
        report_(report),
        logits_(logits),
        pool_(pool),
        shard_(make_shard_tiles(VocabLayout(vocab), Rank(0), 1)),
        positions_(lanes),
        states_(static_cast<size_t>(lanes) * shard_.num_tiles()),
        lane_max_(states_.size() * kTileLanes),
        normalizers_(lanes),
        cuts_(lanes),
        keys_(states_.size() * kKeptSortKeys),
        counts_(states_.size(), kTileNotRead),
        packed_(static_cast<size_t>(lanes) * kPackedWords) {
    for (int i = 0; i < report.num_ids; ++i) ids_.push_back(static_cast<int32_t>(i * 7919LL % vocab));
    for (int lane = 0; lane < lanes; ++lane) {
      positions_[lane] = {.row = lane,
                          .chosen = static_cast<TokenId>(lane),
                          .num_selected = report.num_ids,
                          .selected = ids_.data(),
                          .packed = packed_.data() + static_cast<int64_t>(lane) * kPackedWords};
    }
  }

  void reduce() {
    tile_stats({.logits = logits_,
                .stride = vocab_,
                .positions = positions_.data(),
                .num_positions = &lanes_,
                .max_positions = lanes_,
                .shard = shard_.view(),
                .states = states_.data(),
                .lane_max = lane_max_.data()},
               pool_);
    row_normalizer({.states = states_.data(),
                    .lane_max = lane_max_.data(),
                    .num_positions = &lanes_,
                    .max_positions = lanes_,
                    .shard = shard_.view(),
                    .normalizers = normalizers_.data(),
                    .cuts = cuts_.data()},
                   pool_);
    if (report_.alternatives > 0) {
      tile_candidates({.logits = logits_,
                       .stride = vocab_,
                       .positions = positions_.data(),
                       .num_positions = &lanes_,
                       .max_positions = lanes_,
                       .shard = shard_.view(),
                       .states = states_.data(),
                       .normalizers = normalizers_.data(),
                       .cuts = cuts_.data(),
                       .keys = keys_.data(),
                       .counts = counts_.data()},
                      pool_);
    }
    emit_logprobs({.logits = logits_,
                   .stride = vocab_,
                   .positions = positions_.data(),
                   .num_positions = &lanes_,
                   .max_positions = lanes_,
                   .alternatives = report_.alternatives,
                   .shard = shard_.view(),
                   .normalizers = normalizers_.data(),
                   .keys = keys_.data(),
                   .counts = counts_.data()},
                  pool_);
  }

  /// Logits read and packed words written, per position.
  double bytes_moved() const {
    int64_t words = static_cast<int64_t>(lanes_) * (vocab_ + 1 + report_.num_ids);
    for (size_t item = 0; item < counts_.size(); ++item) {
      if (counts_[item] != kTileNotRead) words += shard_.tiles[item % shard_.num_tiles()].width;
    }
    words += static_cast<int64_t>(lanes_) * packed_words(report_.num_ids ? report_.num_ids : report_.alternatives);
    return 4.0 * static_cast<double>(words) / lanes_;
  }

 private:
  const int64_t vocab_;
  const int32_t lanes_;
  const Report report_;
  const float* logits_;
  ThreadPool& pool_;
  const ShardTiles shard_;
  std::vector<int32_t> ids_;
  std::vector<LogprobPosition> positions_;
  std::vector<LseState> states_;
  std::vector<float> lane_max_, normalizers_, cuts_;
  std::vector<SortKey> keys_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> packed_;
};

struct RowJob {
  const float* logits;
  int64_t vocab;
  std::vector<std::pair<float, int32_t>>* pairs;  // one a thread
  float sink = 0.0f;
};

void read_rows(RowJob& job, int lanes, ThreadPool& pool) {
  RowJob* j = &job;
  const int64_t words = lanes * job.vocab;
  pool.parallel_for(words, 1 << 16, [j](int64_t begin, int64_t end) {
    volatile float sink = read_once(j->logits + begin, end - begin);
    (void)sink;
  });
}

// What most servers' CPU paths do: log-softmax of the whole row, then the best 20 by partial_sort.
void softmax_and_sort(RowJob& job, int lanes, ThreadPool& pool) {
  struct Launch {
    RowJob& job;
    int lanes;
  } launch{job, lanes};
  Launch* l = &launch;
  pool.run([l](int thread, int num_threads) {
    auto& pairs = l->job.pairs[thread];
    const int64_t vocab = l->job.vocab;
    for (int lane = thread; lane < l->lanes; lane += num_threads) {
      const float* row = l->job.logits + lane * vocab;
      const float max = *std::max_element(row, row + vocab);
      float mass = 0.0f;
      for (int64_t i = 0; i < vocab; ++i) mass += std::exp(row[i] - max);
      const float normalizer = max + std::log(mass);
      for (int64_t i = 0; i < vocab; ++i) pairs[i] = {row[i] - normalizer, static_cast<int32_t>(i)};
      std::partial_sort(pairs.begin(), pairs.begin() + 20, pairs.begin() + static_cast<ptrdiff_t>(vocab),
                        std::greater<>());
    }
  });
}

void measure(int64_t vocab, int lanes, const Options& options, ThreadPool& pool) {
  AlignedBuffer logits(static_cast<size_t>(vocab) * lanes * sizeof(float));
  for (int lane = 0; lane < lanes; ++lane) fill_row(logits.as<float>() + lane * vocab, vocab, lane + 1);
  std::vector<std::vector<std::pair<float, int32_t>>> pairs(options.threads);
  for (auto& own : pairs) own.resize(vocab);
  RowJob job{logits.as<float>(), vocab, pairs.data()};
  std::vector<double> plain;
  for (int round = 0; round < std::max(3, options.rounds / 8); ++round) {
    const double start = now_us();
    softmax_and_sort(job, lanes, pool);
    plain.push_back((now_us() - start) / lanes);
  }
  const int repeats = std::max(1, 16 / lanes);
  for (const Report& report : kReports) {
    Step step(vocab, lanes, report, logits.as<float>(), pool);
    step.reduce();  // first touch of the workspace
    std::vector<double> ours, floor;
    for (int round = 0; round < options.rounds; ++round) {
      double start = now_us();
      for (int i = 0; i < repeats; ++i) read_rows(job, lanes, pool);
      floor.push_back((now_us() - start) / lanes / repeats);
      start = now_us();
      for (int i = 0; i < repeats; ++i) step.reduce();
      ours.push_back((now_us() - start) / lanes / repeats);
    }
    const double us = median(ours), read = median(floor), sort = median(plain);
    std::printf("%8lld %6d  %-8s %9.1f %10.2f %10.1f %8.2f %12.0f %9.1f\n", static_cast<long long>(vocab), lanes,
                report.name, us, step.bytes_moved() / 1e6, read, us / read, sort, sort / us);
  }
}

constexpr char kUsage[] =
    "helios-logprobs-bench [--threads N] [--rounds N]\n"
    "  Times the generation logprob reduction for vocabularies of 32,000, 151,936 and 262,144 ids.\n"
    "  --threads N   compute threads, 1 to 256 (default 1: the figures are then microseconds a core)\n"
    "  --rounds N    rounds that each median is taken over, 1 to 10000 (default 25)\n"
    "  --help        this text\n";

bool parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    int* value = flag == "--threads" ? &options->threads : flag == "--rounds" ? &options->rounds : nullptr;
    const int most = flag == "--threads" ? 256 : 10000;
    char* end = nullptr;
    const long number = value && i + 1 < argc ? std::strtol(argv[++i], &end, 10) : 0;
    if (!value || !end || *end != '\0' || number < 1 || number > most) {
      std::fprintf(stderr,
                   value ? "helios-logprobs-bench: %s: expected a number from 1 to %d\n"
                         : "helios-logprobs-bench: %s: unknown flag; see --help\n",
                   flag.c_str(), most);
      return false;
    }
    *value = static_cast<int>(number);
  }
  return true;
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  helios::Options options;
  if (!helios::parse(argc, argv, &options)) return 2;
  helios::ThreadPool pool(options.threads);
  std::printf("Generation logprobs, %d thread%s, medians of %d rounds. Times in microseconds a position.\n\n",
              options.threads, options.threads == 1 ? "" : "s", options.rounds);
  std::printf("%8s %6s  %-8s %9s %10s %10s %8s %12s %9s\n", "vocab", "lanes", "report", "us", "MB moved", "read once",
              "x read", "softmax+sort", "x faster");
  for (const int64_t vocab : {32000, 151936, 262144}) {
    for (const int lanes : {1, 8, 32}) helios::measure(vocab, lanes, options, pool);
  }
}
