// The pieces of JSON text: strings, numbers, white space, any value.
//
// Free strings may use every escape of RFC 8259 (surrogates in pairs only, so that the text always decodes). Strings
// whose characters are prescribed - keys, constants, patterns, formats - have one spelling: characters as they are, and
// the shortest escape where JSON demands one. One tree; one thread.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/grammar/grammar_spec.h"
#include "coordinator/grammar/grammar_tree.h"

namespace helios::grammar {

class JsonText {
 public:
  JsonText(GrammarTree* tree, JsonSpace space) : tree_(tree), space_(space) {}

  /// Where white space may stand.
  NodeId space();
  /// A comma and the space after it.
  NodeId comma();

  /// Any string of min to max code points.
  NodeId string(uint32_t min = 0, uint32_t max = kUnbounded);
  /// The one spelling of the members of `set` within a string.
  static NodeId spell(const CodePointSet& set, GrammarTree* tree);
  /// The one spelling of `text` within a string, without the quotes.
  static std::string spelled(std::string_view text);
  /// Quotes around `content`.
  NodeId quoted(NodeId content);
  /// Any key but these, in its one spelling, with the quotes.
  NodeId key_other_than(std::vector<std::string> names);

  NodeId integer();
  NodeId number();
  NodeId boolean();
  NodeId null() { return tree_->text("null"); }
  NodeId any_value();
  NodeId any_object();
  NodeId any_array();

  /// "key": value
  NodeId member(NodeId key, NodeId value);
  NodeId object(NodeId members);
  /// min to max items.
  NodeId array(NodeId item, uint32_t min, uint32_t max);
  /// Exactly this value: numbers in their shortest form, members in the order given.
  NodeId constant(const boost::json::value& value);

 private:
  NodeId make_char();
  NodeId make_integer();
  NodeId make_number();
  NodeId make_value();
  NodeId make_object();
  NodeId make_array();
  NodeId make_string();
  NodeId make_space();

  struct Once {
    RuleId rule = 0;
    bool known = false;
  };
  NodeId once(Once* once, NodeId (JsonText::*make)());

  GrammarTree* tree_;
  JsonSpace space_;
  Once string_, integer_, number_, value_, object_, array_, space_rule_;
};

}  // namespace helios::grammar
