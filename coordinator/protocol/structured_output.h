// A constraint on the text's form: what the client asked, compiled, and the tools that it must call as such a
// constraint.
//
// Thread: the connection's strand.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/fwd.hpp>

#include "common/base/result.h"
#include "coordinator/grammar/grammar_cache.h"
#include "coordinator/grammar/grammar_spec.h"
#include "coordinator/parser/output_format.h"

namespace helios {

/// One constraint, and the field that asked for it.
struct StructuredOutput {
  std::string param;
  GrammarSpec spec;
};

/// The fields as written: their types are checked, what they ask for is not yet.
struct StructuredOutputFields {
  std::vector<StructuredOutput> constraints;  // all that are set
  std::optional<Error> refused;               // the first thing that is wrong with what they ask
};

/// The one constraint, if there is any. Errors: kInvalidArgument and kNotImplemented with the field; two constraints at
/// once are refused.
Result<std::optional<StructuredOutput>> structured_output(StructuredOutputFields fields);

/// The compiled constraint, whose first token is known to exist. Takes as long as compiling takes, which the grammar's
/// limits bound; never on the engine's thread. Errors: kInvalidArgument with the field, naming what is not supported.
Result<std::shared_ptr<const CompiledGrammar>> compile_structured_output(const StructuredOutput& output,
                                                                         GrammarCache& grammars);

struct ToolSignature {
  std::string name;
  std::string parameters;  // a JSON schema; empty: the tool takes none
};

/// Why no call of such a function could be read back: its name, or arguments that are no object. `path`: of what holds
/// both, with its dot; `parameters`: the schema, null when there is none.
std::optional<Error> tool_fault(std::string_view path, std::string_view name, const boost::json::object* parameters);

/// The text is calls of these tools and nothing else, as `format` writes them: one, or with `parallel` any number. The
/// delimiters are text: a vocabulary's control tokens for them are none, and are spelled out. `tools`: not empty;
/// `format`: not kNone.
GrammarSpec tool_call_grammar(std::span<const ToolSignature> tools, bool parallel, ToolFormat format);

struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name;  // kNamed

  bool forces_calls() const { return kind == Kind::kRequired || kind == Kind::kNamed; }
};

/// The calls that `choice` forces: of a named function one, else one or with `parallel` any number. Empty when it
/// forces none, when none of the tools is the named one, or when `format` is kNone.
std::optional<StructuredOutput> forced_calls(const ToolChoice& choice, std::vector<ToolSignature> tools, bool parallel,
                                             ToolFormat format);

}  // namespace helios
