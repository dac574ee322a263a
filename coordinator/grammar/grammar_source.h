// From a client's source to an automaton: one translator for each kind.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/grammar/automaton.h"
#include "coordinator/grammar/grammar_spec.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

/// Errors: as CompiledGrammar::compile.
Result<Automaton> automaton_of(const GrammarSpec& spec, const GrammarLimits& limits);

/// A JSON array of strings. Errors: kInvalidArgument when it is not one, or empty.
Result<NodeId> translate_choice(std::string_view source, GrammarTree* tree);

}  // namespace helios::grammar
