// A grammar over one vocabulary, and a sequence's place in it: constrained decoding.
//
// compile() is done once for a source; the result is shared by all sequences that use it. A matcher is a small value:
// the number of the parse state after each recent token. It may be copied, and rolled back when proposed tokens are
// not taken. What one sequence finds out (states, masks) the others find ready; it is kept within bounds, under a lock
// of the grammar. So matchers of one grammar may be used on different threads, one matcher on one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_spec.h"
#include "coordinator/grammar/grammar_vocabulary.h"

namespace helios {

namespace grammar {
struct Automaton;
class ParseStates;
}  // namespace grammar

class CompiledGrammar {
 public:
  /// Errors: kInvalidArgument, naming what is not supported and where (an offset in an expression, a path in a schema),
  /// or which limit is passed. The time is bounded by the limits, whatever the source.
  static Result<std::shared_ptr<const CompiledGrammar>> compile(const GrammarSpec& spec,
                                                                std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                                const GrammarLimits& limits = {});
  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  /// At present: it grows with use, up to a bound.
  size_t memory_bytes() const;
  size_t num_states() const;

 private:
  friend class GrammarMatcher;
  struct Memo;  // what is found out in use, with its lock
  CompiledGrammar(std::unique_ptr<const grammar::Automaton> automaton,
                  std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarLimits& limits);

  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const std::unique_ptr<const grammar::Automaton> automaton_;
  const std::unique_ptr<Memo> memo_;
};

class GrammarMatcher {
 public:
  /// Tokens that can be rolled back.
  static constexpr int kMaxRollback = 256;

  explicit GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar);

  /// Bit i of word i / 32: token i may come next. Stop tokens may exactly when the text may end; after one, only they.
  /// All other bits are cleared. `words`: at least (vocab_size + 31) / 32.
  /// Errors: kInvalidArgument for too few words; kUnsupported when no token continues the text (a vocabulary that lacks
  /// single bytes), or for a grammar so ambiguous that telling would take too long.
  Status fill_mask(std::span<uint32_t> words);

  /// Goes on with `token`. False, and nothing changes, when the grammar does not allow it.
  [[nodiscard]] bool accept(TokenId token);
  /// The text may end here (or has ended).
  bool is_complete() const { return complete_; }
  /// A stop token was accepted.
  bool is_stopped() const { return history_.back().stopped; }

  /// Takes the last `num_tokens` accepted tokens back. False, and nothing changes, when it cannot: there were fewer, or
  /// more than kMaxRollback.
  [[nodiscard]] bool rollback(int num_tokens);
  /// What was accepted so far stays: none of it can be rolled back, and nothing is kept for that.
  void settle() { history_.erase(history_.begin(), history_.end() - 1); }

 private:
  struct Place {
    uint32_t state;
    bool stopped;
  };

  void move_to_present_states();
  void see_completeness();

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::shared_ptr<grammar::ParseStates> states_;  // the numbers in history_ are its
  std::deque<Place> history_;                     // never empty; the last is the present place
  bool complete_ = false;
};

}  // namespace helios
