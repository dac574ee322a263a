// Rows of a scored prefill to prompt scores: one lane's chunk of a frame's prompt_logprobs.
//
// Values travel as FP32 bits and are not converted (R11). A row says whose score it holds, which must be the token that
// the submission named; anything else fails the request that asked and nobody else. Thread: engine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "coordinator/completion/token_event.h"

namespace helios {

/// Reads the rows of consecutive prompt positions.
///
/// `rows`     [targets.size(), 43] int32: actual ID, FP32 logprob bits, rank, then twenty (ID, bits) pairs.
/// `targets`  the prompt token that each row was to score; kNoTarget: the row must be an invalid one and has no score.
/// Of the alternatives the first `num_alternatives` pairs are read; unused ones (ID -1) are left out.
/// Errors: kTruncatedFrame (rows are missing), kChosenMismatch (another token's row), kInternal (NaN or +inf, a rank or
/// an ID out of range); each names the row.
/// Source: logprobs contract, "Each row contains actual token ID ..." (R40).
Result<std::vector<std::optional<PromptScore>>> decode_prompt_rows(std::span<const int32_t> rows,
                                                                   std::span<const TokenId> targets,
                                                                   int num_alternatives, int64_t vocab_size);

}  // namespace helios
