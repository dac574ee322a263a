// One request's progress as the scheduler sees it: tokens, its slot and its blocks. No text, no clock.
//
// Counts are of two kinds. What is *planned* runs ahead: up to two frames are in flight whose tokens nobody knows yet.
// What is *known* was decoded. A tenancy begins with a prefill of all tokens known by then, the prompt's and, after a
// preemption, the generated ones: keys, values and the next token are functions of tokens and positions alone, so
// nobody can tell. Thread: engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "common/base/ids.h"
#include "common/contract/sampling_params.h"
#include "coordinator/proposer/prompt_lookup.h"
#include "coordinator/scheduler/prefix_cache.h"
#include "coordinator/scheduler/slot_table.h"

namespace helios {

/// What the scheduler needs of a sequence to generate, or to score its prompt.
struct RequestSpec {
  std::vector<TokenId> prompt;  // never empty
  SamplingParams sampling;
  bool logprobs = false;
  std::vector<TokenId> logprob_token_ids;  // R7; empty: natural alternatives
  bool chosen_alone = false;               // of those none: the ranks need not look for any
  bool prompt_scores = false;              // its prompt is scored; then max_tokens may be 0 (R38)
  int64_t priority = 0;                    // the lower, the earlier; then the order of arrival
  std::string cache_salt;                  // only requests with the same salt share cache blocks
};

struct RequestState {
  RequestId id;
  uint64_t arrival = 0;
  RequestSpec spec;             // its prompt has moved to `tokens`
  std::vector<TokenId> tokens;  // the prompt, then what was generated and decoded
  int32_t prompt_size = 0;

  std::optional<Tenancy> tenancy;  // from an admission until it leaves or is preempted
  std::vector<int32_t> blocks;     // for at least the planned positions; none without a tenancy
  PrefixCache::Chain published;    // how far the known positions are in the prefix cache
  std::optional<int32_t> cached;   // prompt tokens that the first admission found in the cache
  int32_t scores_known = 0;        // prompt positions [1, this] whose scores were decoded, in this tenancy or before
  bool scored = false;             // this tenancy's prefill is a scored one
  int32_t prefill_end = 0;         // positions that this tenancy's prefill ends with
  int32_t kv_planned = 0;          // positions that committed submissions fill
  int32_t kv_known = 0;            // positions that decoded frames have filled; <= tokens.size()
  int32_t samples_planned = 0;     // sampling lanes in committed submissions, and tokens of earlier tenancies
  int32_t frames_in_flight = 0;    // submitted frames that name the slot, not yet decoded
  std::optional<PromptLookup> lookup;  // none where proposals are off, or the request must not have any
  std::vector<TokenId> proposals;      // for the tokens behind those known; empty: nothing to propose
  int32_t offered = 0;                 // proposals in flight: of what is planned, so much may not come
  bool paused = false;             // its consumer is behind: no decode lane, no scored prompt rows
  bool preempted = false;          // no more lanes; waits again as soon as no frame in flight names it
  bool leaving = false;            // finished, cancelled or failed: never planned again

  int32_t generated() const { return static_cast<int32_t>(tokens.size()) - prompt_size; }
  /// Still has a place to run in.
  bool runs() const { return tenancy && !leaving && !preempted; }
  bool prefilling() const { return runs() && kv_planned < prefill_end && !(scored && paused); }
  /// Its next admission has to score: what was decoded before a preemption is not asked again of the client (R43).
  bool scores_left() const { return spec.prompt_scores && scores_known < prompt_size - 1; }
  /// Nothing is to be generated, and all of the prompt is known.
  bool prefilled_only() const { return spec.sampling.max_tokens == 0 && kv_known == prompt_size; }
  /// More tokens are to come of it: no more lanes than max_tokens allows.
  bool decodes() const {
    return runs() && !paused && kv_planned >= prefill_end && samples_planned < spec.sampling.max_tokens;
  }
  /// A decode lane may be planned: tokens known or not, unless a mask follows from them, or nobody knows how many come.
  bool can_decode() const {
    return decodes() && offered == 0 && (!spec.sampling.masks || samples_planned == generated());
  }
  /// Tokens are in flight behind which it would have proposals, as far as it can be known.
  bool awaits_tokens() const {
    return frames_in_flight > 0 && runs() && !paused && (offered > 0 || (decodes() && !proposals.empty()));
  }
  /// Proposals that its next lane may bring: the last token of all needs none.
  int32_t proposable() const {
    if (frames_in_flight > 0) return 0;
    return std::min(static_cast<int32_t>(proposals.size()), spec.sampling.max_tokens - samples_planned - 1);
  }
};

/// Whose turn comes first.
struct RunsBefore {
  bool operator()(const RequestState* a, const RequestState* b) const {
    return std::tie(a->spec.priority, a->arrival) < std::tie(b->spec.priority, b->arrival);
  }
};
using RequestQueue = std::set<RequestState*, RunsBefore>;

}  // namespace helios
