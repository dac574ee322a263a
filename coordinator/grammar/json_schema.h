// JSON Schema (2020-12, and what of earlier drafts means the same) as a grammar of JSON text.
//
// Every text of the grammar is an instance; not every instance is a text of the grammar. What is left out:
//  - members come in the order of `properties`, then what `required` names besides (by
//    name), then additional ones
//  - additional members only when the schema says so (additionalProperties), or says nothing of its members at all
//  - keys and strings whose characters are prescribed are spelled one way (see json_text.h); white space as JsonSpace
//  says
//  - numbers have at most 64 digits before the point (64 more than a bound), 64 after it, 2 in the exponent; within
//  bounds
//    or with multipleOf they have no exponent; integers have neither exponent nor fraction
//  - a schema without `type` whose keywords speak of some types allows only those types
// Supported: type, enum, const, properties, required, additionalProperties, minProperties, maxProperties (where it can
// be told from the names), items, prefixItems, minItems, maxItems, minLength, maxLength, pattern, format, minimum,
// maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, anyOf, allOf, oneOf (branches that cannot both hold), $ref
// within the document, $defs, definitions, true, false; annotations are read over. All else is an error that names the
// keyword and where it stands. One use; one thread.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_spec.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

/// Errors: kInvalidArgument: "schema: PATH: what is wrong".
Result<NodeId> translate_json_schema(std::string_view schema, JsonSpace space, const GrammarLimits& limits,
                                     GrammarTree* tree);

}  // namespace helios::grammar
