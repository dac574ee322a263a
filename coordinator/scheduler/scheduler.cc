#include "coordinator/scheduler/scheduler.h"

#include "common/base/check.h"
#include "common/contract/completion_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace helios {
namespace {

/// What the device chooses at a position must follow from the tokens before it through the model alone.
bool may_propose(const RequestSpec& spec) { return !spec.sampling.masks && !has_penalty(spec.sampling); }

}  // namespace

Scheduler::Scheduler(const Capabilities& capabilities, SchedulerOptions options)
    : capabilities_(capabilities), options_(options), slots_(capabilities.slot_capacity), cache_(capabilities) {
  HELIOS_CHECK(options.proposals.num_tokens <= capabilities.max_proposals(), options.proposals.num_tokens);
}

Status Scheduler::check_fits(const Capabilities& capabilities, const RequestSpec& spec) {
  if (spec.prompt.empty()) return Error{Errc::kInvalidArgument, "the prompt is empty; expected at least one token"};
  if (spec.prompt_scores && !capabilities.prompt_scoring) {
    return Error{Errc::kInvalidArgument, "prompt scores are asked for; the loaded core has no prompt scoring"};
  }
  if (const int32_t least = spec.prompt_scores ? 0 : 1; spec.sampling.max_tokens < least) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("max_tokens is {}; expected at least {}", spec.sampling.max_tokens, least)};
  }
  const int64_t positions = static_cast<int64_t>(spec.prompt.size()) + spec.sampling.max_tokens;
  if (positions > capabilities.max_model_len) {
    return Error{Errc::kInvalidArgument, fmt::format("prompt and max_tokens need {} positions; the context has {}",
                                                     positions, capabilities.max_model_len)};
  }
  const int64_t cache = static_cast<int64_t>(capabilities.kv_num_blocks) * capabilities.kv_block_size;
  if (positions > cache) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("prompt and max_tokens need {} positions; the KV cache has {}", positions, cache)};
  }
  return Ok{};
}

void Scheduler::enqueue(RequestId id, RequestSpec spec) {
  HELIOS_CHECK(check_fits(capabilities_, spec).ok(), id.value);
  auto request = std::make_unique<RequestState>();
  request->id = id;
  request->arrival = ++num_arrived_;
  request->tokens = std::move(spec.prompt);
  request->prompt_size = static_cast<int32_t>(request->tokens.size());
  request->spec = std::move(spec);
  if (options_.proposals.on() && may_propose(request->spec)) request->lookup.emplace(options_.proposals);
  waiting_.insert(request.get());
  const bool is_new = requests_.emplace(id, std::move(request)).second;
  HELIOS_CHECK(is_new, id.value);
}

Decision Scheduler::plan() const {
  const PrefixCache* prefixes = options_.prefix_cache ? &cache_.prefixes() : nullptr;
  return plan_batch({capabilities_, running_, waiting_, slots_, cache_.blocks(), prefixes, last_was_scored_,
                     options_.proposals.num_tokens});
}

void Scheduler::admit(const PlannedAdmission& admission) {
  RequestState& request = *find_mutable(admission.request->id);
  HELIOS_CHECK(waiting_.erase(&request) == 1, request.id.value);
  running_.insert(&request);
  slots_.open(admission.tenancy, request.id);
  auto returning = admission.returning.begin();
  for (const int32_t block : admission.cached) {
    if (returning != admission.returning.end() && returning->block == block) {
      cache_.bring_back(*returning++);
    } else {
      cache_.share(block);
    }
  }
  const auto cached = static_cast<int32_t>(admission.cached.size()) * capabilities_.kv_block_size;
  if (request.cached) num_waiting_again_ -= 1;
  if (!request.cached) request.cached = cached;
  request.tenancy = admission.tenancy;
  request.blocks = admission.cached;
  request.published = cache_.prefixes().chain_of(admission.cached);
  request.scored = request.scores_left();
  request.prefill_end = static_cast<int32_t>(request.tokens.size());
  request.kv_planned = request.kv_known = cached;
  request.samples_planned = request.generated();
  request.proposals.clear();
}

void Scheduler::add_lane(const PlannedLane& lane) {
  RequestState& request = *find_mutable(lane.request->id);
  HELIOS_CHECK(lane.first_block == static_cast<int32_t>(request.blocks.size()), request.id.value);
  for (const int32_t block : lane.new_blocks) cache_.take(block);
  request.blocks.insert(request.blocks.end(), lane.new_blocks.begin(), lane.new_blocks.end());
  request.offered = static_cast<int32_t>(lane.proposals.size());
  request.kv_planned += lane.role == LaneRole::kPrefill ? lane.rows : 1 + request.offered;
  request.samples_planned += lane.samples ? 1 + request.offered : 0;
  request.frames_in_flight += 1;
  const auto num_blocks = static_cast<int32_t>(request.blocks.size());
  HELIOS_CHECK(blocks().blocks_for(request.kv_planned) <= num_blocks, request.id.value);
  HELIOS_CHECK(request.samples_planned <= request.spec.sampling.max_tokens, request.id.value);
  HELIOS_CHECK(request.frames_in_flight <= kNumFrames, request.id.value);
}

CacheMoves Scheduler::commit(const Decision& decision) {
  for (const PlannedAdmission& admission : decision.admissions) cache_.begin(admission.returning);
  for (const PlannedAdmission& admission : decision.admissions) admit(admission);
  for (const PlannedLane& lane : decision.lanes) add_lane(lane);
  if (!decision.lanes.empty()) last_was_scored_ = decision.operation == Operation::kScoredPrefill;
  for (const RequestState* preempted : decision.preemptions) {
    RequestState& request = *find_mutable(preempted->id);
    request.preempted = true;
    release_if_unnamed(request);
  }
  return cache_.end();
}

void Scheduler::note_decoded(RequestId id, int32_t prompt_rows, std::span<const TokenId> tokens) {
  RequestState* request = find_mutable(id);
  HELIOS_CHECK(request && request->tenancy, id.value);
  if (const int32_t offered = std::exchange(request->offered, 0); offered > 0) {  // no other lane is in flight
    const int32_t rejected = 1 + offered - static_cast<int32_t>(tokens.size());
    request->kv_planned -= rejected;
    request->samples_planned -= rejected;
  }
  // A decode lane fills the position of the token before each one that it emits.
  request->kv_known += prompt_rows > 0 ? prompt_rows : static_cast<int32_t>(tokens.size());
  request->tokens.insert(request->tokens.end(), tokens.begin(), tokens.end());
  HELIOS_CHECK(request->kv_known <= static_cast<int32_t>(request->tokens.size()), id.value, request->kv_known);
  if (request->scored) {
    request->scores_known = std::max(request->scores_known, std::min(request->kv_known, request->prompt_size - 1));
  }
  publish(*request);
  look_up(*request);
}

/// The index takes prompts in as they are computed, a chunk at a time.
void Scheduler::look_up(RequestState& request) {
  if (!request.lookup) return;
  request.proposals.clear();
  request.lookup->extend(std::span(request.tokens).first(request.kv_known));
  if (request.generated() == 0 || request.kv_known + 1 < static_cast<int32_t>(request.tokens.size())) return;
  // EOS and stop ids are barred by the count of tokens so far, which a round would move.
  if (request.generated() < request.spec.sampling.min_tokens) return;
  request.lookup->extend(request.tokens);
  request.proposals = request.lookup->propose(request.tokens);
}

void Scheduler::publish(RequestState& request) {
  if (!options_.prefix_cache) return;
  cache_.publish(request.published, request.spec.cache_salt, std::span(request.tokens).first(request.kv_known),
                 request.blocks);
}

void Scheduler::frame_decoded(std::span<const RequestId> requests) {
  for (const RequestId id : requests) {
    RequestState* request = find_mutable(id);
    HELIOS_CHECK(request && request->frames_in_flight > 0, id.value);
    request->frames_in_flight -= 1;
    release_if_unnamed(*request);
  }
}

void Scheduler::leave(RequestId id) {
  RequestState* request = find_mutable(id);
  if (!request || request->leaving) return;
  request->leaving = true;
  if (!request->tenancy) {
    waiting_.erase(request);
    if (request->cached) num_waiting_again_ -= 1;
    requests_.erase(id);
    return;
  }
  release_if_unnamed(*request);
}

void Scheduler::release_if_unnamed(RequestState& request) {
  if (request.runs() || request.frames_in_flight > 0) return;
  end_tenancy(request);
  if (request.leaving) {
    requests_.erase(request.id);
    return;
  }
  request.preempted = false;
  waiting_.insert(&request);
  num_waiting_again_ += 1;
}

void Scheduler::end_tenancy(RequestState& request) {
  slots_.close(request.tenancy->slot);
  // The end of a prefix goes before its beginning, which more requests share.
  for (auto block = request.blocks.rbegin(); block != request.blocks.rend(); ++block) cache_.release(*block);
  running_.erase(&request);
  request.blocks.clear();
  request.tenancy.reset();
  request.published = {};
}

void Scheduler::set_paused(RequestId id, bool paused) {
  if (RequestState* request = find_mutable(id)) request->paused = paused;
}

const RequestState* Scheduler::find(RequestId id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

RequestState* Scheduler::find_mutable(RequestId id) { return const_cast<RequestState*>(std::as_const(*this).find(id)); }

std::vector<std::pair<RequestId, RequestSpec>> Scheduler::take_waiting() {
  std::vector<std::pair<RequestId, RequestSpec>> taken;
  for (RequestState* request : waiting_) {
    if (request->cached) continue;  // it has been admitted before
    taken.emplace_back(request->id, std::move(request->spec));
    taken.back().second.prompt = std::move(request->tokens);
  }
  std::erase_if(waiting_, [](const RequestState* request) { return !request->cached; });
  for (const auto& [id, spec] : taken) requests_.erase(id);
  return taken;
}

}  // namespace helios
