// Compiled grammars by their source: clients send the same schema with every request.
//
// Bounded in bytes; the grammars used longest ago go first. A grammar in use lives on with its users. Failures are not
// kept. Compilation happens outside of the lock: two requests that bring a new source at once may both compile it, and
// then share one. Any thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "coordinator/grammar/compiled_grammar.h"

namespace helios {

class GrammarCache {
 public:
  using VocabularySource = std::function<Result<std::shared_ptr<const GrammarVocabulary>>()>;

  GrammarCache(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t max_bytes, const GrammarLimits& limits = {})
      : vocabulary_(std::move(vocabulary)), max_bytes_(max_bytes), limits_(limits) {}
  /// The vocabulary is made when the first grammar is asked for: a server without such requests never needs it.
  GrammarCache(VocabularySource vocabulary, size_t max_bytes, const GrammarLimits& limits = {})
      : vocabulary_source_(std::move(vocabulary)), max_bytes_(max_bytes), limits_(limits) {}

  /// Errors: as CompiledGrammar::compile, and as the vocabulary's source.
  Result<std::shared_ptr<const CompiledGrammar>> get(const GrammarSpec& spec);

  size_t num_grammars() const;
  /// Sources and grammars, as large as they are now.
  size_t memory_bytes() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const CompiledGrammar> grammar;
  };
  Result<std::shared_ptr<const GrammarVocabulary>> vocabulary();
  void make_room();
  size_t bytes_locked() const;

  const VocabularySource vocabulary_source_;
  std::mutex vocabulary_mutex_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;  // null until its source was asked
  const size_t max_bytes_;
  const GrammarLimits limits_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // used last first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

}  // namespace helios
