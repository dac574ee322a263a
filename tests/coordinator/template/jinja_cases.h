// Small templates and what Python's Jinja2 makes of them, set up as transformers sets it: a regression table over the
// whole language, tests/golden/jinja_cases.jsonl. jinja_cases.py beside this file renders it with Jinja2 again.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <boost/json.hpp>

#include "coordinator/template/chat_template.h"

namespace helios::jinja::testing {

enum class Outcome : unsigned char { kText, kRuntimeError, kSyntaxError };

struct Case {
  std::string source;
  Outcome outcome = Outcome::kText;
  std::string text;  // of kText
};

struct CaseTable {
  std::string context;  // the variables, a JSON object
  std::vector<Case> cases;
};

/// Read once. A row that is not one ends the program's tests with an exception that says where it stands.
inline const CaseTable& case_table() {
  static const CaseTable table = [] {
    const std::string path = HELIOS_SOURCE_DIR "/tests/golden/jinja_cases.jsonl";
    std::ifstream in(path);
    CaseTable out;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      const boost::json::object row = boost::json::parse(line).as_object();
      if (number == 1) {
        out.context = raw_json_member(line, "context");  // numbers as they are written
        continue;
      }
      Case c{.source = std::string(row.at("source").as_string()), .outcome = Outcome::kText, .text = {}};
      if (const auto* error = row.if_contains("error")) {
        c.outcome = error->as_string() == "syntax" ? Outcome::kSyntaxError : Outcome::kRuntimeError;
      } else {
        c.text = std::string(row.at("text").as_string());
      }
      out.cases.push_back(std::move(c));
    }
    EXPECT_GT(out.cases.size(), 1000u) << path;
    return out;
  }();
  return table;
}

}  // namespace helios::jinja::testing
