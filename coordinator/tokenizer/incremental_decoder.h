// Text as tokens arrive: hands out what no later token can change, and where each token's first byte landed in it.
//
// What may still change is held back: an unfinished code point, and a whole run of byte-fallback tokens (one bad byte
// replaces all of the run). Nothing is decoded twice and no earlier text is kept (R30). Thread: its owner's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/utf8.h"

namespace helios {

/// Where a token starts in the generated text. A fragment of a character starts where its character does; a token
/// without text starts where the next token with text does.
struct TextStart {
  int64_t bytes = 0;
  int64_t code_points = 0;
  bool has_bytes = false;  // false: hidden, unknown or empty, so it contributes nothing
  friend bool operator==(const TextStart&, const TextStart&) = default;
};

struct DecodedText {
  std::string text;               // valid UTF-8
  std::vector<TextStart> starts;  // one for each token, in the order of push(), once it is known
};

class IncrementalDecoder {
 public:
  /// The text continues `prompt`: it is decode(prompt + tokens) less decode(prompt). A leading space is stripped only
  /// when the prompt has no text; a character that the prompt leaves unfinished is the first token's to finish.
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, std::span<const TokenId> prompt);

  enum class Show {
    kByKind,  // special tokens as the constructor was told
    kNever,
    kAlways,
  };
  /// Appends to `out`. A token that is not shown contributes no text.
  void push(TokenId token, DecodedText* out, Show show = Show::kByKind);

  /// What was held back, as it stands: an unfinished character is U+FFFD. Nothing may be pushed afterwards.
  void finish(DecodedText* out);

 private:
  bool contributes(TokenId token) const;
  void seed(std::span<const TokenId> prompt);
  void push_byte_level(std::string_view bytes, DecodedText* out);
  void push_run_byte(char byte, DecodedText* out);
  void end_run(DecodedText* out);
  void replace_run(DecodedText* out);
  void emit(std::string_view text, DecodedText* out);
  /// Settles the first `size` bytes of what is pending as one unit of text: a character, or one replacement.
  void settle(size_t size, bool valid, DecodedText* out);
  void resolve_before(size_t end, DecodedText* out);
  void settle_starts(DecodedText* out);

  struct Waiting {
    size_t at;  // index into pending_ of the token's first byte, or of the next byte to come
    bool has_bytes;
  };

  const Tokenizer* tokenizer_;
  const bool skip_special_tokens_;
  bool strip_space_;             // still to strip
  std::string pending_;          // bytes not yet text
  size_t consumed_ = 0;          // of pending_, settled by the call in progress
  size_t prompt_bytes_ = 0;      // of pending_, counted from its start, that are the prompt's
  size_t run_checked_ = 0;       // of a run in pending_, whole characters so far
  bool in_run_ = false;          // pending_ is a run of byte-fallback tokens
  bool run_is_bad_ = false;      // each further byte of this run is U+FFFD at once
  std::deque<Waiting> waiting_;  // tokens whose start is not yet known
  int64_t emitted_bytes_ = 0;
  int64_t emitted_code_points_ = 0;
};

}  // namespace helios
