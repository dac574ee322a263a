#include "coordinator/engine/bad_words.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace helios {

void RecentTokens::push(TokenId token) {
  if (most_ == 0) return;
  if (tokens_.size() == 2 * most_) tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(most_));
  tokens_.push_back(token);
}

std::span<const TokenId> RecentTokens::view() const { return std::span(tokens_).last(std::min(most_, tokens_.size())); }

BadWords::BadWords(std::span<const std::vector<TokenId>> sequences) {
  for (const std::vector<TokenId>& sequence : sequences) {
    HELIOS_CHECK(!sequence.empty(), sequences.size());
    const TokenId last = sequence.back();
    std::vector<TokenId> before(sequence.begin(), sequence.end() - 1);
    context_ = std::max(context_, before.size());
    if (before.empty()) {
      alone_.push_back(last);
    } else {
      by_before_[before.back()].push_back({before, last});
    }
  }
}

template <class Visit>
void BadWords::visit_endings(std::span<const TokenId> recent, const Visit& visit) const {
  for (const TokenId id : alone_) visit(id);
  if (recent.empty()) return;
  const auto found = by_before_.find(recent.back());
  if (found == by_before_.end()) return;
  for (const Ending& ending : found->second) {
    const size_t size = ending.before.size();
    if (size <= recent.size() && std::ranges::equal(recent.last(size), ending.before)) visit(ending.last);
  }
}

void BadWords::forbid(std::span<const TokenId> recent, std::span<uint32_t> words) const {
  visit_endings(recent, [&](TokenId id) {
    const size_t word = static_cast<size_t>(id) / 32;
    if (id >= 0 && word < words.size()) words[word] &= ~(1u << (id % 32));
  });
}

bool BadWords::ends_with(std::span<const TokenId> recent, TokenId token) const {
  bool found = false;
  visit_endings(recent, [&](TokenId id) { found = found || id == token; });
  return found;
}

}  // namespace helios
