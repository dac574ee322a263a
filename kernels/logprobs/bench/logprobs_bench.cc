// helios-logprobs-bench: the generation reduction alone, beside a loop that only reads the logits and beside the plain
// way (softmax of the row, then partial_sort).
//
// All three run in turn within each round on the same rows, and medians are printed: on a shared machine only figures
// of the same moment compare. Logits stay where the rounds leave them (L2 or L3), as after a step's output head.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/bench_flags.h"
#include "kernels/logprobs/bench/read_once.h"
#include "kernels/logprobs/bench/reduction_step.h"

namespace helios {
namespace {

using bench::ReductionStep;
using bench::Report;

constexpr Report kReports[] = {{"K=0", 0, 0}, {"K=5", 5, 0}, {"K=20", 20, 0}, {"ids=128", 20, 128}};

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of one measurement's rounds: the median, or the best where other work keeps taking the cores away.
double typical(std::vector<double> values, const bench::Flags& options) {
  if (options.best) return *std::min_element(values.begin(), values.end());
  return bench::median(std::move(values));
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

void measure(int64_t vocab, int lanes, const bench::Flags& options, ThreadPool& pool) {
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
    ReductionStep step(vocab, lanes, 1, report, logits.as<float>(), pool);
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
    const double us = typical(ours, options), read = typical(floor, options), sort = typical(plain, options);
    std::printf("%8lld %6d  %-8s %9.1f %10.2f %10.1f %8.2f %12.0f %9.1f\n", static_cast<long long>(vocab), lanes,
                report.name, us, step.bytes_moved() / 1e6, read, us / read, sort, sort / us);
  }
}

// Two ranks' launches in turn on the same threads, and what the two exchanges carry: the same for every vocabulary.
void measure_two_ranks(int64_t vocab, int lanes, const bench::Flags& options, ThreadPool& pool) {
  AlignedBuffer logits(static_cast<size_t>(vocab) * lanes * sizeof(float));
  for (int lane = 0; lane < lanes; ++lane) fill_row(logits.as<float>() + lane * vocab, vocab, lane + 1);
  for (const Report& report : kReports) {
    ReductionStep step(vocab, lanes, 2, report, logits.as<float>(), pool);
    step.reduce();
    std::vector<double> times;
    for (int round = 0; round < options.rounds; ++round) {
      const double start = now_us();
      step.reduce();
      times.push_back((now_us() - start) / lanes / 2);
    }
    std::printf("%8lld %6d  %-8s %9.1f %10.0f\n", static_cast<long long>(vocab), lanes, report.name,
                typical(times, options), step.words_exchanged());
  }
}

constexpr char kUsage[] =
    "helios-logprobs-bench [--threads N] [--rounds N] [--best]\n"
    "  Times the generation logprob reduction for vocabularies of 32,000, 151,936 and 262,144 ids.\n"
    "  --threads N   compute threads, 1 to 256 (default 1: the figures are then microseconds a core)\n"
    "  --rounds N    rounds that each median is taken over, 1 to 10000 (default 25)\n"
    "  --best        print each measurement's best round instead: for a machine that others use, too\n"
    "  --help        this text\n";

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  helios::bench::Flags options{.rounds = 25};
  if (!helios::bench::parse_flags(argc, argv, "helios-logprobs-bench", helios::kUsage, true, &options)) return 2;
  helios::ThreadPool pool(options.threads);
  std::printf("Generation logprobs, %d thread%s, %s of %d rounds. Times in microseconds a position.\n\n",
              options.threads, options.threads == 1 ? "" : "s", options.best ? "best" : "medians", options.rounds);
  std::printf("%8s %6s  %-8s %9s %10s %10s %8s %12s %9s\n", "vocab", "lanes", "report", "us", "MB moved", "read once",
              "x read", "softmax+sort", "x faster");
  for (const int64_t vocab : {32000, 151936, 262144}) {
    for (const int lanes : {1, 8, 32}) helios::measure(vocab, lanes, options, pool);
  }
  std::printf("\nTP 2: microseconds and 32-bit words sent, a position a rank.\n\n%8s %6s  %-8s %9s %10s\n", "vocab",
              "lanes", "report", "us", "words");
  for (const int64_t vocab : {32000, 151936, 262144}) helios::measure_two_ranks(vocab, 8, options, pool);
}
