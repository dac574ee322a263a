// Logprob entries as JSON: a completions choice's four parallel arrays (text_offset, token_logprobs, tokens,
// top_logprobs), and chat's objects.
//
// Entries are rendered as they arrive, so that a long answer keeps its JSON and not its entries. Thread: the
// connection's strand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// The same FP32 value is the same text everywhere in a reply: exact as a double, -inf and below clamped to -9999.0.
/// Errors: kInternal for NaN or +inf, which must never be reported.
/// Source: wire formats, 1.4.
Status append_logprob(std::string& out, float logprob);

/// One entry in chat's form: {"token", "logprob", "bytes", "top_logprobs"}, the alternatives in their order and the
/// chosen token only if it is one of them; `with_ids` adds "token_id" to each.
/// Errors: kInternal when a value to be reported is NaN.
Status append_chat_entry(std::string& out, const OutputEntry& entry, const Tokenizer& tokenizer, bool with_ids);

class LogprobArrays {
 public:
  /// Of the entry's alternatives the first `max_alternatives` count. An entry without a value has null in the arrays of
  /// values. Errors: kInternal when a value to be reported is NaN; the arrays are then of no use.
  Status append(const OutputEntry& entry, size_t max_alternatives = SIZE_MAX);
  bool empty() const { return offsets_.empty(); }
  void clear();
  /// The object, or null when there is no entry.
  void append_object_or_null(std::string& out) const;
  /// The object, with empty arrays when there is no entry.
  void append_object(std::string& out) const;

 private:
  /// Of a dictionary's keys: a token of the entry.
  struct Candidate {
    TokenId id;
    float logprob;
    std::string_view text;
  };

  Status append_dictionary(const OutputEntry& entry, size_t max_alternatives);
  bool keeps_text(size_t candidate) const;

  std::string offsets_, values_, tokens_, dictionaries_;  // comma-separated elements
  std::vector<Candidate> candidates_;                     // scratch
  std::vector<uint64_t> prints_;                          // of their texts
};

}  // namespace helios
