// What constrained decoding costs: compile times, and the time of a mask along tokenised texts, cold and warm.
//
//   helios-grammar-bench DIR    DIR holds tokenizer.json and tokenizer_config.json
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "coordinator/grammar/compiled_grammar.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

struct Subject {
  const char* name;
  GrammarSpec spec;
  std::string text;
};

std::vector<Subject> subjects() {
  const char* person =
      R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"email":{"type":"string","maxLength":60},"tags":{"type":"array","items":{"type":"string"}},"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","city","zip"],"additionalProperties":false}},"required":["name","age","email","tags","address"],"additionalProperties":false})";
  const std::string person_text =
      R"({"name": "Ada Lovelace", "age": 36, "email": "ada.lovelace@example.com", "tags": ["mathematics", "analytical engine", "poetry"], "address": {"street": "12 St James's Square", "city": "London", "zip": "12345"}})";
  const char* tree =
      R"({"type":"object","properties":{"type":{"enum":["div","button","header"]},"label":{"type":"string"},"children":{"type":"array","items":{"$ref":"#"}}},"required":["type","label","children"],"additionalProperties":false})";
  std::string tree_text = R"({"type": "div", "label": "root", "children": [)";
  for (int i = 0; i < 8; ++i)
    tree_text += std::string(i > 0 ? ", " : "") + R"({"type": "button", "label": "press me )" + std::to_string(i) +
                 R"(", "children": []})";
  tree_text += "]}";
  std::string wide = R"({"type":"object","properties":{)", wide_text = "{";
  for (int i = 0; i < 300; ++i) {
    const std::string name = "\"field_" + std::to_string(i) + "\"";
    wide += (i > 0 ? "," : "") + name + R"(:{"type":["string","number","null"]})";
    if (i % 10 == 0) wide_text += (i > 0 ? ", " : "") + name + ": \"value\"";
  }
  return {{"person", {GrammarKind::kJsonSchema, person}, person_text},
          {"recursive tree", {GrammarKind::kJsonSchema, tree}, tree_text},
          {"300 optional", {GrammarKind::kJsonSchema, wide + "}}"}, wide_text + "}"},
          {"any JSON object", {GrammarKind::kJsonObject, ""}, person_text},
          {"regex",
           {GrammarKind::kRegex, "(?:[A-Z][a-z]{2,20} ?){2,6}, [0-9]{4}-[0-9]{2}"},
           "Grace Brewster Murray Hopper, 1906-12"},
          {"choice", {GrammarKind::kChoice, R"(["positive","negative","neutral"])"}, "neutral"}};
}

struct Times {
  double median, worst, mean;
};

Times masks_along(const std::shared_ptr<const CompiledGrammar>& grammar, const std::vector<TokenId>& ids) {
  GrammarMatcher matcher(grammar);
  std::vector<uint32_t> words(grammar->vocabulary().mask_words());
  std::vector<double> times;
  for (const TokenId id : ids) {
    const auto begin = Clock::now();
    const bool good = matcher.fill_mask(words).ok();
    times.push_back(microseconds(begin));
    if (!good || !matcher.accept(id)) {
      std::fprintf(stderr, "token %d is not allowed\n", id);
      break;
    }
  }
  double sum = 0;
  for (const double time : times) sum += time;
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.back(), sum / static_cast<double>(times.size())};
}

int run(const std::string& dir) {
  const auto tokenizer = Tokenizer::load(dir);
  if (!tokenizer) return std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str()), 1;
  const int64_t vocab_size = (**tokenizer).vocab_size();
  auto begin = Clock::now();
  const auto stop = (**tokenizer).find_piece((**tokenizer).eos_token());
  if (!stop) return std::fprintf(stderr, "%s names no end-of-text token\n", dir.c_str()), 1;
  const auto vocabulary = GrammarVocabulary::from_tokenizer(**tokenizer, vocab_size, {*stop}).value();
  std::printf("%lld tokens, %u tree nodes, built in %.0f ms\n", static_cast<long long>(vocab_size),
              vocabulary->num_nodes(), microseconds(begin) / 1000);
  std::printf("%-16s %10s %9s %28s %28s %9s\n", "grammar", "compile ms", "states", "first use: mean/med/max us",
              "again: mean/med/max us", "KiB");
  for (const Subject& subject : subjects()) {
    begin = Clock::now();
    const auto grammar = CompiledGrammar::compile(subject.spec, vocabulary);
    const double compile_ms = microseconds(begin) / 1000;
    if (!grammar) return std::fprintf(stderr, "%s: %s\n", subject.name, grammar.error().message.c_str()), 1;
    const auto ids = (**tokenizer).encode(subject.text, false).value();
    const Times cold = masks_along(*grammar, ids);
    const Times warm = masks_along(*grammar, ids);
    std::printf("%-16s %10.2f %9zu %10.1f %8.1f %8.1f %10.2f %8.2f %8.2f %9zu\n", subject.name, compile_ms,
                (*grammar)->num_states(), cold.mean, cold.median, cold.worst, warm.mean, warm.median, warm.worst,
                (*grammar)->memory_bytes() / 1024);
  }
  return 0;
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: helios-grammar-bench TOKENIZER_DIR\n"), 2;
  return helios::run(argv[1]);
}
