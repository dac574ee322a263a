// Guesses the next tokens of a sequence from the sequence itself: what followed when it last ended like this.
//
// Verification samples the target at every guessed position with that position's own noise, so a guess decides how many
// tokens come at once and nothing else. The index grows by each token once and is asked in a few probes, however long
// the context is. One a sequence. Thread: engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"

namespace helios {

/// vLLM's "ngram" method.
struct PromptLookupOptions {
  int32_t num_tokens = 0;  // proposed at most; 0: none ever
  int32_t shortest = 2;    // n-grams that are looked for, 1 <= shortest <= longest
  int32_t longest = 4;
  bool on() const { return num_tokens > 0; }
};

class PromptLookup {
 public:
  explicit PromptLookup(const PromptLookupOptions& options);

  /// `tokens`  the sequence as far as it is known; it begins with what was given before.
  void extend(std::span<const TokenId> tokens);

  /// Finds the longest n-gram at the end of `tokens`, those of the last extend(), that occurred before, and takes what
  /// followed its last earlier occurrence: num_tokens ids, or none. What followed up to the end of the sequence goes on
  /// with itself, as a period would.
  std::vector<TokenId> propose(std::span<const TokenId> tokens) const;

 private:
  /// Where each n-gram ended last: a table of ends with open addressing, whose keys are in the sequence itself. An end
  /// is the index behind the n-gram's last token; 0 is an empty place.
  struct LastEnds {
    std::vector<int32_t> ends;  // a power of two of them, at most half of them used
    int32_t num_used = 0;
  };
  size_t hash(std::span<const TokenId> gram) const;
  size_t place(const LastEnds& table, std::span<const TokenId> tokens, std::span<const TokenId> gram) const;
  void put(LastEnds& table, std::span<const TokenId> tokens, std::span<const TokenId> gram, int32_t end) const;

  const PromptLookupOptions options_;
  // Of the hash: a client chooses the tokens, and must not be able to choose where they collide. What is found does not
  // depend on it.
  const uint64_t key_;
  std::vector<LastEnds> tables_;  // one a length, the shortest first
  int32_t num_ends_ = 0;          // n-grams that end here or before are in the tables
};

}  // namespace helios
