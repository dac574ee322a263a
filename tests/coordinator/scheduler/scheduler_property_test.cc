// Random arrivals, lengths, cancels and early finishes against a model of the device; the invariants hold at every
// step.
#include "common/contract/completion_layout.h"
#include "coordinator/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

namespace helios {
namespace {

struct Flight {
  std::vector<RequestId> requests;
  std::vector<RequestId> samplers;
  std::vector<Tenancy> tenancies;
};

class Simulation {
 public:
  Simulation(uint32_t seed, const Capabilities& core) : random_(seed), core_(core), scheduler_(core) {}

  void run(int requests) {
    int steps = 0;
    while (arrived_ < requests || !alive_.empty() || !flights_.empty()) {
      ASSERT_LT(++steps, 200000) << "a request starves";
      if (arrived_ < requests && chance(0.3)) arrive();
      if (!alive_.empty() && chance(0.02)) cancel();
      if (chance(0.05)) toggle_pause();
      if (static_cast<int>(flights_.size()) < kNumFrames && chance(0.8)) submit();
      if (!flights_.empty() && (chance(0.6) || static_cast<int>(flights_.size()) == kNumFrames)) decode();
      check_invariants();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.slots().num_free(), core_.slot_capacity);
    EXPECT_EQ(scheduler_.blocks().num_free(), core_.kv_num_blocks);
    EXPECT_EQ(scheduler_.num_running() + scheduler_.num_waiting(), 0);
    EXPECT_EQ(completed_ + cancelled_, requests);
    EXPECT_GT(completed_, requests / 2);
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  int uniform(int low, int high) { return std::uniform_int_distribution<>(low, high)(random_); }

  void arrive() {
    RequestSpec spec;
    spec.prompt.assign(uniform(1, core_.max_model_len / 2), 1);
    spec.sampling.max_tokens = uniform(1, core_.max_model_len / 2);
    if (!Scheduler::check_fits(core_, spec).ok()) return;
    const RequestId id(++arrived_);
    finish_at_[id] = chance(0.5) ? spec.sampling.max_tokens : uniform(1, spec.sampling.max_tokens);
    alive_.insert(id);
    scheduler_.enqueue(id, std::move(spec));
  }

  void cancel() {
    const RequestId id = *std::next(alive_.begin(), uniform(0, static_cast<int>(alive_.size()) - 1));
    scheduler_.leave(id);
    alive_.erase(id);
    paused_.erase(id);
    ++cancelled_;
  }

  void toggle_pause() {
    for (const RequestId id : paused_) scheduler_.set_paused(id, false);
    paused_.clear();
    if (alive_.empty() || chance(0.5)) return;
    paused_.insert(*alive_.begin());
    scheduler_.set_paused(*alive_.begin(), true);
  }

  void submit() {
    const Decision decision = scheduler_.plan();
    if (decision.empty()) return;
    Flight flight;
    std::set<int32_t> slots;
    int rows = 0;
    for (const PlannedAdmission& admission : decision.admissions) {
      // FIFO: admissions come in order of arrival, over the whole run.
      ASSERT_GT(admission.request->id, last_admitted_);
      last_admitted_ = admission.request->id;
      ASSERT_GE(static_cast<int>(admission.blocks.size()) * core_.kv_block_size,
                admission.request->prompt_size() + admission.request->spec.sampling.max_tokens);
      // An epoch is never reused.
      ASSERT_TRUE(epochs_.emplace(admission.tenancy.slot, admission.tenancy.epoch).second);
    }
    for (const PlannedLane& lane : decision.lanes) {
      ASSERT_TRUE(slots.insert(lane.tenancy.slot.value).second) << "two lanes for a slot";
      ASSERT_TRUE(alive_.count(lane.request->id)) << "a lane for a request that has left";
      ASSERT_FALSE(lane.role == LaneRole::kDecode && paused_.count(lane.request->id));
      if (lane.role == LaneRole::kPrefill) {
        ASSERT_EQ(lane.start, prefilled_[lane.request->id]) << "prompt chunks are contiguous";
        prefilled_[lane.request->id] += lane.rows;
        ASSERT_GT(lane.rows, 0);
        ASSERT_EQ(lane.samples, prefilled_[lane.request->id] == lane.request->prompt_size());
      }
      rows += lane.rows;
      flight.requests.push_back(lane.request->id);
      flight.tenancies.push_back(lane.tenancy);
      if (lane.samples) flight.samplers.push_back(lane.request->id);
    }
    ASSERT_LE(rows, core_.prefill_chunk);
    ASSERT_LE(slots.size(), static_cast<size_t>(core_.slot_capacity));
    scheduler_.commit(decision);
    flights_.push_back(std::move(flight));
  }

  void decode() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (const Tenancy& tenancy : flight.tenancies) {
      ASSERT_TRUE(scheduler_.slots().owner(tenancy.slot, tenancy.epoch).has_value())
          << "a slot was released while a frame in flight named it";
    }
    for (const RequestId id : flight.samplers) {
      if (!alive_.count(id)) continue;
      scheduler_.note_emitted(id, 1);
      if (scheduler_.find(id)->emitted == finish_at_[id]) {
        scheduler_.leave(id);
        alive_.erase(id);
        paused_.erase(id);
        ++completed_;
      }
    }
    scheduler_.frame_decoded(flight.requests);
  }

  void check_invariants() {
    int64_t held = 0;
    std::set<int32_t> slots, blocks;
    for (uint64_t i = 1; i <= static_cast<uint64_t>(arrived_); ++i) {
      const RequestState* request = scheduler_.find(RequestId(i));
      if (!request || !request->tenancy) continue;
      ++held;
      ASSERT_TRUE(slots.insert(request->tenancy->slot.value).second) << "a slot is shared";
      for (const int32_t block : request->blocks) ASSERT_TRUE(blocks.insert(block).second) << "a block is shared";
      ASSERT_LE(request->samples_planned, request->spec.sampling.max_tokens);
    }
    ASSERT_EQ(held, scheduler_.num_running());
    ASSERT_EQ(static_cast<int>(slots.size()) + scheduler_.slots().num_free(), core_.slot_capacity);
    ASSERT_EQ(static_cast<int>(blocks.size()) + scheduler_.blocks().num_free(), core_.kv_num_blocks);
  }

  std::mt19937 random_;
  const Capabilities core_;
  Scheduler scheduler_;
  std::set<RequestId> alive_, paused_;
  std::map<RequestId, int> finish_at_, prefilled_;
  std::set<std::pair<SlotIndex, Epoch>> epochs_;
  std::deque<Flight> flights_;
  RequestId last_admitted_{0};
  int arrived_ = 0, completed_ = 0, cancelled_ = 0;
};

Capabilities core(int slots, int chunk, int blocks) {
  return {.vocab_size = 100,
          .max_model_len = 48,
          .slot_capacity = slots,
          .token_capacity = 8,
          .prefill_chunk = chunk,
          .kv_block_size = 4,
          .kv_num_blocks = blocks,
          .max_logprobs = 20,
          .logprob_token_ids = true};
}

TEST(SchedulerProperties, HoldOverRandomTraffic) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Simulation(seed, core(1 + seed % 5, 1 + 7 * (seed % 4), 12 + 6 * (seed % 6))).run(80);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace helios
