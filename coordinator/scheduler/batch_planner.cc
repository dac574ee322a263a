#include "coordinator/scheduler/batch_planner.h"

#include <algorithm>
#include <unordered_map>

#include "common/base/check.h"
#include "coordinator/scheduler/block_scratch.h"

namespace helios {
namespace {

constexpr int32_t kMinShare = 16;  // rows; a smaller part of a prompt is not worth a step's overhead

/// The most steps that `rows` prompt rows may take, when every other step's rows go to whom ranks behind them.
int64_t steps_for(int64_t rows, int32_t rows_per_step) { return 2 * (rows + rows_per_step - 1) / rows_per_step; }

class Planner {
 public:
  /// `scored`: a step of scored prompts, else of all the others.
  Planner(const PlannerState& state, bool scored) : state_(state), scored_(scored), scratch_(state.blocks) {}

  Decision plan() {
    if (!scored_) plan_decodes();
    collect_prompts();
    plan_prompts();
    if (waits_for_tokens()) return {};
    relieve();
    std::erase_if(decision_.lanes, [&](const PlannedLane& lane) { return gives_way(lane.request); });
    if (state_.num_proposals > 0 && decodes_alone()) offer_proposals();
    set_operation();
    return std::move(decision_);
  }

 private:
  /// A prompt that gets rows in this step.
  struct Prompt {
    const RequestState* request;
    Tenancy tenancy;
    int32_t start;   // first position not yet planned
    int32_t need;    // rows to the end of its prefill
    int32_t rows;    // granted
    int32_t blocks;  // in its table
  };

  int32_t blocks_for(int64_t positions) const { return state_.blocks.blocks_for(positions); }
  static int32_t num_blocks(const RequestState& r) { return static_cast<int32_t>(r.blocks.size()); }

  void plan_decodes() {
    decision_.lanes.reserve(state_.running.size());
    for (const RequestState* request : state_.running) {
      if (!request->can_decode()) continue;
      const int32_t needed = std::max(0, blocks_for(request->kv_planned + 1) - num_blocks(*request));
      if (needed > scratch_.num_free()) {
        short_.push_back(request);
        continue;
      }
      decision_.lanes.push_back({.request = request,
                                 .tenancy = *request->tenancy,
                                 .first_block = num_blocks(*request),
                                 .new_blocks = scratch_.take(needed)});
    }
  }

  /// Grants rows in rank order, over those that run and those that enter.
  void collect_prompts() {
    const int32_t chunk = state_.capabilities.prefill_chunk;
    rows_left_ = streams_wait() ? mixed_prompt_rows(chunk) : chunk;
    for (const RequestState* request : state_.running) {
      if (request->prefilling()) promised_ += blocks_for(request->prefill_end) - num_blocks(*request);
    }
    auto running = state_.running.begin();
    auto waiting = state_.waiting.begin();
    while (rows_left_ > 0) {
      while (running != state_.running.end() && !((*running)->prefilling() && (*running)->scored == scored_)) ++running;
      while (waiting != state_.waiting.end() && (*waiting)->paused) ++waiting;
      const bool may_enter = waiting != state_.waiting.end() && !turned_away_ && (*waiting)->scores_left() == scored_;
      if (running == state_.running.end() && !may_enter) break;
      if (running == state_.running.end() || (may_enter && RunsBefore()(*waiting, *running))) {
        turned_away_ = !try_admit(**waiting);
        ++waiting;
      } else {
        const RequestState& request = **running++;
        grant({&request, *request.tenancy, request.kv_planned, request.prefill_end - request.kv_planned, 0,
               num_blocks(request)});
      }
    }
    for (Prompt& prompt : prompts_) {  // nobody else had a use for the rest
      const int32_t more = std::min(rows_left_, prompt.need - prompt.rows);
      prompt.rows += more;
      rows_left_ -= more;
    }
  }

  /// A step of prompts keeps decoding streams waiting, in it or behind it.
  bool streams_wait() const {
    return std::any_of(state_.running.begin(), state_.running.end(),
                       [](const RequestState* request) { return request->decodes(); });
  }

  void grant(Prompt prompt) {
    const int32_t half = std::max((rows_left_ + 1) / 2, std::min(kMinShare, rows_left_));
    prompt.rows = prompt.need <= rows_left_ ? prompt.need : half;
    rows_left_ -= prompt.rows;
    prompts_.push_back(prompt);
  }

  bool try_admit(const RequestState& request) {
    const auto tenancy = state_.slots.peek(static_cast<int>(decision_.admissions.size()));
    if (!tenancy) return false;
    const int32_t block_size = state_.blocks.block_size();
    const auto size = static_cast<int32_t>(request.tokens.size());
    const Found found = find(request);
    const auto num_here = static_cast<int32_t>(found.here.size());
    const auto num_cached = static_cast<int32_t>(found.places.size());
    const int32_t needed = blocks_for(size) - num_here;
    const int64_t free = scratch_.num_free() - scratch_.num_free_of(found.here);
    if (needed + promised_ + growth_before(request, size - num_cached * block_size) > free) return false;
    scratch_.share(found.here);
    decision_.admissions.push_back({&request, *tenancy, found.places, {}});
    bring_back(decision_.admissions.back());
    promised_ += blocks_for(size) - num_cached;
    grant({&request, *tenancy, num_cached * block_size, size - num_cached * block_size, 0, num_cached});
    return true;
  }

  /// A known prefix: all of its places, and of them the blocks that are in the KV cache or that this plan brings back.
  struct Found {
    std::vector<int32_t> places, here;
  };

  Found find(const RequestState& request) const {
    Found found;
    if (!state_.cache || scored_) return found;  // R43
    // At least one token is computed: its row samples the next.
    const auto computed_before = std::span(request.tokens).first(request.tokens.size() - 1);
    found.places = state_.cache->find(request.spec.cache_salt, computed_before);
    scratch_.cut_taken(found.places);
    for (int32_t& place : found.places) {
      if (const auto back = returning_.find(place); back != returning_.end()) place = back->second;
      if (place < state_.blocks.num_blocks()) found.here.push_back(place);
    }
    return found;
  }

  /// Puts new blocks in the places of the host tier.
  void bring_back(PlannedAdmission& admission) {
    for (int32_t& place : admission.cached) {
      if (place < state_.blocks.num_blocks()) continue;
      const int32_t block = scratch_.take(1).front();
      admission.returning.push_back({block, place - state_.blocks.num_blocks()});
      returning_[place] = block;
      place = block;
    }
  }

  /// Blocks, beyond those of prefills, that the entrant and whoever runs and ranks before it may take until the entrant
  /// has computed its rows and generated a block of tokens.
  int64_t growth_before(const RequestState& entrant, int32_t rows) const {
    int64_t prompt_rows = rows;
    for (const RequestState* r : state_.running) {
      if (r->prefilling()) prompt_rows += r->prefill_end - r->kv_planned;
    }
    const int64_t horizon =
        steps_for(prompt_rows, mixed_prompt_rows(state_.capabilities.prefill_chunk)) + state_.blocks.block_size();
    // Steps with prompts have no proposals, those behind them may bring as many tokens to everybody but the entrant.
    const int64_t faster = int64_t{state_.num_proposals} * state_.blocks.block_size();
    const auto growth = [&](const RequestState& r, int64_t end, int64_t blocks) {
      const int64_t most = int64_t{r.prompt_size} + r.spec.sampling.max_tokens;
      const int64_t more = !r.lookup ? 0 : &r == &entrant ? state_.num_proposals : faster;
      const int64_t then = blocks_for(std::min(end + horizon + more, most));
      return std::max<int64_t>(0, then - std::max<int64_t>(blocks, blocks_for(end)));
    };
    const auto size = static_cast<int64_t>(entrant.tokens.size());
    int64_t sum = growth(entrant, size, 0);
    for (const RequestState* r : state_.running) {
      if (!r->runs() || r->paused || !RunsBefore()(r, &entrant)) continue;
      sum += growth(*r, std::max(r->kv_planned, r->prefill_end), num_blocks(*r));
    }
    for (const PlannedAdmission& a : decision_.admissions) {
      sum += growth(*a.request, static_cast<int64_t>(a.request->tokens.size()), 0);
    }
    return sum;
  }

  void plan_prompts() {
    for (Prompt& prompt : prompts_) {
      const int64_t room = int64_t{prompt.blocks + scratch_.num_free()} * state_.blocks.block_size() - prompt.start;
      prompt.rows = static_cast<int32_t>(std::min<int64_t>(prompt.rows, room));
      if (prompt.rows <= 0) {
        short_.push_back(prompt.request);
        continue;
      }
      const int32_t end = prompt.start + prompt.rows;
      decision_.lanes.push_back({.request = prompt.request,
                                 .tenancy = prompt.tenancy,
                                 .role = LaneRole::kPrefill,
                                 .start = prompt.start,
                                 .rows = prompt.rows,
                                 .samples = prompt.rows == prompt.need && prompt.request->spec.sampling.max_tokens > 0,
                                 .first_block = prompt.blocks,
                                 .new_blocks = scratch_.take(std::max(0, blocks_for(end) - prompt.blocks))});
    }
  }

  bool gives_way(const RequestState* request) const {
    return std::find(decision_.preemptions.begin(), decision_.preemptions.end(), request) !=
           decision_.preemptions.end();
  }

  /// Blocks that come free when the request lets go of its own.
  int32_t num_held_alone(const RequestState& request) const {
    return static_cast<int32_t>(std::count_if(request.blocks.begin(), request.blocks.end(),
                                              [&](int32_t block) { return state_.blocks.holders(block) == 1; }));
  }

  /// The last in rank that can be made to go, paused ones before the others; of those that are not paused only what
  /// ranks behind `taker`. Null when there is none.
  const RequestState* victim_for(const RequestState* taker) const {
    const RequestState* last = nullptr;
    for (auto it = state_.running.rbegin(); it != state_.running.rend(); ++it) {
      if (*it == taker || !(*it)->runs() || gives_way(*it)) continue;
      if ((*it)->paused) return *it;
      if (!last && taker && RunsBefore()(taker, *it)) last = *it;
    }
    return last;
  }

  void relieve() {
    if (short_.empty() && !turned_away_) return;
    bool somebody_goes = false;
    int32_t coming = 0;
    for (const RequestState* request : state_.running) {
      if (request->runs()) continue;  // it goes as soon as no frame in flight names it
      somebody_goes = true;
      coming += num_held_alone(*request);
    }
    std::sort(short_.begin(), short_.end(), RunsBefore());
    for (const RequestState* taker : short_) {
      if (gives_way(taker)) continue;
      while (coming == 0) {
        const RequestState* victim = victim_for(taker);
        if (!victim) return;
        decision_.preemptions.push_back(victim);
        coming += num_held_alone(*victim);
      }
      --coming;
    }
    if (turned_away_ && !somebody_goes && decision_.preemptions.empty()) {
      if (const RequestState* victim = victim_for(nullptr)) decision_.preemptions.push_back(victim);
    }
  }

  static bool is_decode(const PlannedLane& lane) { return lane.role == LaneRole::kDecode; }
  bool decodes_alone() const {
    return std::all_of(decision_.lanes.begin(), decision_.lanes.end(), is_decode) && decision_.admissions.empty();
  }

  /// Frames in flight bring what proposals follow from, and there are no prompts to go on with meanwhile.
  bool waits_for_tokens() const {
    return !scored_ && decodes_alone() &&
           std::any_of(state_.running.begin(), state_.running.end(),
                       [](const RequestState* request) { return request->awaits_tokens(); });
  }

  void offer_proposals() {
    std::vector<int32_t> granted(decision_.lanes.size(), 0);
    int32_t rows_left = state_.capabilities.verify_rows - static_cast<int32_t>(granted.size());
    for (int32_t depth = 1; depth <= state_.num_proposals; ++depth) {
      for (size_t i = 0; i < granted.size() && rows_left > 0; ++i) {
        if (decision_.lanes[i].request->proposable() < depth) continue;
        granted[i] = depth;
        --rows_left;
      }
    }
    for (size_t i = 0; i < granted.size(); ++i) {
      if (granted[i] > 0) offer(decision_.lanes[i], granted[i]);
    }
  }

  void offer(PlannedLane& lane, int32_t most) {
    const RequestState& request = *lane.request;
    const bool spare = short_.empty() && !turned_away_;
    const auto held = lane.first_block + static_cast<int32_t>(lane.new_blocks.size());
    const int32_t wanted = std::max(0, blocks_for(request.kv_planned + 1 + most) - held);
    const std::vector<int32_t> more = scratch_.take(spare ? std::min(wanted, scratch_.num_free()) : 0);
    lane.new_blocks.insert(lane.new_blocks.end(), more.begin(), more.end());
    const int32_t blocks = held + static_cast<int32_t>(more.size());
    const int32_t room = blocks * state_.blocks.block_size() - request.kv_planned - 1;
    lane.proposals.assign(request.proposals.begin(), request.proposals.begin() + std::min(most, room));
  }

  void set_operation() {
    if (decision_.lanes.empty()) return;
    if (scored_) {
      decision_.operation = Operation::kScoredPrefill;
    } else if (std::all_of(decision_.lanes.begin(), decision_.lanes.end(), is_decode)) {
      const bool verifies = std::any_of(decision_.lanes.begin(), decision_.lanes.end(),
                                        [](const PlannedLane& lane) { return !lane.proposals.empty(); });
      decision_.operation = verifies ? Operation::kVerify : Operation::kDecode;
    } else {
      decision_.operation = is_decode(decision_.lanes.front()) ? Operation::kMixed : Operation::kPrefill;
    }
  }

  const PlannerState& state_;
  const bool scored_;
  BlockScratch scratch_;
  Decision decision_;
  std::vector<Prompt> prompts_;
  std::vector<const RequestState*> short_;          // runs, wants a lane, and there is no block for it
  std::unordered_map<int32_t, int32_t> returning_;  // places of the host tier to the blocks that get what they hold
  int32_t rows_left_ = 0;
  int32_t promised_ = 0;      // blocks that prefills of this and earlier plans still need
  bool turned_away_ = false;  // the first of those that wait did not fit
};

}  // namespace

int32_t mixed_prompt_rows(int32_t prefill_chunk) {
  return std::min(prefill_chunk, std::max(kMinShare, prefill_chunk / 4));
}

Decision plan_batch(const PlannerState& state) {
  if (!state.capabilities.prompt_scoring) return Planner(state, false).plan();
  Decision decision = Planner(state, !state.last_was_scored).plan();
  return decision.empty() ? Planner(state, state.last_was_scored).plan() : decision;
}

}  // namespace helios
