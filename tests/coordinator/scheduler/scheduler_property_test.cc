// Random arrivals, prefixes, priorities, cancels, pauses and early finishes against a slow, obvious model of the
// device.
//
// The model keeps the tokens that each block holds and computes the next token from the whole prefix, read through the
// slot's block table: a block that is shared wrongly, reused too early or not restored gives other tokens than the
// request alone. Where texts repeat themselves, proposals come true and do not at random. Invariants are counted from
// scratch after every step.
#include "common/contract/completion_layout.h"
#include "coordinator/scheduler/scheduler.h"
#include "tests/coordinator/scheduler/model_device.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace helios {
namespace {

struct Traffic {
  double arrive = 0.3, cancel = 0.01, pause = 0.05;
  double scored = 0.0;
  int priorities = 3, burst = 1;
  bool prefix_cache = true;
  PromptLookupOptions proposals;  // with some, texts repeat themselves
  bool calm = false;  // equal priorities, and nobody pauses, leaves early or is scored: the admission's promise holds
};

class Simulation {
 public:
  Simulation(uint32_t seed, const Capabilities& core, Traffic traffic)
      : random_(seed),
        core_(core),
        traffic_(traffic),
        scheduler_(core, {.prefix_cache = traffic.prefix_cache, .proposals = traffic.proposals}),
        device_(core, traffic.proposals.on()) {}

  void run(int requests) {
    int steps = 0;
    while (arrived_ < requests || !alive_.empty() || !flights_.empty()) {
      ASSERT_LT(++steps, 400000) << "a request starves";
      for (int i = 0; i < traffic_.burst && arrived_ < requests && chance(traffic_.arrive); ++i) arrive();
      if (!alive_.empty() && chance(traffic_.cancel)) cancel();
      if (chance(traffic_.pause)) toggle_pauses();
      if (static_cast<int>(flights_.size()) < kNumFrames && chance(0.8)) submit();
      if (!flights_.empty() && (chance(0.6) || static_cast<int>(flights_.size()) == kNumFrames)) decode();
      check_invariants();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.slots().num_free(), core_.slot_capacity);
    EXPECT_EQ(scheduler_.blocks().num_free(), core_.kv_num_blocks);
    EXPECT_EQ(scheduler_.num_running() + scheduler_.num_waiting() + scheduler_.num_waiting_again(), 0);
    EXPECT_EQ(completed_ + cancelled_, requests);
  }

  int preemptions() const { return preemptions_; }
  int64_t cached() const { return cached_; }
  size_t most_running() const { return most_running_; }
  int64_t scored_rows() const { return scored_rows_; }
  int suppressed() const { return suppressed_; }
  int64_t moved_out() const { return moved_out_; }
  int64_t moved_in() const { return moved_in_; }
  int most_preempted() const { return most_preempted_; }
  int64_t proposed() const { return proposed_; }
  int64_t came_true() const { return came_true_; }

 private:
  struct Alive {
    std::vector<TokenId> prompt, tokens;  // the whole sequence as it must become
    int finish_at = 0;                    // tokens
    int64_t priority = 0;
    bool paused = false;
    bool scored = false;
    int32_t scores = 0;        // positions whose scores were handed on
    int32_t samples_then = 0;  // planned when it was admitted last
    int preempted = 0;
  };
  struct Flight {
    std::vector<RequestId> requests;
    std::vector<Tenancy> tenancies;
    std::vector<int32_t> starts, rows;
    std::vector<std::vector<TokenId>> emitted;
    std::set<int32_t> blocks;  // that its lanes can read or write
    bool scored = false;
  };

  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  int uniform(int low, int high) { return std::uniform_int_distribution<>(low, high)(random_); }

  /// Prompts begin with one of three texts, so that they share prefixes, and with one of two salts.
  void arrive() {
    RequestSpec spec;
    const int size = uniform(1, core_.max_model_len / 2), text = uniform(0, 2), common = uniform(0, size);
    for (int i = 0; i < size; ++i) spec.prompt.push_back(i < common ? text : uniform(0, 99));
    spec.prompt_scores = core_.prompt_scoring && chance(traffic_.scored);
    spec.sampling.max_tokens = uniform(spec.prompt_scores ? 0 : 1, core_.max_model_len / 2);
    spec.priority = uniform(0, traffic_.priorities - 1);
    spec.cache_salt = chance(0.2) ? "salt" : "";
    spec.sampling.masks = chance(0.3);
    if (traffic_.proposals.on()) {
      spec.sampling.presence_penalty = chance(0.1) ? 1.0f : 0.0f;
      spec.sampling.min_tokens = chance(0.2) ? uniform(0, spec.sampling.max_tokens) : 0;
    }
    if (!Scheduler::check_fits(core_, spec).ok()) return;
    const RequestId id(++arrived_);
    Alive& alive = alive_[id];
    const int budget = spec.sampling.max_tokens;
    alive.finish_at = budget == 0 || chance(0.5) ? budget : uniform(1, budget);
    alive.scored = spec.prompt_scores;
    alive.prompt = alive.tokens = spec.prompt;
    for (int i = 0; i < spec.sampling.max_tokens; ++i)
      alive.tokens.push_back(next_token(alive.tokens, traffic_.proposals.on()));
    alive.priority = spec.priority;
    scheduler_.enqueue(id, std::move(spec));
  }

  void cancel() {
    const auto it = std::next(alive_.begin(), uniform(0, static_cast<int>(alive_.size()) - 1));
    scheduler_.leave(it->first);
    alive_.erase(it);
    ++cancelled_;
  }

  void toggle_pauses() {
    for (auto& [id, alive] : alive_) {
      if (!alive.paused && !chance(0.1)) continue;
      alive.paused = !alive.paused;
      scheduler_.set_paused(id, alive.paused);
    }
  }

  /// Whoever is admitted outranks everybody who then still waits and is not paused.
  void check_order(const Decision& decision) {
    std::set<RequestId> admitted;
    for (const PlannedAdmission& admission : decision.admissions) admitted.insert(admission.request->id);
    for (const RequestId in : admitted) {
      for (const auto& [id, alive] : alive_) {
        if (scheduler_.find(id)->tenancy || admitted.contains(id) || alive.paused) continue;
        const auto key = [&](RequestId r) { return std::pair(alive_.at(r).priority, r); };
        ASSERT_LT(key(in), key(id)) << "overtaken";
      }
    }
  }

  void submit() {
    const Decision decision = scheduler_.plan();
    if (decision.empty()) {
      // Work that can be done is done: nothing runs only while frames are in flight, or consumers do not read.
      for (const auto& [id, alive] : alive_) ASSERT_TRUE(alive.paused || !flights_.empty()) << "request " << id.value;
      return;
    }
    check_order(decision);
    int rows = 0;
    std::set<int32_t> slots;
    Flight flight;
    for (const PlannedAdmission& admission : decision.admissions) {
      ASSERT_TRUE(epochs_.emplace(admission.tenancy.slot, admission.tenancy.epoch).second) << "an epoch twice";
      cached_ += static_cast<int64_t>(admission.cached.size());
      alive_[admission.request->id].samples_then = admission.request->generated();
    }
    for (const PlannedLane& lane : decision.lanes) {
      ASSERT_TRUE(slots.insert(lane.tenancy.slot.value).second) << "two lanes for a slot";
      ASSERT_TRUE(alive_.contains(lane.request->id)) << "a lane for a request that has left";
      ASSERT_FALSE(lane.role == LaneRole::kDecode && alive_[lane.request->id].paused);
      check_kind(decision.operation, lane);
      ASSERT_FALSE(lane.samples && lane.request->spec.sampling.masks &&
                   lane.request->samples_planned > lane.request->generated())
          << "a mask before the token that it follows from";
      rows += lane.rows;
      flight.starts.push_back(lane.start);
      flight.requests.push_back(lane.request->id);
      flight.tenancies.push_back(lane.tenancy);
      flight.rows.push_back(lane.rows);
    }
    ASSERT_LE(rows, core_.prefill_chunk);
    check_preemptions(decision);
    check_proposals(decision);
    flight.scored = decision.operation == Operation::kScoredPrefill;
    const CacheMoves moves = scheduler_.commit(decision);
    check_moves(decision, moves);
    device_.move(moves);
    flight.emitted = device_.execute(decision);
    for (const Tenancy& tenancy : flight.tenancies) {
      const auto& table = device_.table(tenancy.slot);
      flight.blocks.insert(table.begin(), table.end());
    }
    if (!decision.lanes.empty()) flights_.push_back(std::move(flight));
    most_running_ = std::max(most_running_, decision.lanes.size());
  }

  /// The admission's promise: who is preempted has generated a block of tokens since it came, for which steps may have
  /// been planned only.
  void check_preemptions(const Decision& decision) {
    preemptions_ += static_cast<int>(decision.preemptions.size());
    for (const RequestState* request : decision.preemptions) {
      const auto it = alive_.find(request->id);
      ASSERT_NE(it, alive_.end());
      most_preempted_ = std::max(most_preempted_, ++it->second.preempted);
      if (!traffic_.calm) continue;
      ASSERT_GE(request->samples_planned - it->second.samples_then, core_.kv_block_size) << "let in to be preempted";
      ASSERT_LE(it->second.preempted * core_.kv_block_size, request->spec.sampling.max_tokens);
    }
  }

  /// R3: proposals are made where they decide nothing but how many tokens come, and a verify step has room for them.
  void check_proposals(const Decision& decision) {
    size_t rows = 0, offered = 0;
    for (const PlannedLane& lane : decision.lanes) {
      rows += 1 + lane.proposals.size();
      offered += lane.proposals.size();
      if (lane.proposals.empty()) continue;
      const RequestState& state = *lane.request;
      const SamplingParams& sampling = state.spec.sampling;
      ASSERT_EQ(decision.operation, Operation::kVerify);
      ASSERT_EQ(state.frames_in_flight, 0) << "proposals before the tokens that they follow from";
      ASSERT_EQ(state.samples_planned, state.generated());
      ASSERT_FALSE(sampling.masks || has_penalty(sampling) || state.generated() < sampling.min_tokens);
      ASSERT_TRUE(std::cmp_less(lane.proposals.size(), core_.token_capacity));
      ASSERT_LE(state.samples_planned + 1 + static_cast<int>(lane.proposals.size()), sampling.max_tokens);
    }
    if (decision.operation != Operation::kVerify) return;
    ASSERT_GT(offered, 0u);
    ASSERT_LE(rows, static_cast<size_t>(core_.verify_rows));
    for (const PlannedLane& lane : decision.lanes) ASSERT_EQ(lane.role, LaneRole::kDecode);
    proposed_ += static_cast<int64_t>(offered);
  }

  /// Copies name blocks that no frame in flight touches, each once, and the tier's own as declared.
  void check_moves(const Decision& decision, const CacheMoves& moves) {
    ASSERT_TRUE(!decision.lanes.empty() || (moves.out.empty() && moves.in.empty())) << "copies without a submission";
    std::set<int32_t> out, in, host;
    for (const BlockCopy& c : moves.out) {
      ASSERT_TRUE(out.insert(c.block).second && host.insert(c.host_block).second) << "twice";
    }
    for (const BlockCopy& c : moves.in) {
      ASSERT_TRUE(in.insert(c.block).second && host.insert(c.host_block).second) << "twice, or given away and read";
    }
    for (const int32_t block : host) ASSERT_LT(block, core_.host_num_blocks);
    for (const Flight& flight : flights_) {
      for (const std::set<int32_t>* named : {&out, &in}) {
        for (const int32_t block : *named) ASSERT_FALSE(flight.blocks.contains(block)) << "a lane in flight names it";
      }
    }
    moved_out_ += static_cast<int64_t>(out.size());
    moved_in_ += static_cast<int64_t>(in.size());
  }

  /// R43: what still has scores to give advances in scored prefills and nowhere else, from position zero on.
  void check_kind(Operation operation, const PlannedLane& lane) {
    const RequestState& state = *scheduler_.find(lane.request->id);
    const bool scored = operation == Operation::kScoredPrefill;
    if (scored) {
      ASSERT_TRUE(alive_[state.id].scored && lane.role == LaneRole::kPrefill);
    }
    if (lane.role == LaneRole::kPrefill && state.scores_left()) {
      ASSERT_TRUE(scored);
    }
    ASSERT_FALSE(lane.samples && state.spec.sampling.max_tokens == 0);
    if (scored) scored_rows_ += lane.rows;
  }

  /// What the engine hands on of a scored chunk: the positions that were not handed on before.
  void take_scores(Alive& alive, int32_t start, int32_t rows) {
    const int32_t end = std::min(start + rows, static_cast<int32_t>(alive.prompt.size()) - 1);
    ASSERT_LE(start, alive.scores) << "a gap";
    if (start < alive.scores) ++suppressed_;
    alive.scores = std::max(alive.scores, end);
  }

  void decode() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (size_t i = 0; i < flight.requests.size(); ++i) {
      const RequestId id = flight.requests[i];
      ASSERT_TRUE(scheduler_.slots().owner(flight.tenancies[i].slot, flight.tenancies[i].epoch).has_value())
          << "a slot was released while a frame in flight named it";
      const auto it = alive_.find(id);
      if (it == alive_.end()) continue;
      std::vector<TokenId> emitted = flight.emitted[i];
      const int32_t left = it->second.finish_at - scheduler_.find(id)->generated();
      if (std::cmp_greater(emitted.size(), left)) emitted.resize(static_cast<size_t>(left));  // it ended in between
      if (!emitted.empty()) came_true_ += static_cast<int64_t>(emitted.size()) - 1;
      if (flight.scored) take_scores(it->second, flight.starts[i], flight.rows[i]);
      if (::testing::Test::HasFatalFailure()) return;
      scheduler_.note_decoded(id, flight.rows[i], emitted);
      const RequestState& state = *scheduler_.find(id);
      ASSERT_TRUE(std::equal(state.tokens.begin(), state.tokens.end(), it->second.tokens.begin()))
          << "request " << id.value << " went astray at token " << state.generated();
      if (it->second.scored) {
        ASSERT_EQ(state.scores_known, it->second.scores);
      }
      const bool prompt_done = state.kv_known >= state.prompt_size;
      if (prompt_done && state.generated() == it->second.finish_at) {
        if (it->second.scored) {
          ASSERT_EQ(it->second.scores, state.prompt_size - 1) << "scores are missing";
        }
        scheduler_.leave(id);
        alive_.erase(it);
        ++completed_;
      }
    }
    scheduler_.frame_decoded(flight.requests);
  }

  void check_invariants() {
    int64_t running = 0;
    std::set<int32_t> slots;
    std::map<int32_t, int32_t> holders;
    for (uint64_t i = 1; i <= static_cast<uint64_t>(arrived_); ++i) {
      const RequestState* request = scheduler_.find(RequestId(i));
      if (!request) continue;
      if (!request->tenancy) {
        ASSERT_TRUE(request->blocks.empty());
        continue;
      }
      ++running;
      ASSERT_TRUE(slots.insert(request->tenancy->slot.value).second) << "a slot is shared";
      for (const int32_t block : request->blocks) holders[block] += 1;
      ASSERT_LE(request->samples_planned, request->spec.sampling.max_tokens);
      if (request->frames_in_flight > 0) continue;
      ASSERT_TRUE(request->leaving || request->kv_planned == request->kv_known);
      ASSERT_TRUE(request->leaving || (request->samples_planned == request->generated() && request->offered == 0));
    }
    ASSERT_EQ(running, scheduler_.num_running());
    ASSERT_EQ(static_cast<int>(slots.size()) + scheduler_.slots().num_free(), core_.slot_capacity);
    ASSERT_EQ(static_cast<int>(holders.size()) + scheduler_.blocks().num_free(), core_.kv_num_blocks);
    for (int32_t block = 0; block < core_.kv_num_blocks; ++block) {
      ASSERT_EQ(scheduler_.blocks().holders(block), holders.contains(block) ? holders[block] : 0);
    }
    int64_t on_host = 0;
    for (int32_t h = 0; h < core_.host_num_blocks; ++h) {
      on_host += scheduler_.cache().prefixes().contains(core_.kv_num_blocks + h);
    }
    ASSERT_EQ(on_host, scheduler_.cache().host_used());
  }

  std::mt19937 random_;
  const Capabilities core_;
  const Traffic traffic_;
  Scheduler scheduler_;
  ModelDevice device_;
  std::map<RequestId, Alive> alive_;
  std::set<std::pair<SlotIndex, Epoch>> epochs_;
  std::deque<Flight> flights_;
  int arrived_ = 0, completed_ = 0, cancelled_ = 0, preemptions_ = 0;
  int64_t cached_ = 0;
  size_t most_running_ = 0;
  int64_t scored_rows_ = 0;
  int64_t moved_out_ = 0, moved_in_ = 0;
  int64_t proposed_ = 0, came_true_ = 0;
  int most_preempted_ = 0;
  int suppressed_ = 0;  // scored chunks that repeated positions, after a preemption
};

Capabilities core(int slots, int chunk, int blocks, int host_blocks = 0) {
  return {.vocab_size = 100,
          .max_model_len = 48,
          .slot_capacity = slots,
          .token_capacity = 8,
          .prefill_chunk = chunk,
          .kv_block_size = 4,
          .kv_num_blocks = blocks,
          .host_num_blocks = host_blocks,
          .max_logprobs = 20,
          .logprob_token_ids = true,
          .prompt_scoring = true};
}

TEST(SchedulerProperties, HoldOverRandomTraffic) {
  int preemptions = 0;
  int64_t cached = 0;
  for (uint32_t seed = 1; seed <= 27; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, core(1 + seed % 6, 1 + 7 * (seed % 4), 12 + 4 * (seed % 6)),
                          {.prefix_cache = seed % 4 != 0});
    simulation.run(70);
    if (HasFatalFailure()) return;
    preemptions += simulation.preemptions();
    cached += simulation.cached();
  }
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(cached, 100);
}

TEST(SchedulerProperties, HoldWithAFewBlocksForManyAndImpatientClients) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, core(16, 16, 12 + static_cast<int>(seed)),
                          {.arrive = 0.9, .cancel = 0.05, .pause = 0.3, .priorities = 2});
    simulation.run(120);
    if (HasFatalFailure()) return;
    EXPECT_GT(simulation.preemptions(), 10);
  }
}

TEST(SchedulerProperties, HoldWithScoredPromptsAmongTheOthers) {  // R43
  int preemptions = 0, suppressed = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, core(1 + seed % 6, 1 + 7 * (seed % 3), 12 + 4 * (seed % 4)),
                          {.pause = 0.1, .scored = seed % 3 == 0 ? 1.0 : 0.4});
    simulation.run(70);
    if (HasFatalFailure()) return;
    EXPECT_GT(simulation.scored_rows(), 100);
    preemptions += simulation.preemptions();
    suppressed += simulation.suppressed();
  }
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(suppressed, 10);
}

TEST(SchedulerProperties, HoldWithAHostTierOfAnySize) {
  int64_t out = 0, in = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    const int host_blocks = std::array{1, 5, 17, 60}[seed % 4];
    Simulation simulation(seed, core(1 + seed % 6, 1 + 7 * (seed % 4), 12 + 4 * (seed % 4), host_blocks),
                          {.cancel = seed % 3 == 0 ? 0.05 : 0.01, .scored = seed % 5 == 0 ? 0.3 : 0.0});
    simulation.run(80);
    if (HasFatalFailure()) return;
    out += simulation.moved_out();
    in += simulation.moved_in();
  }
  EXPECT_GT(out, 1000);
  EXPECT_GT(in, 300);
}

// No livelock, and no ping-pong: every tenancy gives at least a block of tokens before it has to give way.
TEST(SchedulerProperties, NobodyIsLetInToBePreemptedAtOnce) {
  int preemptions = 0, most = 0;
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed, core(2 + seed % 8, 8 + 8 * (seed % 4), 12 + 3 * (seed % 5), seed % 3 == 0 ? 20 : 0),
                          {.arrive = 0.8, .cancel = 0.0, .pause = 0.0, .priorities = 1, .calm = true});
    simulation.run(60);
    if (HasFatalFailure()) return;
    preemptions += simulation.preemptions();
    most = std::max(most, simulation.most_preempted());
  }
  EXPECT_GT(preemptions, 50) << "the load must be too much";
  EXPECT_LE(most, 48 / 2 / 4);
}

/// With verification of `proposals` a lane, by default in no more rows than every slot's and one lane's proposals.
Capabilities verifying(Capabilities core, int proposals, int more_rows = 0) {
  core.token_capacity = proposals + 1;
  core.verify_rows = core.slot_capacity + proposals + more_rows;
  return core;
}

TEST(SchedulerProperties, HoldWithProposalsThatComeTrueAtRandom) {  // R3, X1
  int preemptions = 0;
  int64_t proposed = 0, came_true = 0, moved_in = 0;
  for (uint32_t seed = 1; seed <= 36; ++seed) {
    SCOPED_TRACE(seed);
    const int proposals = std::array{1, 3, 4, 15}[seed % 4];
    const Capabilities small = core(1 + seed % 6, 1 + 7 * (seed % 4), 12 + 4 * (seed % 6), seed % 5 == 0 ? 17 : 0);
    Simulation simulation(seed, verifying(small, proposals, static_cast<int>(seed % 3) * 8),
                          {.scored = seed % 7 == 0 ? 0.3 : 0.0,
                           .prefix_cache = seed % 6 != 0,
                           .proposals = {proposals, 1 + static_cast<int>(seed % 2), 3}});
    simulation.run(70);
    if (HasFatalFailure()) return;
    preemptions += simulation.preemptions();
    proposed += simulation.proposed();
    came_true += simulation.came_true();
    moved_in += simulation.moved_in();
  }
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(came_true, 1500);
  EXPECT_GT(proposed - came_true, 1500);
  EXPECT_GT(moved_in, 20);
}

TEST(SchedulerProperties, NobodyIsLetInToBePreemptedAtOnceBesideProposals) {
  int preemptions = 0;
  int64_t came_true = 0;
  for (uint32_t seed = 1; seed <= 96; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(
        seed, verifying(core(2 + seed % 8, 8 + 8 * (seed % 4), 12 + 3 * (seed % 5)), 15, 60),
        {.arrive = 0.8, .cancel = 0.0, .pause = 0.0, .priorities = 1, .proposals = {15, 1, 3}, .calm = true});
    simulation.run(60);
    if (HasFatalFailure()) return;
    preemptions += simulation.preemptions();
    came_true += simulation.came_true();
  }
  EXPECT_GT(preemptions, 10) << "the load must be too much";
  EXPECT_GT(came_true, 1000);
}

TEST(SchedulerProperties, HoldFor64And512AtOnce) {
  int preemptions = 0;
  for (const int slots : {64, 512}) {
    SCOPED_TRACE(slots);
    Simulation simulation(11, core(slots, 2048, slots * 3 / 2),
                          {.arrive = 1.0, .cancel = 0.1, .pause = 0.02, .burst = 100});
    simulation.run(slots + slots / 4);
    if (HasFatalFailure()) return;
    EXPECT_GT(simulation.most_running(), static_cast<size_t>(slots) / 8);
    preemptions += simulation.preemptions();
  }
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace helios
