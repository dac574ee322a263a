// From token events to what a client sees of one choice: text deltas, logprob entries, finish reason.
//
// Owns the incremental decoder, the stop filter and the text spans of one sequence. Entries are released with the text
// of their first byte, in generation order, and never for text that a stop string removes (R30, R31). Thread: the
// connection's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/completion/token_event.h"
#include "coordinator/output/token_text.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

struct OutputOptions {
  bool skip_special_tokens = true;
  std::vector<TokenId> shown_tokens;  // special tokens that stay in the text nevertheless: a parser's delimiters
  std::vector<std::string> stop;
  std::string stops_after;  // stop strings count only behind the first of these in the text; empty: from the start
  bool include_stop_str_in_output = false;
  bool tokens_as_token_ids = false;     // token texts as token_id:<decimal>
  int64_t min_tokens = 0;               // stop strings that complete before so many tokens were generated do not count
  bool keep_terminating_entry = false;  // completions with echo: EOS and stop ids keep their entry (wire formats, 0.1)
  int64_t text_offset_base = 0;         // code points of what the client sees before the generated text: the echo
};

struct OutputAlternative {
  TokenId id = -1;
  TokenText text;
  float logprob = 0.0f;
};

struct OutputEntry {
  TokenId id = -1;
  TokenText text;           // wire formats, 2.5
  TokenText bytes;          // the token's own
  int64_t text_offset = 0;  // code points into the choice's text
  int64_t text_byte = -1;   // where its first byte is in the released text, in bytes; -1: it contributes none
  float logprob = 0.0f;
  std::vector<OutputAlternative> alternatives;
  int32_t rank = 0;       // of a prompt token, from 1; generated ones have none
  bool has_value = true;  // false: a prompt position without a value; then neither logprob nor alternatives
};

struct OutputFinish {
  std::string reason;                      // "stop" or "length"
  std::optional<std::string> stop_string;  // stop_reason, when a stop string matched
  std::optional<TokenId> stop_token;       // or an id from the stop ids
};

/// What a chunk of prompt scores or one or more tokens released.
struct OutputDelta {
  std::vector<OutputEntry> prompt;  // entries of scored prompt positions, before all others
  std::string text;                 // valid UTF-8
  std::vector<OutputEntry> entries;
  std::vector<TokenId> token_ids;  // generated in this step, terminating ones included
  // Of tokens whose text, or place, was released, in order: where their first byte is in the released text, or -1.
  std::vector<int64_t> token_starts;
  std::optional<OutputFinish> finish;
};

class SequenceOutput {
 public:
  /// `prompt` gives context for fragments of characters at the start. `tokenizer` outlives this object.
  SequenceOutput(const Tokenizer& tokenizer, OutputOptions options, std::span<const TokenId> prompt);
  ~SequenceOutput();
  SequenceOutput(SequenceOutput&&) noexcept;
  SequenceOutput& operator=(SequenceOutput&&) noexcept;

  /// After a delta with `finish` set nothing more may be pushed; when a stop string set it, the caller cancels the
  /// stream.
  OutputDelta push(const TokenEvent& event);

  int64_t num_generated() const;  // tokens pushed, for usage

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
