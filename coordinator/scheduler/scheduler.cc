#include "coordinator/scheduler/scheduler.h"

#include "common/base/check.h"
#include "common/contract/completion_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace helios {

Scheduler::Scheduler(const Capabilities& capabilities)
    : capabilities_(capabilities),
      slots_(capabilities.slot_capacity),
      blocks_(capabilities.kv_num_blocks, capabilities.kv_block_size) {}

Status Scheduler::check_fits(const Capabilities& capabilities, const RequestSpec& spec) {
  if (spec.prompt.empty()) return Error{Errc::kInvalidArgument, "the prompt is empty; expected at least one token"};
  if (spec.sampling.max_tokens < 1) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("max_tokens is {}; expected at least 1", spec.sampling.max_tokens)};
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
  request->spec = std::move(spec);
  waiting_.push_back(request.get());
  const bool is_new = requests_.emplace(id, std::move(request)).second;
  HELIOS_CHECK(is_new, id.value);
}

Decision Scheduler::plan() const { return plan_batch(capabilities_, running_, waiting_, slots_, blocks_); }

void Scheduler::admit(const PlannedAdmission& admission) {
  RequestState& request = *waiting_.front();
  HELIOS_CHECK(&request == admission.request, request.id.value);
  waiting_.pop_front();
  slots_.open(admission.tenancy, request.id);
  blocks_.take(admission.blocks);
  request.tenancy = admission.tenancy;
  request.blocks = admission.blocks;
  running_.push_back(&request);
}

void Scheduler::commit(const Decision& decision) {
  for (const PlannedAdmission& admission : decision.admissions) admit(admission);
  for (const PlannedLane& lane : decision.lanes) {
    RequestState& request = *find_mutable(lane.request->id);
    request.prompt_planned += lane.rows;
    request.samples_planned += lane.samples ? 1 : 0;
    request.frames_in_flight += 1;
    HELIOS_CHECK(request.samples_planned <= request.spec.sampling.max_tokens, request.id.value);
    HELIOS_CHECK(request.frames_in_flight <= kNumFrames, request.id.value);
  }
}

void Scheduler::frame_decoded(std::span<const RequestId> requests) {
  for (const RequestId id : requests) {
    RequestState* request = find_mutable(id);
    HELIOS_CHECK(request && request->frames_in_flight > 0, id.value);
    request->frames_in_flight -= 1;
    release_if_unnamed(*request);
  }
}

void Scheduler::note_emitted(RequestId id, int32_t tokens) {
  RequestState* request = find_mutable(id);
  HELIOS_CHECK(request, id.value);
  request->emitted += tokens;
}

void Scheduler::leave(RequestId id) {
  RequestState* request = find_mutable(id);
  if (!request || request->leaving) return;
  request->leaving = true;
  if (!request->tenancy) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), request));
    requests_.erase(id);
    return;
  }
  release_if_unnamed(*request);
}

void Scheduler::release_if_unnamed(RequestState& request) {
  if (!request.leaving || request.frames_in_flight > 0) return;
  slots_.close(request.tenancy->slot);
  blocks_.release(request.blocks);
  running_.erase(std::find(running_.begin(), running_.end(), &request));
  requests_.erase(request.id);
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
    taken.emplace_back(request->id, std::move(request->spec));
    requests_.erase(taken.back().first);
  }
  waiting_.clear();
  return taken;
}

}  // namespace helios
