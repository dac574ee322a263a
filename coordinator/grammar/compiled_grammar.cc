// Compilation by kind, the shared memo, and the matcher.
#include "coordinator/grammar/compiled_grammar.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/grammar/automaton.h"
#include "coordinator/grammar/grammar_source.h"
#include "coordinator/grammar/mask_finder.h"
#include "coordinator/grammar/parse_states.h"

namespace helios {

using grammar::MaskFinder;
using grammar::ParseStates;

// When the states outgrow their bound, a fresh object takes their place. Matchers hold the one that their numbers
// belong to, and move over when they are next used; the old one goes with the last of them.
struct CompiledGrammar::Memo {
  Memo(const grammar::Automaton& automaton, const GrammarVocabulary& vocabulary, size_t max_state_bytes)
      : states(std::make_shared<ParseStates>(automaton)),
        masks(automaton, vocabulary),
        max_bytes(max_state_bytes),
        bound(max_state_bytes) {}

  void keep_within_bound(const grammar::Automaton& automaton) {
    if (states->memory_bytes() <= bound) return;
    bound = max_bytes;
    states = std::make_shared<ParseStates>(automaton);
    masks.forget_states();
  }

  mutable std::mutex mutex;
  std::shared_ptr<ParseStates> states;
  MaskFinder masks;
  const size_t max_bytes;
  size_t bound;  // max_bytes, or more while what the matchers are in takes more
};

CompiledGrammar::CompiledGrammar(std::unique_ptr<const grammar::Automaton> automaton,
                                 std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarLimits& limits)
    : vocabulary_(std::move(vocabulary)),
      automaton_(std::move(automaton)),
      memo_(std::make_unique<Memo>(*automaton_, *vocabulary_, limits.max_memo_bytes)) {}

CompiledGrammar::~CompiledGrammar() = default;

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::compile(
    const GrammarSpec& spec, std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarLimits& limits) {
  Result<grammar::Automaton> automaton = grammar::automaton_of(spec, limits);
  if (!automaton) return automaton.error();
  std::shared_ptr<CompiledGrammar> compiled(new CompiledGrammar(
      std::make_unique<const grammar::Automaton>(std::move(*automaton)), std::move(vocabulary), limits));
  compiled->memo_->masks.prepare(*compiled->memo_->states);
  return std::shared_ptr<const CompiledGrammar>(std::move(compiled));
}

size_t CompiledGrammar::memory_bytes() const {
  const std::lock_guard lock(memo_->mutex);
  return automaton_->memory_bytes() + memo_->states->memory_bytes() + memo_->masks.memory_bytes();
}

size_t CompiledGrammar::num_states() const { return automaton_->states.size(); }

GrammarMatcher::GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
  const std::lock_guard lock(grammar_->memo_->mutex);
  states_ = grammar_->memo_->states;
  history_.push_back({states_->start(), false});
  see_completeness();
}

Status GrammarMatcher::fill_mask(std::span<uint32_t> words) {
  const GrammarVocabulary& vocabulary = grammar_->vocabulary();
  if (words.size() < vocabulary.mask_words())
    return Error{Errc::kInvalidArgument, "a mask of " + std::to_string(words.size()) + " words is too small for " +
                                             std::to_string(vocabulary.vocab_size()) + " tokens"};
  if (is_stopped()) {
    std::fill(words.begin(), words.end(), 0);
    for (const TokenId id : vocabulary.stop_ids()) words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return Ok{};
  }
  CompiledGrammar::Memo& memo = *grammar_->memo_;
  const std::lock_guard lock(memo.mutex);
  move_to_present_states();
  Status status = memo.masks.fill(*states_, history_.back().state, words);
  memo.keep_within_bound(*grammar_->automaton_);
  return status;
}

bool GrammarMatcher::accept(TokenId token) {
  const GrammarVocabulary& vocabulary = grammar_->vocabulary();
  if (token < 0 || token >= vocabulary.vocab_size()) return false;
  const Place present = history_.back();
  Place next = present;
  if (vocabulary.is_stop(token)) {
    if (!complete_) return false;
    next.stopped = true;
  } else {
    const std::string_view bytes = vocabulary.token_bytes(token);
    if (bytes.empty() || present.stopped) return false;
    CompiledGrammar::Memo& memo = *grammar_->memo_;
    const std::lock_guard lock(memo.mutex);
    move_to_present_states();
    next = history_.back();
    for (const char c : bytes) {
      next.state = states_->step(next.state, static_cast<uint8_t>(c));
      if (next.state == ParseStates::kDead) return false;
    }
    complete_ = states_->complete(next.state);
    memo.keep_within_bound(*grammar_->automaton_);
  }
  history_.push_back(next);
  if (history_.size() > kMaxRollback + 1) history_.pop_front();
  return true;
}

bool GrammarMatcher::rollback(int num_tokens) {
  if (num_tokens < 0 || static_cast<size_t>(num_tokens) >= history_.size()) return false;
  history_.resize(history_.size() - static_cast<size_t>(num_tokens));
  const std::lock_guard lock(grammar_->memo_->mutex);
  see_completeness();
  return true;
}

// Both with the grammar's lock held.
void GrammarMatcher::see_completeness() { complete_ = states_->complete(history_.back().state); }

void GrammarMatcher::move_to_present_states() {
  const std::shared_ptr<ParseStates>& present = grammar_->memo_->states;
  if (states_ == present) return;
  std::vector<ParseStates::StateId> numbers;
  for (const Place& place : history_) numbers.push_back(place.state);
  numbers = present->adopt(*states_, numbers);
  for (size_t i = 0; i < numbers.size(); ++i) history_[i].state = numbers[i];
  states_ = present;
  grammar_->memo_->bound = std::max(grammar_->memo_->bound, 2 * present->memory_bytes());
}

}  // namespace helios
