// What a client may ask the text to be, and how much of it a server is willing to take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace helios {

enum class GrammarKind : uint8_t {
  kRegex,         // source: the expression; the whole text matches it
  kChoice,        // source: a JSON array of strings; the text is one of them
  kJsonObject,    // source: ignored; any JSON object
  kJsonSchema,    // source: the schema, as JSON
  kEbnf,          // source: rules of the GBNF form; see ebnf.h
  kTaggedSeries,  // source: schemas' instances with text around them; see tagged_series.h
  kAnyOf,         // source: an array of {"kind", "source", "space"}, made by any_of; the text is one of their texts
};

/// Where JSON text may hold white space, and only there: after {, [, the comma and the colon, before } and ].
enum class JsonSpace : uint8_t {
  kCompact,  // nowhere
  kBounded,  // at most one space, or a line break and up to 64 spaces or tabs
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kRegex;
  std::string source;
  JsonSpace space = JsonSpace::kBounded;
  friend bool operator==(const GrammarSpec&, const GrammarSpec&) = default;
};

/// The text is one that some of `alternatives` allow; none of them is a kAnyOf itself.
GrammarSpec any_of(std::span<const GrammarSpec> alternatives);

struct GrammarLimits {
  size_t max_source_bytes = 1u << 20;
  int max_depth = 128;               // of nesting: parentheses, schemas within schemas
  size_t max_nodes = 400'000;        // of the tree that a source is translated to
  size_t max_states = 400'000;       // of the automaton
  size_t max_memo_bytes = 8u << 20;  // of parse states kept; beyond it they are found again
};

}  // namespace helios
