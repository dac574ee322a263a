#include "worker/bench/bench_plan.h"

#include <fmt/format.h>

#include <cmath>

#include "common/contract/completion_layout.h"
#include "worker/model/rank_shape.h"

namespace helios {
namespace {

double parameters_of_layers(const ModelConfig& c) {
  const double q = static_cast<double>(c.num_heads) * c.head_dim, kv = static_cast<double>(c.num_kv_heads) * c.head_dim;
  const auto hidden = static_cast<double>(c.hidden), inner = static_cast<double>(c.inner);
  return c.num_layers * (hidden * (q + 2 * kv) + q * hidden + 3 * hidden * inner);
}

/// Bytes of keys and values of one position in all layers and ranks; replicated heads count on each rank.
double cache_bytes(const ModelConfig& c, int ranks, double element_bytes) {
  double heads = 0;
  for (int rank = 0; rank < ranks; ++rank) heads += rank_shape(c, Rank(rank), ranks).num_kv();
  return c.num_layers * heads * c.head_dim * 2 * element_bytes;
}

std::vector<BenchWork> whole_plan(const ModelConfig& config, BenchContents contents) {
  std::vector<BenchWork> plan;
  if (contents == BenchContents::kScored) {
    for (const int tokens : {128, 512, 2048}) {
      if (tokens > config.max_positions) continue;
      for (const bool scored : {false, true}) plan.push_back({.prefill = true, .scored = scored, .tokens = tokens});
    }
    return plan;
  }
  for (const int tokens : {128, 512}) {
    if (tokens <= config.max_positions) plan.push_back({.prefill = true, .tokens = tokens});
  }
  if (kBenchContext + kBenchSteps > config.max_positions) return plan;
  for (const int batch : {1, 4, 16}) {
    if (contents == BenchContents::kPlain) {
      plan.push_back({.tokens = batch * kBenchSteps, .batch = batch});
      continue;
    }
    for (const int logprobs : {0, kMaxNaturalAlternatives}) {
      plan.push_back({.tokens = batch * kBenchSteps, .batch = batch, .logprobs = logprobs});
    }
    plan.push_back({.tokens = batch * kBenchSteps, .batch = batch, .sampled = true});
  }
  return plan;
}

}  // namespace

std::vector<BenchWork> bench_plan(const ModelConfig& config, BenchContents contents, const std::string& only) {
  std::vector<BenchWork> plan = whole_plan(config, contents);
  std::erase_if(plan, [&](const BenchWork& work) {
    return !only.empty() && only != (work.prefill ? fmt::format("prefill-{}", work.tokens)
                                                  : fmt::format("decode-{}", work.batch));
  });
  return plan;
}

BenchCost bench_cost(const BenchWork& work, const ModelConfig& config, int ranks, double weights_bytes,
                     double element_bytes) {
  const double per_position = cache_bytes(config, ranks, element_bytes), layers = parameters_of_layers(config);
  const double head = static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden);
  // A query meets each key and each value with head_dim multiply-adds.
  const double per_key = 4.0 * config.num_layers * config.num_heads * config.head_dim;
  const double n = work.tokens;
  if (work.prefill) {
    const double steps = std::ceil(n / kBenchChunk);
    return {.bytes = steps * weights_bytes + n * 2 * per_position,
            .flops = 2 * (n * layers + (work.scored ? n : 1) * head) + per_key * n * (n + 1) / 2};
  }
  const double steps = n / work.batch;
  const double keys = n * (kBenchContext + (steps + 1) / 2);  // seen, over all sequences and steps
  return {.bytes = steps * weights_bytes + (keys + n) * per_position,
          .flops = 2 * n * (layers + head) + per_key * keys};
}

}  // namespace helios
