// Packed pairs to logprobs: one position of a completion frame's payload.
//
// Values travel as FP32 bits and are not converted (R11). What a record did not emit is never decoded (R19). Thread:
// engine.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "coordinator/completion/token_event.h"

namespace helios {

/// A logprob is at most zero up to rounding, and never NaN; -inf is what an impossible token has.
inline bool is_reportable(float logprob) { return !std::isnan(logprob) && logprob != INFINITY; }

/// Reads one position of a completion frame's packed logprobs.
///
/// `packed`   [2 + 2*width] int32: chosen ID, chosen FP32 logprob bits, then (ID, bits) pairs.
/// `emitted`  the token that the record says this position produced.
/// Alternatives keep the packed order; unused ones (ID -1) are left out. Logprobs are in nats; -inf is a value.
/// Errors: kTruncatedFrame, kChosenMismatch, kInternal (NaN or +inf, an ID below -1); all fail the request that asked,
/// nothing else.
/// Source: logprobs contract, "Chosen IDs must agree with emitted token IDs".
Result<PositionLogprobs> decode_position(std::span<const int32_t> packed, int width, TokenId emitted);

/// What a request asked of every position.
struct LogprobRequest {
  int32_t num_natural = 0;                // natural alternatives wanted, 0..K
  std::span<const TokenId> selected_ids;  // R7: these instead, in this order
  int32_t alternatives() const {
    return selected_ids.empty() ? num_natural : static_cast<int32_t>(selected_ids.size());
  }
};

/// decode_position, then trimmed to what the request asked: the first num_natural, or exactly the selected ids.
/// Errors: as decode_position; kTruncatedFrame when `width` covers less than asked; kMismatch when the pairs are not
/// the selected ids in order.
Result<PositionLogprobs> decode_requested(std::span<const int32_t> packed, int width, TokenId emitted,
                                          const LogprobRequest& request);

}  // namespace helios
