// See token_text.h. Alternatives are repaired on their own against the same context, never against each other.
#include "coordinator/output/token_text.h"

#include <algorithm>

#include "coordinator/tokenizer/utf8.h"

namespace helios {

TokenTextContext::TokenTextContext(const Tokenizer& tokenizer, bool skip_special_tokens,
                                   std::span<const TokenId> prompt)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {
  // Hidden tokens do not count, so look a little further back than the ring is long; then forwards.
  size_t begin = prompt.size();
  for (size_t found = 0; begin > 0 && found < kContextTokens; --begin) {
    found += !(skip_special_tokens_ && tokenizer.is_special(prompt[begin - 1]));
  }
  for (const TokenId token : prompt.subspan(begin)) push(token);
}

void TokenTextContext::push(TokenId token, bool shown) {
  if (!shown && skip_special_tokens_ && tokenizer_->is_special(token)) return;
  recent_[count_++ % kContextTokens] = token;
}

std::string TokenTextContext::unfinished() const {
  std::string bytes;
  const size_t held = std::min(count_, kContextTokens);
  for (size_t i = count_ - held; i < count_; ++i) bytes += tokenizer_->token_bytes(recent_[i % kContextTokens]);
  std::string ignored;
  const size_t size = append_lossy(bytes, &ignored);
  return bytes.substr(bytes.size() - size);
}

TokenText TokenTextContext::text(TokenId token) const {
  const std::string_view bytes = tokenizer_->token_bytes(token);
  if (valid_utf8(bytes)) return TokenText::borrow(bytes);
  std::string text;
  append_lossy(unfinished().append(bytes), &text);
  return text;
}

}  // namespace helios
