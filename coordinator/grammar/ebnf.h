// Grammars written as rules, in the form that llama.cpp made common (GBNF).
//
//   root ::= greeting (" " name)* "."
//   name ::= [A-Z] [a-z]{1,20}   # a comment
//
// Literals and classes know \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH; . is any character; * + ? {n} {n,} {n,m}
// repeat; a rule ends at the line's end unless within parentheses or after |. The text is what `root` stands for.
// Left recursion and other notations (Lark, W3C EBNF) are refused.
#pragma once

#include <string_view>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

/// Errors: kInvalidArgument, with the line.
Result<NodeId> translate_ebnf(std::string_view source, int max_depth, GrammarTree* tree);

}  // namespace helios::grammar
