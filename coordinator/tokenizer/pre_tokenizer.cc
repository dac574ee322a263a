// The five behaviours are those of the Hugging Face library's NormalizedString::split().
#include "coordinator/tokenizer/pre_tokenizer.h"

#include <utility>

namespace helios {
namespace {

struct Cut {
  size_t begin;
  size_t end;
  bool match;  // after inversion
};

class Cutter {
 public:
  explicit Cutter(const SplitStep& step) : step_(step) {
    if (step.regex) matcher_.emplace(*step.regex);
  }

  /// Matches and what lies between them, in order, covering the text.
  Status cuts(std::string_view text, std::vector<Cut>* cuts) {
    cuts->clear();
    size_t at = 0;
    while (at < text.size()) {
      Result<SplitRegex::Match> match = next(text, at);
      if (!match.ok()) return match.error();
      if (!match->found) break;
      if (match->begin > at) cuts->push_back({at, match->begin, step_.invert});
      cuts->push_back({match->begin, match->end, !step_.invert});
      at = match->end;
    }
    if (at < text.size()) cuts->push_back({at, text.size(), step_.invert});
    return Ok{};
  }

 private:
  Result<SplitRegex::Match> next(std::string_view text, size_t from) {
    if (matcher_) return matcher_->next(text, from);
    const size_t found = text.find(step_.literal, from);
    if (found == std::string_view::npos) return SplitRegex::Match{};
    return SplitRegex::Match{found, found + step_.literal.size(), true};
  }

  const SplitStep& step_;
  std::optional<SplitRegex::Matcher> matcher_;
};

void append_words(std::string_view text, const std::vector<Cut>& cuts, SplitBehavior behavior,
                  std::vector<std::string_view>* words) {
  const auto word = [text](size_t begin, size_t end) { return text.substr(begin, end - begin); };
  size_t begin = 0;  // of the word under construction, for the merging behaviours
  for (size_t i = 0; i < cuts.size(); ++i) {
    const Cut& cut = cuts[i];
    const bool last = i + 1 == cuts.size();
    switch (behavior) {
      case SplitBehavior::kRemoved:
        if (!cut.match) words->push_back(word(cut.begin, cut.end));
        break;
      case SplitBehavior::kIsolated:
        words->push_back(word(cut.begin, cut.end));
        break;
      case SplitBehavior::kMergedWithPrevious:
        // A match joins what stands before it, but only one of a row of matches does.
        if (last || !(cuts[i + 1].match && !cut.match)) {
          words->push_back(word(begin, cut.end));
          begin = cut.end;
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (last || !(cut.match && !cuts[i + 1].match)) {
          words->push_back(word(begin, cut.end));
          begin = cut.end;
        }
        break;
      case SplitBehavior::kContiguous:
        if (last || cuts[i + 1].match != cut.match) {
          words->push_back(word(begin, cut.end));
          begin = cut.end;
        }
        break;
    }
  }
}

}  // namespace

Status PreTokenizer::split(std::string_view text, Words* words) const {
  words->words.assign(1, text);
  std::vector<std::string_view> next;
  std::vector<Cut> cuts;
  for (const SplitStep& step : steps_) {
    next.clear();
    Cutter cutter(step);
    for (std::string_view piece : words->words) {
      if (step.add_prefix_space && piece[0] != ' ') {
        piece = words->prefixed.emplace_back(" " + std::string(piece));
      }
      if (!step.regex && step.literal.empty()) {  // a ByteLevel step that does not cut
        next.push_back(piece);
        continue;
      }
      if (Status status = cutter.cuts(piece, &cuts); !status.ok()) return status;
      append_words(piece, cuts, step.behavior, &next);
    }
    words->words.swap(next);
  }
  return Ok{};
}

}  // namespace helios
