// --speculative-config, vLLM's: which tokens are guessed ahead, so that one step can verify several.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/result.h"

namespace helios {

inline constexpr int32_t kMostProposals = 15;  // verified at once, behind the token that a step gives anyway
inline constexpr int32_t kLongestLookup = 16;  // tokens of an n-gram
/// vLLM's. Shorter n-grams are found more often, and by chance: who waits for such guesses loses more than they give.
inline constexpr int32_t kDefaultLookup = 5;

struct SpeculativeConfig {
  int32_t num_tokens = 0;  // 1..kMostProposals
  int32_t lookup_min = kDefaultLookup, lookup_max = kDefaultLookup;
};

/// A JSON object: "method", of which there is "ngram" alone; "num_speculative_tokens"; and if not as above,
/// "prompt_lookup_max" and "prompt_lookup_min", of which one that is left out is the other.
/// Errors: kInvalidArgument, one line that names the member, what was found and what was expected.
Result<SpeculativeConfig> parse_speculative_config(std::string_view json);

}  // namespace helios
