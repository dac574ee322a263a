#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/logprobs/reference.h"

namespace helios::reference {

std::vector<SortKey> best_keys(std::span<const float> logits, TokenId first_id, float normalizer, size_t keep) {
  std::vector<SortKey> keys;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float reported = logits[i] - normalizer;
    if (!std::isnan(reported)) keys.push_back(make_key(reported, first_id + static_cast<TokenId>(i)));
  }
  std::sort(keys.begin(), keys.end(), std::greater<>());
  if (keys.size() > keep) keys.resize(keep);
  return keys;
}

}  // namespace helios::reference
