#include <cmath>

#include "kernels/logprobs/reference.h"

namespace helios::reference {

int64_t prompt_rank(std::span<const float> row, float normalizer, TokenId actual) {
  const float value = row[static_cast<size_t>(actual)] - normalizer;
  if (std::isnan(value)) return 0;
  int64_t rank = 1;
  for (const float logit : row) rank += logit - normalizer > value;
  return rank;
}

}  // namespace helios::reference
