#include <cmath>

#include "worker/model/model_config.h"

namespace helios {

std::vector<double> inverse_frequencies(const RopeConfig& rope, int head_dim) {
  std::vector<double> out(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    const double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / head_dim);
    out[i] = frequency;
    if (rope.scaling == RopeScaling::kLinear) out[i] = frequency / rope.factor;
    if (rope.scaling != RopeScaling::kLlama3) continue;
    // Long waves are stretched by the factor, short ones kept, those between blended.
    const double wave = 2.0 * M_PI / frequency, old = rope.original_max_positions;
    if (wave > old / rope.low_freq_factor) {
      out[i] = frequency / rope.factor;
    } else if (wave >= old / rope.high_freq_factor) {
      const double kept = (old / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      out[i] = (1.0 - kept) * frequency / rope.factor + kept * frequency;
    }
  }
  return out;
}

}  // namespace helios
