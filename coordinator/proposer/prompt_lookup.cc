#include "coordinator/proposer/prompt_lookup.h"

#include <algorithm>
#include <random>

#include "common/base/check.h"

namespace helios {
namespace {

constexpr size_t kFirstPlaces = 64;

uint64_t random_key() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

}  // namespace

PromptLookup::PromptLookup(const PromptLookupOptions& options) : options_(options), key_(random_key()) {
  HELIOS_CHECK(options.on() && options.shortest >= 1 && options.shortest <= options.longest, options.shortest);
  tables_.resize(static_cast<size_t>(options.longest - options.shortest + 1));
  for (LastEnds& table : tables_) table.ends.assign(kFirstPlaces, 0);
}

size_t PromptLookup::hash(std::span<const TokenId> gram) const {
  uint64_t h = key_;
  for (const TokenId token : gram) {
    h = (h ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return static_cast<size_t>(h);
}

/// Where the n-gram is, or the empty place where it would be.
size_t PromptLookup::place(const LastEnds& table, std::span<const TokenId> tokens,
                           std::span<const TokenId> gram) const {
  const size_t mask = table.ends.size() - 1;
  size_t at = hash(gram) & mask;
  while (const int32_t end = table.ends[at]) {
    if (std::equal(gram.begin(), gram.end(), tokens.begin() + end - static_cast<int64_t>(gram.size()))) break;
    at = (at + 1) & mask;
  }
  return at;
}

void PromptLookup::put(LastEnds& table, std::span<const TokenId> tokens, std::span<const TokenId> gram,
                       int32_t end) const {
  int32_t& found = table.ends[place(table, tokens, gram)];
  const bool is_new = found == 0;
  found = end;
  if (!is_new || 2 * static_cast<size_t>(++table.num_used) <= table.ends.size()) return;
  LastEnds wider{.ends = std::vector<int32_t>(4 * table.ends.size(), 0), .num_used = table.num_used};
  for (const int32_t moved : table.ends) {
    if (moved == 0) continue;
    const auto key = tokens.subspan(static_cast<size_t>(moved) - gram.size(), gram.size());
    wider.ends[place(wider, tokens, key)] = moved;
  }
  table = std::move(wider);
}

void PromptLookup::extend(std::span<const TokenId> tokens) {
  // The n-grams at the very end are asked for, and would find themselves.
  const int32_t last = static_cast<int32_t>(tokens.size()) - 1;
  for (int32_t end = num_ends_ + 1; end <= last; ++end) {
    for (int32_t n = options_.shortest; n <= std::min(options_.longest, end); ++n) {
      const auto gram = tokens.subspan(static_cast<size_t>(end - n), static_cast<size_t>(n));
      put(tables_[static_cast<size_t>(n - options_.shortest)], tokens, gram, end);
    }
  }
  num_ends_ = std::max(num_ends_, last);
}

std::vector<TokenId> PromptLookup::propose(std::span<const TokenId> tokens) const {
  const auto size = static_cast<int32_t>(tokens.size());
  int32_t best = 0;
  for (int32_t n = options_.shortest; n <= std::min(options_.longest, size); ++n) {
    const LastEnds& table = tables_[static_cast<size_t>(n - options_.shortest)];
    const int32_t end = table.ends[place(table, tokens, tokens.last(static_cast<size_t>(n)))];
    if (end == 0) break;  // then no longer one has occurred either
    best = end;
  }
  std::vector<TokenId> out;
  if (best == 0) return out;
  out.reserve(static_cast<size_t>(options_.num_tokens));
  for (int32_t i = 0; i < options_.num_tokens; ++i) {
    const int32_t from = best + i;
    out.push_back(from < size ? tokens[static_cast<size_t>(from)] : out[static_cast<size_t>(from - size)]);
  }
  return out;
}

}  // namespace helios
