#include "coordinator/completion/prompt_score_decoder.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/contract/completion_layout.h"
#include "common/contract/submission.h"
#include "coordinator/completion/logprob_decoder.h"

namespace helios {
namespace {

namespace word = prompt_score_word;

template <class... Values>
Error in_row(Errc code, size_t row, fmt::format_string<Values...> what, Values&&... values) {
  return Error{code, fmt::format("prompt row {}: {}", row, fmt::format(what, std::forward<Values>(values)...))};
}

Result<PromptScore> decode_row(std::span<const int32_t> words, size_t row, int num_alternatives, int64_t vocab_size) {
  PromptScore out{.token = words[word::kActualId],
                  .logprob = bits_float(words[word::kActualBits]),
                  .rank = words[word::kActualRank]};
  if (!is_reportable(out.logprob)) {
    return in_row(Errc::kInternal, row, "the logprob of token {} is {}", out.token, out.logprob);
  }
  if (out.rank < 1 || out.rank > vocab_size) {
    return in_row(Errc::kInternal, row, "the rank of token {} is {}, expected 1 to {}", out.token, out.rank,
                  vocab_size);
  }
  out.alternatives.reserve(num_alternatives);
  for (int i = 0; i < num_alternatives; ++i) {
    const TokenLogprob pair{words[word::kFirstAlternative + kPairWords * i],
                            bits_float(words[word::kFirstAlternative + kPairWords * i + 1])};
    if (pair.id == -1) continue;
    if (pair.id < -1 || pair.id >= vocab_size) {
      return in_row(Errc::kInternal, row, "alternative {} has id {}, expected 0 to {}", i, pair.id, vocab_size - 1);
    }
    if (!is_reportable(pair.logprob)) {
      return in_row(Errc::kInternal, row, "the logprob of token {} is {}", pair.id, pair.logprob);
    }
    out.alternatives.push_back(pair);
  }
  return out;
}

}  // namespace

Result<std::vector<std::optional<PromptScore>>> decode_prompt_rows(std::span<const int32_t> rows,
                                                                   std::span<const TokenId> targets,
                                                                   int num_alternatives, int64_t vocab_size) {
  HELIOS_CHECK(num_alternatives >= 0 && num_alternatives <= kMaxNaturalAlternatives, num_alternatives);
  if (rows.size() != targets.size() * kPromptScoreWords) {
    return Error{Errc::kTruncatedFrame, fmt::format("{} words of prompt rows, expected {} rows of {}", rows.size(),
                                                    targets.size(), kPromptScoreWords)};
  }
  std::vector<std::optional<PromptScore>> out;
  out.reserve(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto words = rows.subspan(i * kPromptScoreWords, kPromptScoreWords);
    if (words[word::kActualId] != targets[i]) {
      return in_row(Errc::kChosenMismatch, i, "holds token {}, but token {} was to be scored", words[word::kActualId],
                    targets[i]);
    }
    if (targets[i] == kNoTarget) {
      out.emplace_back();
      continue;
    }
    Result<PromptScore> score = decode_row(words, i, num_alternatives, vocab_size);
    if (!score) return score.error();
    out.emplace_back(*std::move(score));
  }
  return out;
}

}  // namespace helios
