// A list in the order of use, and a map into it.
#include "coordinator/grammar/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace helios {
namespace {

std::string key_of(const GrammarSpec& spec) {
  std::string key{static_cast<char>(spec.kind), static_cast<char>(spec.space)};
  if (spec.kind != GrammarKind::kJsonObject) key += spec.source;
  return key;
}

}  // namespace

Result<std::shared_ptr<const CompiledGrammar>> GrammarCache::get(const GrammarSpec& spec) {
  std::string key = key_of(spec);
  const auto find = [&]() -> std::shared_ptr<const CompiledGrammar> {
    const auto known = by_key_.find(key);
    if (known == by_key_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, known->second);
    return entries_.front().grammar;
  };
  {
    const std::lock_guard lock(mutex_);
    if (auto known = find()) return known;
  }
  Result<std::shared_ptr<const GrammarVocabulary>> words = vocabulary();
  if (!words) return words.error();
  Result<std::shared_ptr<const CompiledGrammar>> compiled = CompiledGrammar::compile(spec, *std::move(words), limits_);
  if (!compiled) return compiled;
  const std::lock_guard lock(mutex_);
  if (auto known = find()) return known;
  entries_.push_front({key, *compiled});
  by_key_.emplace(std::move(key), entries_.begin());
  make_room();
  return compiled;
}

// Those that come while it is being made wait for it.
Result<std::shared_ptr<const GrammarVocabulary>> GrammarCache::vocabulary() {
  const std::lock_guard lock(vocabulary_mutex_);
  if (!vocabulary_) {
    Result<std::shared_ptr<const GrammarVocabulary>> made = vocabulary_source_();
    if (!made) return made.error();
    vocabulary_ = *std::move(made);
  }
  return vocabulary_;
}

// Grammars grow with use, so they are weighed anew each time.
void GrammarCache::make_room() {
  size_t bytes = bytes_locked();
  while (bytes > max_bytes_ && !entries_.empty()) {
    const Entry& oldest = entries_.back();
    bytes -= std::min(bytes, oldest.grammar->memory_bytes() + 2 * oldest.key.size());
    by_key_.erase(oldest.key);
    entries_.pop_back();
  }
}

size_t GrammarCache::bytes_locked() const {
  size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.grammar->memory_bytes() + 2 * entry.key.size();
  return bytes;
}

size_t GrammarCache::num_grammars() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t GrammarCache::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_locked();
}

}  // namespace helios
