// Instances of schemas with fixed text around them, one after the other: how models write tool calls.
//
//   {"begin": TEXT, "between": TEXT, "end": TEXT, "max": N or null, "items": [{"begin": TEXT, "schema": S, "end":
//   TEXT}]}
//
// The text is begin, then 1 to max items (null: any number) with `between` between them, then end. An item is its
// begin, an instance of its schema, its end; each item's schema is a document of its own.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_spec.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

/// Errors: kInvalidArgument, naming the item's begin for what is wrong with its schema.
Result<NodeId> translate_tagged_series(std::string_view source, JsonSpace space, const GrammarLimits& limits,
                                       GrammarTree* tree);

}  // namespace helios::grammar
