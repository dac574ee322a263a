#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/logprobs/reference.h"

namespace helios::reference {

TileStats tile_stats(std::span<const float> logits) {
  TileStats stats{-std::numeric_limits<double>::infinity(), 0.0};
  for (const float logit : logits) stats.max = std::max(stats.max, static_cast<double>(logit));
  if (std::isinf(stats.max) && stats.max < 0) return stats;
  for (const float logit : logits) stats.mass += std::exp(static_cast<double>(logit) - stats.max);
  return stats;
}

}  // namespace helios::reference
