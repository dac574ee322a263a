#include "coordinator/engine/sequence_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/contract/completion_layout.h"
#include "coordinator/scheduler/scheduler.h"

namespace helios {
namespace {

TokenId id_of(TokenId id) { return id; }
TokenId id_of(const LogitBias& bias) { return bias.id; }

/// In the vocabulary, and none twice.
template <class Items>
bool distinct_ids(const Items& items, int64_t vocab_size) {
  std::vector<TokenId> ids;
  ids.reserve(items.size());
  for (const auto& item : items) ids.push_back(id_of(item));
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end() &&
         (ids.empty() || (ids.front() >= 0 && ids.back() < vocab_size));
}

Status check_transformations(const Capabilities& core, const SamplingParams& p) {
  const bool biases = p.logit_bias.size() <= kMaxLogitBias && distinct_ids(p.logit_bias, core.vocab_size) &&
                      std::all_of(p.logit_bias.begin(), p.logit_bias.end(),
                                  [](const LogitBias& bias) { return std::abs(bias.bias) <= kMaxBias; });
  const bool penalties = std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0.0f &&
                         std::abs(p.frequency_penalty) <= 2.0f && std::abs(p.presence_penalty) <= 2.0f;
  if (biases && penalties && distinct_ids(p.allowed_ids, core.vocab_size)) return Ok{};
  return Error{Errc::kInvalidArgument,
               fmt::format("transformations out of range: {} biases (at most {}, distinct, each within {}), {} allowed "
                           "ids (distinct, each under {}), penalties: repetition {}, frequency {}, presence {}",
                           p.logit_bias.size(), kMaxLogitBias, kMaxBias, p.allowed_ids.size(), core.vocab_size,
                           p.repetition_penalty, p.frequency_penalty, p.presence_penalty)};
}

Status check_sampling(const Capabilities& core, const SamplingParams& p) {
  const bool numbers = std::isfinite(p.temperature) && p.temperature >= 0.0f && p.top_p > 0.0f && p.top_p <= 1.0f &&
                       p.min_p >= 0.0f && p.min_p <= 1.0f && p.top_k >= 0 && p.min_tokens >= 0;
  const bool ids =
      p.eos_id >= -1 && p.eos_id < core.vocab_size && p.stop_ids.size() <= kMaxStopIds &&
      std::all_of(p.stop_ids.begin(), p.stop_ids.end(), [&](TokenId id) { return id >= 0 && id < core.vocab_size; });
  if (numbers && ids) return check_transformations(core, p);
  return Error{
      Errc::kInvalidArgument,
      fmt::format("sampling out of range: temperature {}, top_p {}, min_p {}, top_k {}, min_tokens {}, EOS {}, "
                  "{} stop ids (at most {}, each under {})",
                  p.temperature, p.top_p, p.min_p, p.top_k, p.min_tokens, p.eos_id, p.stop_ids.size(), kMaxStopIds,
                  core.vocab_size)};
}

}  // namespace

Status check_sequence(const Capabilities& core, const RequestSpec& spec, int32_t num_logprobs,
                      int32_t num_prompt_logprobs) {
  if (auto fits = Scheduler::check_fits(core, spec); !fits) return fits;
  const auto refuse = [](std::string message) { return Error{Errc::kInvalidArgument, std::move(message)}; };
  const auto in_vocabulary = [&](TokenId id) { return id >= 0 && id < core.vocab_size; };
  if (!std::all_of(spec.prompt.begin(), spec.prompt.end(), in_vocabulary)) {
    return refuse(fmt::format("the prompt has a token id outside 0 to {}", core.vocab_size - 1));
  }
  if (auto sampling = check_sampling(core, spec.sampling); !sampling) return sampling;
  if (num_prompt_logprobs < 0 || num_prompt_logprobs > (spec.prompt_scores ? core.max_logprobs : 0)) {
    return refuse(fmt::format("{} prompt logprobs, the loaded core offers {}", num_prompt_logprobs, core.max_logprobs));
  }
  if (!spec.logprobs) return Ok{};
  if (num_logprobs < 0 || num_logprobs > core.max_logprobs || core.max_logprobs == 0) {
    return refuse(fmt::format("{} logprobs, the loaded core offers {}", num_logprobs, core.max_logprobs));
  }
  std::vector<TokenId> ids = spec.logprob_token_ids;
  if (ids.empty()) return Ok{};
  if (!core.logprob_token_ids) return refuse("the loaded core offers no logprob_token_ids");
  std::sort(ids.begin(), ids.end());
  const bool distinct = std::adjacent_find(ids.begin(), ids.end()) == ids.end();
  if (!distinct || ids.size() > kMaxSelectedIds || !std::all_of(ids.begin(), ids.end(), in_vocabulary)) {
    return refuse(fmt::format("logprob_token_ids: expected at most {} distinct ids in 0 to {}", kMaxSelectedIds,
                              core.vocab_size - 1));
  }
  return Ok{};
}

}  // namespace helios
