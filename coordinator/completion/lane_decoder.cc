#include "coordinator/completion/lane_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace helios {
namespace {

Error internal(const ExpectedLane& expected, const std::string& what) {
  return Error{Errc::kInternal, fmt::format("slot {} (submission {}): {}", expected.record.slot.value,
                                            expected.record.sequence.value, what)};
}

/// The slot's packed positions, [emitted][packed_words(width)].
Result<std::span<const int32_t>> find_payload(const Completion& completion, const ExpectedLane& expected,
                                              size_t positions) {
  const auto it = std::find_if(completion.payloads.begin(), completion.payloads.end(),
                               [&](const CompletionPayload& p) { return p.slot == expected.record.slot; });
  if (it == completion.payloads.end()) return internal(expected, "the requested logprobs are missing");
  if (completion.width < 0 || completion.width > kMaxSelectedIds) {
    return internal(expected,
                    fmt::format("{} alternatives were copied, expected 0 to {}", completion.width, kMaxSelectedIds));
  }
  const size_t needed = positions * static_cast<size_t>(packed_words(completion.width));
  if (it->words.size() != needed) {
    return internal(expected, fmt::format("{} words of logprobs, expected {}", it->words.size(), needed));
  }
  return std::span<const int32_t>(it->words);
}

/// R3: of what was offered, and only as far as it was the target's own choice.
std::optional<Error> check_proposals(const LaneRecord& record, const ExpectedLane& expected) {
  const size_t offered = expected.proposals.size(), emitted = record.tokens.size();
  if (std::cmp_not_equal(record.offered, offered)) {
    return internal(expected, fmt::format("{} proposals were verified, expected {}", record.offered, offered));
  }
  if (emitted > static_cast<size_t>(record.accepted) + 1) {
    return internal(expected, fmt::format("{} tokens emitted with {} proposals accepted", emitted, record.accepted));
  }
  for (size_t i = 0; i + 1 < emitted; ++i) {
    if (record.tokens[i] == expected.proposals[i]) continue;
    return internal(expected, fmt::format("token {} was emitted before others, where {} was proposed",
                                          record.tokens[i], expected.proposals[i]));
  }
  return std::nullopt;
}

/// What the emitted count and the finish code must agree on for a sequence that is still running.
std::optional<Error> check_progress(const LaneRecord& record, const ExpectedLane& expected) {
  const auto emitted = static_cast<int32_t>(record.tokens.size());
  if (record.finish == FinishCode::kError) return internal(expected, "the device reports an error");
  if (!expected.samples) {
    if (emitted == 0 && record.finish == FinishCode::kNone) return std::nullopt;
    return internal(expected, fmt::format("a prompt chunk emitted {} tokens, expected none", emitted));
  }
  if (emitted == 0) return internal(expected, "a running sequence emitted no token");
  if (auto error = check_proposals(record, expected)) return error;
  if (emitted > expected.tokens_left) {
    return internal(expected, fmt::format("{} tokens emitted, expected at most {}", emitted, expected.tokens_left));
  }
  if (emitted == expected.tokens_left && record.finish == FinishCode::kNone) {
    return internal(expected, "the last of max_tokens was emitted without a finish code");
  }
  return std::nullopt;
}

}  // namespace

DecodedLane decode_lane(const Completion& completion, size_t lane, const ExpectedLane& expected) {
  DecodedLane out;
  const size_t words = static_cast<size_t>(record_words(expected.record.token_capacity));
  if ((lane + 1) * words > completion.records.size()) {
    out.error = internal(expected, "the record is missing");
    return out;
  }
  const auto record = read_record(std::span(completion.records).subspan(lane * words, words), expected.record);
  if (!record) {
    out.error = Error{Errc::kInternal, record.error().message};
    return out;
  }
  if ((out.error = check_progress(*record, expected))) return out;

  std::span<const int32_t> payload;
  if (expected.requested && !record->tokens.empty()) {
    auto found = find_payload(completion, expected, record->tokens.size());
    if (!found) {
      out.error = found.error();
      return out;
    }
    payload = *found;
  }
  out.events.reserve(record->tokens.size());
  for (size_t i = 0; i < record->tokens.size(); ++i) {
    TokenEvent event{.token = static_cast<TokenId>(record->tokens[i]), .forced = record->forced(static_cast<int>(i))};
    event.silent_eos = record->silent_eos && event.token == expected.eos_id;
    if (expected.requested && !event.forced) {  // R4: a forced token has no entry
      const size_t stride = static_cast<size_t>(packed_words(completion.width));
      auto logprobs =
          decode_requested(payload.subspan(i * stride, stride), completion.width, event.token, expected.logprobs);
      if (!logprobs) {
        out.error = internal(expected, fmt::format("position {}: {}", i, logprobs.error().message));
        return out;
      }
      event.logprobs = *std::move(logprobs);
    }
    if (i + 1 == record->tokens.size()) event.finish = record->finish;
    out.accepted += i < expected.proposals.size() && event.token == expected.proposals[i] ? 1 : 0;
    out.events.push_back(std::move(event));
  }
  return out;
}

}  // namespace helios
