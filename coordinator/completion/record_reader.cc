#include "coordinator/completion/record_reader.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace helios {
namespace {

Error found(Errc code, const ExpectedRecord& expected, std::string_view word, int64_t value,
            const std::string& wanted) {
  return Error{code, fmt::format("record of slot {} (submission {}): {} is {}, expected {}", expected.slot.value,
                                 expected.sequence.value, word, value, wanted)};
}

}  // namespace

Result<LaneRecord> read_record(std::span<const int64_t> words, const ExpectedRecord& expected) {
  using namespace record_word;
  const int64_t length = record_words(expected.token_capacity);
  if (static_cast<int64_t>(words.size()) != length) {
    return found(Errc::kTruncatedFrame, expected, "length", static_cast<int64_t>(words.size()), std::to_string(length));
  }
  const struct {
    std::string_view name;
    int64_t value, wanted;
  } identity[] = {{"ABI", words[kAbi], kRecordAbi},
                  {"slot", words[kSlot], expected.slot.value},
                  {"epoch", words[kEpoch], expected.epoch.value},
                  {"sequence", words[kSequence], static_cast<int64_t>(expected.sequence.value)}};
  for (const auto& [name, value, wanted] : identity) {
    if (value != wanted) return found(Errc::kMismatch, expected, name, value, std::to_string(wanted));
  }
  const int64_t emitted = words[kEmitted];
  if (emitted < 0 || emitted > expected.token_capacity) {
    return found(Errc::kInternal, expected, "emitted count", emitted, fmt::format("0 to {}", expected.token_capacity));
  }
  const int64_t finish = words[kFinish];
  if (finish < static_cast<int64_t>(FinishCode::kNone) || finish > static_cast<int64_t>(FinishCode::kError)) {
    return found(Errc::kInternal, expected, "finish code", finish, "0 to 5");
  }
  const int64_t offered = words[kProposalsOffered], accepted = words[kProposalsAccepted];
  if (offered < 0 || offered >= expected.token_capacity) {
    return found(Errc::kInternal, expected, "number of proposals", offered,
                 fmt::format("0 to {}", expected.token_capacity - 1));
  }
  if (accepted < 0 || accepted > offered) {
    return found(Errc::kInternal, expected, "number of accepted proposals", accepted, fmt::format("0 to {}", offered));
  }
  LaneRecord record{.tokens = words.subspan(kTokens, static_cast<size_t>(emitted)),
                    .finish = static_cast<FinishCode>(finish),
                    .forced_mask = words[kForcedMask],
                    .silent_eos = (words[kFlags] & kRecordFlagSilentEos) != 0,
                    .kv_length = words[kKvLength],
                    .offered = offered,
                    .accepted = accepted};
  for (const int64_t token : record.tokens) {
    if (token < 0 || token >= expected.vocab_size) {
      return found(Errc::kInternal, expected, "token", token, fmt::format("0 to {}", expected.vocab_size - 1));
    }
  }
  return record;
}

}  // namespace helios
