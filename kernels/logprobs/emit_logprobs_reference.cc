#include <limits>

#include "kernels/logprobs/reference.h"

namespace helios::reference {

std::vector<double> logprobs(std::span<const float> row, std::span<const TokenId> ids) {
  const double normalizer = row_normalizer(row);
  std::vector<double> values;
  for (const TokenId id : ids) {
    const bool valid = id >= 0 && id < static_cast<TokenId>(row.size());
    values.push_back(valid ? static_cast<double>(row[id]) - normalizer : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

}  // namespace helios::reference
