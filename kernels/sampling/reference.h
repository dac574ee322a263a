// Sampling in FP64, straight from the definition: which tokens survive, with which probability. For tests.
#pragma once

#include <span>
#include <vector>

#include "common/base/ids.h"

namespace helios::reference {

struct SamplingDefinition {
  double temperature = 1.0;
  double min_p = 0.0;
  int top_k = 0;
  double top_p = 1.0;
};

/// Each id's probability of being sampled. Order: temperature, min-p, top-k, top-p; top-p over the mass of what
/// survived so far, the smallest set that reaches it; ids with equal logits at a cut stay or go together, and stay.
/// Temperature below 1e-5: the arg max, the smaller id on ties.
std::vector<double> sampling_probabilities(std::span<const float> row, const SamplingDefinition& definition);

/// Gumbel-max by brute force: noise for every survivor. The token that the sampler must choose.
TokenId sampled_token(std::span<const float> row, const SamplingDefinition& definition, uint64_t seed,
                      int32_t position);

}  // namespace helios::reference
