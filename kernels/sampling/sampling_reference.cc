#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/sampling/philox.h"
#include "kernels/sampling/reference.h"

namespace helios::reference {
namespace {

bool is_greedy(const SamplingDefinition& definition) { return !(definition.temperature >= 1e-5); }

TokenId arg_max(std::span<const double> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace

std::vector<double> transformed_logits(std::span<const float> row, const TransformDefinition& definition) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  std::vector<double> logits(row.begin(), row.end());
  for (const LogitBias& bias : definition.logit_bias) logits[bias.id] += bias.bias;
  if (!definition.allowed_ids.empty()) {
    std::vector<double> allowed(row.size(), kNever);
    for (const TokenId id : definition.allowed_ids) allowed[id] = logits[id];
    logits = allowed;
  }
  for (const TokenId id : definition.forbidden_ids) logits[id] = kNever;
  std::vector<int> counts(row.size());
  for (const TokenCount& count : definition.output_counts) counts[count.id] = count.count;
  std::vector<bool> repeats(counts.begin(), counts.end());
  for (const TokenId id : definition.prompt_ids) repeats[id] = true;
  for (size_t id = 0; id < row.size(); ++id) {
    if (repeats[id]) {
      logits[id] =
          logits[id] > 0 ? logits[id] / definition.repetition_penalty : logits[id] * definition.repetition_penalty;
    }
    logits[id] -= definition.frequency_penalty * counts[id];
    if (counts[id] > 0) logits[id] -= definition.presence_penalty;
  }
  return logits;
}

std::vector<double> sampling_probabilities(std::span<const double> row, const SamplingDefinition& definition) {
  std::vector<double> probabilities(row.size(), 0.0);
  if (is_greedy(definition)) {
    probabilities[arg_max(row)] = 1.0;
    return probabilities;
  }
  const double max = row[arg_max(row)];
  std::vector<int> order(row.size());  // best first
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
  const auto weight = [&](int id) { return std::exp((row[id] - max) / definition.temperature); };

  // Every filter keeps a prefix of the order; `kept` is its length.
  size_t kept = order.size();
  while (kept > 0 && std::isinf(row[order[kept - 1]])) --kept;
  const auto with_ties = [&](size_t length) {
    while (length < kept && row[order[length]] == row[order[length - 1]]) ++length;
    return length;
  };
  if (definition.min_p > 0.0) {
    while (weight(order[kept - 1]) < definition.min_p) --kept;
  }
  if (definition.top_k > 0 && static_cast<size_t>(definition.top_k) < kept) kept = with_ties(definition.top_k);
  if (definition.top_p < 1.0) {
    double total = 0.0;
    for (size_t i = 0; i < kept; ++i) total += weight(order[i]);
    double mass = 0.0;
    size_t length = 0;
    do {
      mass += weight(order[length++]);
    } while (length < kept && mass < definition.top_p * total);
    kept = with_ties(length);
  }
  double total = 0.0;
  for (size_t i = 0; i < kept; ++i) total += weight(order[i]);
  for (size_t i = 0; i < kept; ++i) probabilities[order[i]] = weight(order[i]) / total;
  return probabilities;
}

TokenId sampled_token(std::span<const double> row, const SamplingDefinition& definition, uint64_t seed,
                      int32_t position) {
  if (is_greedy(definition)) return arg_max(row);
  const auto probabilities = sampling_probabilities(row, definition);
  TokenId best = -1;
  double best_score = -std::numeric_limits<double>::infinity();
  for (TokenId id = 0; id < static_cast<TokenId>(row.size()); ++id) {
    if (probabilities[id] == 0.0) continue;
    const double score = row[id] / definition.temperature + gumbel(token_uniform({seed, position}, id));
    if (score > best_score) best = id, best_score = score;
  }
  return best;
}

}  // namespace helios::reference
