#include "coordinator/completion/logprob_decoder.h"

#include <fmt/format.h>

namespace helios {
Result<PositionLogprobs> decode_position(std::span<const int32_t> packed, int width, TokenId emitted) {
  if (width < 0 || width > kMaxSelectedIds || packed.size() != static_cast<size_t>(packed_words(width))) {
    return Error{
        Errc::kTruncatedFrame,
        fmt::format("packed position: {} words are not a chosen pair and {} alternatives", packed.size(), width)};
  }
  if (packed[kChosenId] != emitted) {
    return Error{Errc::kChosenMismatch,
                 fmt::format("packed position: chosen id is {}, but token {} was emitted", packed[kChosenId], emitted)};
  }
  PositionLogprobs out;
  out.chosen = bits_float(packed[kChosenBits]);
  if (!is_reportable(out.chosen)) {
    return Error{Errc::kInternal, fmt::format("packed position: the logprob of token {} is {}", emitted, out.chosen)};
  }
  out.alternatives.reserve(width);
  for (int i = 0; i < width; ++i) {
    const TokenLogprob pair{packed[kFirstAlternative + kPairWords * i],
                            bits_float(packed[kFirstAlternative + kPairWords * i + 1])};
    if (pair.id == -1) continue;
    if (pair.id < -1) {
      return Error{Errc::kInternal, fmt::format("packed position: alternative {} has id {}", i, pair.id)};
    }
    if (!is_reportable(pair.logprob)) {
      return Error{Errc::kInternal,
                   fmt::format("packed position: the logprob of token {} is {}", pair.id, pair.logprob)};
    }
    out.alternatives.push_back(pair);
  }
  return out;
}

Result<PositionLogprobs> decode_requested(std::span<const int32_t> packed, int width, TokenId emitted,
                                          const LogprobRequest& request) {
  const int wanted = request.alternatives();
  if (wanted > width || width > kMaxSelectedIds || packed.size() != static_cast<size_t>(packed_words(width))) {
    return Error{Errc::kTruncatedFrame,
                 fmt::format("packed position: {} words for {} alternatives, expected at least {}", packed.size(),
                             width, wanted)};
  }
  // Pairs past what this request asked may be stale: another request's width governs the copy.
  auto out = decode_position(packed.first(packed_words(wanted)), wanted, emitted);
  if (!out || request.selected_ids.empty()) return out;
  for (size_t i = 0; i < request.selected_ids.size(); ++i) {
    if (i >= out->alternatives.size() || out->alternatives[i].id != request.selected_ids[i]) {
      return Error{Errc::kMismatch, fmt::format("packed position: selected id {} is {}, expected {}", i,
                                                packed[kFirstAlternative + kPairWords * i], request.selected_ids[i])};
    }
  }
  return out;
}

}  // namespace helios
