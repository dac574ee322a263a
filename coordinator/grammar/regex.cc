// Gives an expression its meaning: what may stand before and after a match, then node by node.
#include "coordinator/grammar/regex.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coordinator/grammar/regex_syntax.h"

namespace helios::grammar {
namespace {

using Kind = RegexSyntax::Kind;

constexpr size_t kMaxBytes = 64u << 10;

bool has_anchor(const RegexSyntax& syntax, Kind anchor) {
  if (syntax.kind == anchor) return true;
  return std::any_of(syntax.children.begin(), syntax.children.end(),
                     [&](const RegexSyntax& child) { return has_anchor(child, anchor); });
}

RegexSyntax any_text() {
  RegexSyntax any{.kind = Kind::kRepeat, .min = 0, .max = kUnbounded};
  any.children.push_back({.kind = Kind::kClass, .set = CodePointSet::all()});
  return any;
}

// Takes the anchors at one end away, and where there are none puts any text there unless the whole must match.
RegexSyntax settle_end(RegexSyntax syntax, Kind anchor, bool whole) {
  if (syntax.kind == Kind::kAlt) {
    for (RegexSyntax& child : syntax.children) child = settle_end(std::move(child), anchor, whole);
    return syntax;
  }
  if (syntax.kind != Kind::kCat) {
    RegexSyntax cat{.kind = Kind::kCat, .offset = syntax.offset};
    cat.children.push_back(std::move(syntax));
    syntax = std::move(cat);
  }
  std::vector<RegexSyntax>& parts = syntax.children;
  const bool at_front = anchor == Kind::kBegin;
  const auto edge = [&]() -> RegexSyntax& { return at_front ? parts.front() : parts.back(); };
  const bool anchored = !parts.empty() && edge().kind == anchor;
  while (!parts.empty() && edge().kind == anchor) parts.erase(at_front ? parts.begin() : parts.end() - 1);
  if (anchored) return syntax;
  const bool inside =
      !parts.empty() && (edge().kind == Kind::kAlt || edge().kind == Kind::kCat) && has_anchor(edge(), anchor);
  if (inside)
    edge() = settle_end(std::move(edge()), anchor, whole);
  else if (!whole)
    parts.insert(at_front ? parts.begin() : parts.end(), any_text());
  return syntax;
}

uint32_t add_lengths(uint64_t a, uint64_t b) {
  return a >= kUnbounded || b >= kUnbounded || a + b >= kUnbounded ? kUnbounded : static_cast<uint32_t>(a + b);
}

uint32_t multiply_lengths(uint64_t length, uint64_t times) {
  if (length == 0 || times == 0) return 0;
  return length >= kUnbounded || times >= kUnbounded || length * times >= kUnbounded
             ? kUnbounded
             : static_cast<uint32_t>(length * times);
}

class Translator {
 public:
  Translator(const RegexOptions& options, GrammarTree* tree) : options_(options), tree_(tree) {}

  RegexNode translate(const RegexSyntax& syntax) {
    switch (syntax.kind) {
      case Kind::kClass:
        return {options_.spell ? options_.spell(syntax.set, tree_) : tree_->code_points(syntax.set), 1, 1};
      case Kind::kCat: {
        RegexNode all;
        std::vector<NodeId> nodes;
        for (const RegexSyntax& child : syntax.children) {
          const RegexNode part = translate(child);
          nodes.push_back(part.node);
          all.min_length = add_lengths(all.min_length, part.min_length);
          all.max_length = add_lengths(all.max_length, part.max_length);
        }
        all.node = tree_->cat(std::move(nodes));
        return all;
      }
      case Kind::kAlt: {
        RegexNode all{.min_length = kUnbounded};
        std::vector<NodeId> nodes;
        for (const RegexSyntax& child : syntax.children) {
          const RegexNode part = translate(child);
          nodes.push_back(part.node);
          all.min_length = std::min(all.min_length, part.min_length);
          all.max_length = std::max(all.max_length, part.max_length);
        }
        all.node = tree_->alt(std::move(nodes));
        return all;
      }
      case Kind::kRepeat: {
        const RegexNode part = translate(syntax.children[0]);
        return {tree_->repeat(part.node, syntax.min, syntax.max), multiply_lengths(part.min_length, syntax.min),
                multiply_lengths(part.max_length, syntax.max)};
      }
      case Kind::kBegin:
      case Kind::kEnd:
        if (error_.empty())
          error_ = std::string("regex: ") + (syntax.kind == Kind::kBegin ? "^" : "$") +
                   " inside of the expression is not supported at offset " + std::to_string(syntax.offset);
        return {};
    }
    return {};
  }

  const std::string& error() const { return error_; }

 private:
  const RegexOptions& options_;
  GrammarTree* tree_;
  std::string error_;
};

}  // namespace

Result<RegexNode> translate_regex(std::string_view pattern, const RegexOptions& options, GrammarTree* tree) {
  if (pattern.size() > kMaxBytes)
    return Error{Errc::kInvalidArgument,
                 "regex: " + std::to_string(pattern.size()) + " bytes, more than " + std::to_string(kMaxBytes)};
  Result<RegexSyntax> syntax = parse_regex(pattern, options.max_depth);
  if (!syntax) return syntax.error();
  RegexSyntax settled = settle_end(std::move(*syntax), Kind::kBegin, options.whole);
  settled = settle_end(std::move(settled), Kind::kEnd, options.whole);
  Translator translator(options, tree);
  const RegexNode node = translator.translate(settled);
  if (!translator.error().empty()) return Error{Errc::kInvalidArgument, translator.error()};
  return node;
}

}  // namespace helios::grammar
