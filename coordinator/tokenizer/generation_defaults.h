// The model directory's own defaults for generation: EOS ids, context length, sampling values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace helios {

struct GenerationDefaults {
  std::vector<TokenId> eos_ids;  // the first is "the EOS" (finish kEos), the others act as stop ids
  int32_t max_position_embeddings = 0;
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
};

/// generation_config.json wins over config.json. Errors: kCorruptFile with path and reason.
Result<GenerationDefaults> load_generation_defaults(const std::string& model_dir);

}  // namespace helios
