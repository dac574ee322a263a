#include <cmath>

#include "kernels/logprobs/reference.h"

namespace helios::reference {

double row_normalizer(std::span<const float> row) {
  const TileStats stats = tile_stats(row);
  return stats.max + std::log(stats.mass);
}

}  // namespace helios::reference
