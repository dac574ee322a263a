// Prints what was measured: a table for people, or one JSON object a line.
#pragma once

#include <cstdio>
#include <vector>

#include "kernels/base/machine_limits.h"
#include "worker/bench/bench_options.h"
#include "worker/bench/bench_plan.h"

namespace helios {

/// One piece of work: the median of its rounds.
struct BenchFigure {
  BenchWork work;
  double tokens_per_s = 0;
  double bytes_per_token = 0;
  double share_of_bandwidth = 0;       // of the read bandwidth measured between rounds
  double share_of_fma = 0;             // of the FMA peak measured between rounds
  double words_per_token = 0;          // 32-bit words that a rank sent to its peers
  double sampler_words_per_token = 0;  // of these, to choose tokens
};

/// What rank 0 sent in one round of a piece of work, in 32-bit words.
struct BenchWords {
  double all = 0;
  double sampler = 0;
};

struct BenchMemory {
  double weights_bytes = 0;         // of a rank, as packed; the mean
  double kv_cache_bytes = 0;        // of a rank; the mean
  double element_bytes = 0;         // of an element of the cache
  double peak_bytes = 0;            // most ever resident, loading included; the largest rank's
  double peak_bytes_all_ranks = 0;  // the sum: what ranks share counts for each
};

/// One piece of work by one process and by the ranks, in turn: tokens per second of each round, in the same order.
struct BenchPairs {
  std::vector<double> one, ranks;
};

double median_of(std::vector<double> values);  // at least one

/// `seconds` are the rounds of `work`; at least one. `words` are a round's, which every round repeats.
BenchFigure bench_figure(const BenchWork& work, const BenchCost& cost, const MachineLimits& limits,
                         std::vector<double> seconds, const BenchWords& words);

void print_table(std::FILE* out, const BenchOptions& options, const MachineLimits& limits, const BenchMemory& memory,
                 const std::vector<BenchFigure>& figures);
void print_json(std::FILE* out, const BenchOptions& options, const MachineLimits& limits, const BenchMemory& memory,
                const std::vector<BenchFigure>& figures);
/// Medians of both sides, and of the ratios within pairs with their quartiles; as JSON if the options say so.
void print_pairs(std::FILE* out, const BenchOptions& options, const std::vector<BenchWork>& plan,
                 const std::vector<BenchPairs>& pairs);

}  // namespace helios
