// Sampling in FP64, straight from the definition: what transformations make of a row, which tokens survive the filters,
// with which probability. For tests.
#pragma once

#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/sampling_params.h"

namespace helios::reference {

/// What is done to logits before the filters, in this order.
struct TransformDefinition {
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_ids;    // empty: every id
  std::vector<TokenId> forbidden_ids;  // EOS and stop ids before min_tokens
  double repetition_penalty = 1.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenCount> output_counts;
};

std::vector<double> transformed_logits(std::span<const float> row, const TransformDefinition& definition);

struct SamplingDefinition {
  double temperature = 1.0;
  double min_p = 0.0;
  int top_k = 0;
  double top_p = 1.0;
};

/// Each id's probability of being sampled. Order: temperature, min-p, top-k, top-p; top-p over the mass of what
/// survived so far, the smallest set that reaches it; ids with equal logits at a cut stay or go together, and stay.
/// Temperature below 1e-5: the arg max, the smaller id on ties.
std::vector<double> sampling_probabilities(std::span<const double> row, const SamplingDefinition& definition);

/// Gumbel-max by brute force: noise for every survivor. The token that the sampler must choose.
TokenId sampled_token(std::span<const double> row, const SamplingDefinition& definition, uint64_t seed,
                      int32_t position);

inline std::vector<double> widened(std::span<const float> row) { return {row.begin(), row.end()}; }
inline std::vector<double> sampling_probabilities(std::span<const float> row, const SamplingDefinition& definition) {
  return sampling_probabilities(widened(row), definition);
}
inline TokenId sampled_token(std::span<const float> row, const SamplingDefinition& definition, uint64_t seed,
                             int32_t position) {
  return sampled_token(widened(row), definition, seed, position);
}

}  // namespace helios::reference
