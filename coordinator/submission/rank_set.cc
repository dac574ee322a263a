#include "coordinator/submission/rank_set.h"

#include "common/base/check.h"
#include "common/base/host_key.h"
#include "common/base/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace helios {
namespace {

constexpr size_t kRememberedIdentities = 1024;
// A rank that leaves because it is broken says so in a Fault, which may come a moment after its heartbeat.
constexpr std::chrono::milliseconds kFaultFollows{200};

/// Peers choose identities: forget all rather than grow without end.
void remember(std::unordered_set<std::string>& set, const std::string& identity) {
  if (set.size() >= kRememberedIdentities) set.clear();
  set.insert(identity);
}

std::string random_key() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < 4; ++i) key += fmt::format("{:08x}", random());
  return key;
}

int64_t milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

}  // namespace

RankSet::RankSet(RankSetConfig config, std::string host_key, Send send)
    : config_(std::move(config)), host_key_(std::move(host_key)), send_(std::move(send)) {
  HELIOS_CHECK(config_.world_size > 0, config_.world_size);
  members_.resize(config_.world_size);
  views_.resize(config_.world_size);
  for (int r = 0; r < config_.world_size; ++r) views_[r].rank = Rank(r);
}

RankSet::Member* RankSet::find(const std::string& identity) {
  const auto it = std::find_if(members_.begin(), members_.end(),
                               [&](const Member& m) { return m.here() && m.identity == identity; });
  return it == members_.end() ? nullptr : &*it;
}

std::optional<Rank> RankSet::rank_of(const std::string& identity) const {
  const auto it = std::find(identities_.begin(), identities_.end(), identity);
  if (it == identities_.end()) return std::nullopt;
  return Rank(static_cast<int32_t>(it - identities_.begin()));
}

int RankSet::num_here() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [](const Member& m) { return m.here(); }));
}

std::optional<RankSet::Event> RankSet::next_event() {
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::string RankSet::reason() const {
  std::string now;
  switch (phase_) {
    case Phase::kOpen:
      return "";
    case Phase::kDraining:
      return "draining";
    case Phase::kGathering:
      now = fmt::format("waiting for ranks: {} of {} are here", num_here(), config_.world_size);
      break;
    case Phase::kLoading: {
      double slowest = 1.0;
      for (const View& view : views_) {
        slowest = std::min(slowest, view.state == RankState::kReady ? 1.0 : view.load_progress);
      }
      now = fmt::format("loading the model: {:.0f}%", 100 * slowest);
      break;
    }
  }
  return last_failure_.empty() ? now : fmt::format("{}; before that: {}", now, last_failure_);
}

void RankSet::on_message(const std::string& identity, const ControlMessage& message, TimePoint now) {
  if (const auto* hello = std::get_if<Hello>(&message)) return on_hello(identity, *hello, now);
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    // Everybody gets an echo, also a rank that waits for its place: it asks whether we live.
    if (!former_.contains(identity)) {
      Heartbeat echo = *heartbeat;
      echo.counters.clear();
      (void)send_(identity, echo);
    }
  }
  Member* member = find(identity);
  if (!member) return;  // of an earlier life, or a stranger
  member->last_seen = now;
  views_[member->hello.rank.value].last_seen = now;
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) return on_heartbeat(*member, *heartbeat, now);
  if (phase_ == Phase::kGathering) return;  // nothing else can be meant for this incarnation
  if (const auto* ready = std::get_if<Ready>(&message)) return on_ready(*member, *ready, now);
  if (const auto* fault = std::get_if<Fault>(&message)) {
    on_fault(member->hello.rank, *fault, now);
  } else if (const auto* set = std::get_if<StoreSet>(&message)) {
    answer_from_store(store_.set(*set), now);
  } else if (const auto* get = std::get_if<StoreGet>(&message)) {
    answer_from_store(store_.get(identity, *get), now);
  }
}

void RankSet::refuse(const std::string& identity, const Hello& hello, const std::string& why, bool abort) {
  if (refused_.contains(identity)) return;
  remember(refused_, identity);
  log_warning("rank_refused", "rank={} pid={} host={} reason=\"{}\"", hello.rank.value, hello.pid, hello.host_name,
              why);
  if (abort) (void)send_(identity, Abort{why});
}

void RankSet::on_hello(const std::string& identity, const Hello& hello, TimePoint now) {
  if (former_.contains(identity) || phase_ == Phase::kDraining) return;
  const int rank = hello.rank.value;
  if (hello.world_size != config_.world_size) {
    return refuse(identity, hello, fmt::format("world size {}, expected {}", hello.world_size, config_.world_size),
                  true);
  }
  if (rank < 0 || rank >= config_.world_size) {
    return refuse(identity, hello, fmt::format("rank {}, expected 0 to {}", rank, config_.world_size - 1), true);
  }
  Member& member = members_[rank];
  if (member.here()) {
    // Not told to leave: its predecessor may be dead and not yet known to be, and its next Hello then finds the place
    // free.
    if (member.identity != identity)
      return refuse(identity, hello, fmt::format("rank {} is here already", rank), false);
    member.last_seen = views_[rank].last_seen = now;
    if (phase_ != Phase::kGathering) (void)send_(identity, welcome_);  // its Welcome was lost
    return;
  }
  if (phase_ != Phase::kGathering) return;
  member = Member{.identity = identity, .hello = hello, .last_seen = now};
  if (is_complete_host_key(host_key_) && hello.host_key == host_key_) member.watch = ProcessWatch(hello.pid);
  views_[rank] = View{.rank = Rank(rank),
                      .pid = hello.pid,
                      .device = hello.device,
                      .host_name = hello.host_name,
                      .status_url = hello.status_url,
                      .last_seen = now};
  version_ += 1;
  log_info("rank_hello", "rank={} pid={} host={} device={} here={}/{}", rank, hello.pid, hello.host_name, hello.device,
           num_here(), config_.world_size);
  if (num_here() == config_.world_size) welcome_all(now);
}

std::string RankSet::choose_collective() const {
  if (config_.collective != "auto") return config_.collective;
  const Hello& first = members_[0].hello;
  const bool one_host = is_complete_host_key(first.host_key) &&
                        std::all_of(members_.begin(), members_.end(),
                                    [&](const Member& m) { return m.hello.host_key == first.host_key; });
  return one_host ? "shm" : "gloo";
}

void RankSet::welcome_all(TimePoint now) {
  incarnation_ += 1;
  phase_ = Phase::kLoading;
  store_ = BootstrapStore();
  identities_.clear();
  for (const Member& member : members_) identities_.push_back(member.identity);
  welcome_ = {.incarnation = incarnation_,
              .world_size = config_.world_size,
              .group_key = random_key(),
              .collective = choose_collective()};
  log_info("rank_set_complete", "incarnation={} ranks={} collective={}", incarnation_, config_.world_size,
           welcome_.collective);
  version_ += 1;
  for (int r = 0; r < config_.world_size; ++r) {
    views_[r].state = RankState::kLoading;
    if (auto sent = send_(identities_[r], welcome_); !sent) {
      return break_set(fmt::format("rank {} could not be welcomed: {}", r, sent.error().message), {Rank(r)}, now);
    }
  }
}

void RankSet::on_ready(Member& member, const Ready& ready, TimePoint now) {
  if (ready.incarnation != incarnation_ || phase_ != Phase::kLoading || member.manifest) return;
  View& view = views_[member.hello.rank.value];
  member.manifest = ready.manifest;
  view.state = RankState::kReady;
  view.memory = ready.manifest.memory;
  view.load_progress = 1.0;
  version_ += 1;
  log_info("rank_ready", "rank={} pid={}", member.hello.rank.value, member.hello.pid);
  const bool all =
      std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.manifest.has_value(); });
  if (all) open_if_agreed(now);
}

void RankSet::open_if_agreed(TimePoint now) {
  for (int r = 1; r < config_.world_size; ++r) {
    if (auto same = check_same_core(*members_[0].manifest, *members_[r].manifest); !same) {
      return break_set(fmt::format("rank {}: {}", r, same.error().message), {}, now);
    }
  }
  auto capabilities = derive_capabilities(*members_[0].manifest);
  if (!capabilities) return break_set(capabilities.error().message, {}, now);
  if (config_.num_proposals > capabilities->max_proposals()) {
    return break_set(fmt::format("--speculative-config asks for num_speculative_tokens {}, the ranks verify {}: start "
                                 "them with --num-speculative-tokens {}",
                                 config_.num_proposals, capabilities->max_proposals(), config_.num_proposals),
                     {}, now);
  }
  capabilities_ = *capabilities;
  phase_ = Phase::kOpen;
  last_failure_.clear();
  version_ += 1;
  events_.push_back({Event::Kind::kOpened, ""});
  log_info("rank_set_open", "incarnation={} slots={} max_model_len={} kv_blocks={} max_logprobs={}", incarnation_,
           capabilities_->slot_capacity, capabilities_->max_model_len, capabilities_->kv_num_blocks,
           capabilities_->max_logprobs);
}

void RankSet::on_heartbeat(Member& member, const Heartbeat& heartbeat, TimePoint now) {
  View& view = views_[member.hello.rank.value];
  view.resident_bytes = heartbeat.resident_bytes;
  view.counters = heartbeat.counters;
  if (view.state == RankState::kLoading) view.load_progress = std::clamp(heartbeat.load_progress, 0.0, 1.0);
  version_ += 1;
  if (heartbeat.state == RankState::kDraining || heartbeat.state == RankState::kLost) {
    return on_leaving(member, heartbeat.state, now);
  }
  if (phase_ != Phase::kOpen || heartbeat.incarnation != incarnation_) return;
  if (heartbeat.busy_for_ms > config_.step_limit.count()) {
    break_set(fmt::format("rank {} hangs: busy in one step for {} ms, the limit is {} ms", member.hello.rank.value,
                          heartbeat.busy_for_ms, config_.step_limit.count()),
              {member.hello.rank}, now);
  }
}

/// It takes no more submissions, so without our Drain the set is at its end: what runs could not be finished.
void RankSet::on_leaving(Member& member, RankState state, TimePoint now) {
  const Rank rank = member.hello.rank;
  if (!member.leaving_since) member.leaving_since = now;
  if (phase_ == Phase::kDraining) {
    // Its last word; a process that we can watch still has to end.
    if (state == RankState::kLost && !member.watch.watching()) member.gone = true;
    views_[rank.value].state = state;
  } else if (phase_ == Phase::kGathering) {
    log_info("rank_left", "rank={} reason=\"it was told to\"", rank.value);
    views_[rank.value].state = RankState::kLost;
    member = Member{};
  }
}

void RankSet::on_fault(Rank rank, const Fault& fault, TimePoint now) {
  if (fault.incarnation != incarnation_) return;
  look_for_losses(now);  // a rank that died is why the others fault; then the set is broken already
  fail(fmt::format("rank {} reports a fault: {}", rank.value, fault.message), std::nullopt, now);
}

void RankSet::answer_from_store(Result<std::vector<BootstrapStore::Answer>> answers, TimePoint now) {
  if (!answers) return fail(answers.error().message, std::nullopt, now);
  for (const auto& answer : *answers) (void)send_(answer.identity, answer.value);
}

void RankSet::fail(const std::string& reason, std::optional<Rank> lost, TimePoint now) {
  if (phase_ != Phase::kLoading && phase_ != Phase::kOpen) return;
  break_set(reason, lost ? std::vector{*lost} : std::vector<Rank>{}, now);
}

/// The member leaves the set; it is followed until it is gone.
void RankSet::let_go(Member& member, TimePoint now) {
  remember(former_, member.identity);
  views_[member.hello.rank.value].state = RankState::kLost;
  leavers_.push_back({std::move(member.identity), std::move(member.watch), now + config_.abort_grace});
  member = Member{};
}

void RankSet::break_set(const std::string& reason, const std::vector<Rank>& lost, TimePoint now) {
  log_error("rank_set_broken", "incarnation={} reason=\"{}\"", incarnation_, reason);
  last_failure_ = reason;
  for (Member& member : members_) {
    if (!member.here()) continue;
    const bool is_lost = std::find(lost.begin(), lost.end(), member.hello.rank) != lost.end();
    if (is_lost) member.watch.kill();
    if (!member.leaving_since && (!is_lost || !member.watch.watching())) (void)send_(member.identity, Abort{reason});
    let_go(member, now);
  }
  identities_.clear();
  store_ = BootstrapStore();
  phase_ = Phase::kGathering;
  version_ += 1;
  events_.push_back({Event::Kind::kBroken, reason});
}

void RankSet::end_leavers(TimePoint now) {
  std::erase_if(leavers_, [&](const Leaver& leaver) {
    if (leaver.watch.ended()) return true;
    if (now < leaver.deadline) return false;
    leaver.watch.kill();
    return true;
  });
}

/// A process that we can watch is gone when it has ended; of another, only its connection can tell.
bool RankSet::is_gone(const std::string& identity, const ProcessWatch& watch) {
  return watch.watching() ? watch.ended() : !send_(identity, Heartbeat{.incarnation = incarnation_}).ok();
}

void RankSet::look_for_losses(TimePoint now) {
  std::vector<Rank> lost, leaving;
  std::string reason;
  for (Member& member : members_) {
    if (!member.here() || member.gone) continue;
    const bool ended = phase_ == Phase::kDraining ? is_gone(member.identity, member.watch) : member.watch.ended();
    const bool silent = now - member.last_seen > config_.heartbeat_limit;
    const int rank = member.hello.rank.value;
    if (!ended && member.leaving_since && now - *member.leaving_since > kFaultFollows) leaving.push_back(Rank(rank));
    if (!ended && !silent) continue;
    const std::string what =
        ended ? fmt::format("rank {} (pid {}) ended", rank, member.hello.pid)
              : fmt::format("rank {} (pid {}) is silent for {} ms, the limit is {} ms", rank, member.hello.pid,
                            milliseconds(now - member.last_seen), config_.heartbeat_limit.count());
    if (phase_ == Phase::kDraining) {
      member.gone = true;
      views_[rank].state = RankState::kLost;
      version_ += 1;
    } else if (phase_ == Phase::kGathering) {  // its place is free again; the others go on waiting
      log_warning("rank_left", "rank={} reason=\"{}\"", rank, what);
      member.watch.kill();
      views_[rank].state = RankState::kLost;
      member = Member{};  // not among the former: one that was only slow may say Hello again
      version_ += 1;
    } else {
      lost.push_back(member.hello.rank);
      reason += (reason.empty() ? "" : ", ") + what;
    }
  }
  const bool serving = phase_ == Phase::kLoading || phase_ == Phase::kOpen;
  if (!lost.empty()) {
    break_set(reason, lost, now);
  } else if (!leaving.empty() && serving) {
    break_set(fmt::format("rank {} was told to leave", leaving[0].value), {}, now);
  }
}

void RankSet::tick(TimePoint now) {
  // When we ourselves did not run (stopped, starved), the ranks' silence is ours, not theirs.
  if (last_tick_ != TimePoint{} && now - last_tick_ > config_.heartbeat_limit / 2) {
    for (Member& member : members_) member.last_seen = now;
  }
  last_tick_ = now;
  end_leavers(now);
  look_for_losses(now);
}

void RankSet::drain(TimePoint) {
  phase_ = Phase::kDraining;
  version_ += 1;
  for (Member& member : members_) {
    if (!member.here()) continue;
    views_[member.hello.rank.value].state = RankState::kDraining;
    (void)send_(member.identity, Drain{});  // unreachable: the next tick finds it gone
  }
}

void RankSet::abort_all(const std::string& reason, TimePoint now) {
  for (Member& member : members_) {
    if (!member.here()) continue;
    (void)send_(member.identity, Abort{reason});
    let_go(member, now);
  }
  identities_.clear();
  phase_ = Phase::kDraining;
  version_ += 1;
}

bool RankSet::all_gone() {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) { return !m.here() || m.gone; }) &&
         std::all_of(leavers_.begin(), leavers_.end(),
                     [&](const Leaver& leaver) { return is_gone(leaver.identity, leaver.watch); });
}

void RankSet::kill_local() {
  for (const Member& member : members_) member.watch.kill();
  for (const Leaver& leaver : leavers_) leaver.watch.kill();
  leavers_.clear();
}

}  // namespace helios
