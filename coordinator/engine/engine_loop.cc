#include "coordinator/engine/engine_loop.h"

#include "common/base/check.h"
#include "common/base/host_key.h"
#include "common/base/log.h"
#include "coordinator/engine/sequence_check.h"
#include "coordinator/submission/submission_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <utility>

namespace helios {
namespace {

// How late a lost process of this host is noticed at most, when nothing else wakes the loop.
constexpr std::chrono::milliseconds kTick{50};
constexpr int kMaxMessagesPerTurn = 1024;
// How long stop() waits for the ranks to have read Abort: a rank that has not read it when the socket closes loses it.
constexpr std::chrono::milliseconds kStopLimit{500};

/// A repetition penalty counts the prompt's tokens too: each id once, sorted here on the caller's thread.
std::vector<TokenId> penalised_prompt(const SequenceRequest& request) {
  if (request.sampling.repetition_penalty == 1.0f) return {};
  std::vector<TokenId> ids = request.prompt;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

RequestSpec spec_of(SequenceRequest request) {
  request.sampling.prompt_ids = penalised_prompt(request);
  request.sampling.output_counts.clear();  // of a readmission, which the submission fills in
  const bool chosen_alone = request.logprobs && request.num_logprobs == 0 && request.logprob_token_ids.empty();
  return {.prompt = std::move(request.prompt),
          .sampling = std::move(request.sampling),
          .logprobs = request.logprobs,
          .logprob_token_ids = std::move(request.logprob_token_ids),
          .chosen_alone = chosen_alone,
          .prompt_scores = request.prompt_scores,
          .priority = request.priority,
          .cache_salt = std::move(request.cache_salt)};
}

/// Null where a sequence may say anything at any time.
std::shared_ptr<TokenMask> mask_of(TokenMask::Rules rules, SamplingParams* sampling) {
  return rules.any() ? std::make_shared<TokenMask>(std::move(rules), sampling) : nullptr;
}

}  // namespace

EngineLoop::EngineLoop(EngineConfig config, EngineObserver* observer)
    : config_(std::move(config)), observer_(observer), inbox_(std::make_shared<RequestInbox>(config_.max_waiting)) {}

EngineLoop::~EngineLoop() { stop(); }

Result<std::string> EngineLoop::start() {
  std::promise<Result<std::string>> bound;
  auto result = bound.get_future();
  thread_ = std::thread([this, bound = std::move(bound)]() mutable {
    auto link = RankLink::bind(context_, config_.rank_endpoint, config_.cluster_key);
    if (!link) return bound.set_value(link.error());
    {
      std::lock_guard lock(end_mutex_);
      ended_ = false;
    }
    endpoint_ = link->endpoint();
    link_.emplace(std::move(*link));
    RankSetConfig ranks = config_.ranks;
    ranks.num_proposals = config_.proposals.num_tokens;
    ranks_.emplace(ranks, host_key(), [this](const std::string& identity, const ControlMessage& message) {
      return link_->send_control(identity, message);
    });
    publish();  // status() says why we are not ready from the first moment
    bound.set_value(endpoint_);
    run();
  });
  return result.get();
}

Result<std::vector<std::shared_ptr<SequenceStream>>> EngineLoop::submit(std::vector<SequenceRequest> requests,
                                                                        Notify notify) {
  std::optional<Capabilities> core;
  {
    std::lock_guard lock(status_mutex_);
    core = status_.capabilities;
  }
  if (!core) return Error{Errc::kUnavailable, "no model is loaded yet"};
  const auto waiter = std::make_shared<StreamWaiter>(StreamWaiter{.notify = std::move(notify)});
  const TimePoint now = Clock::now();
  std::vector<ArrivedSequence> sequences;
  std::vector<std::shared_ptr<SequenceStream>> streams;
  for (SequenceRequest& request : requests) {
    const RequestId id(next_id_.fetch_add(1));
    auto pipe = std::make_shared<SequencePipe>(id, config_.stream_capacity, inbox_);
    const int32_t num_logprobs = request.num_logprobs, num_prompt_logprobs = request.num_prompt_logprobs;
    TokenMask::Rules rules{std::move(request.grammar), request.thinking, std::move(request.bad_words)};
    RequestSpec spec = spec_of(std::move(request));
    if (auto valid = check_sequence(*core, spec, num_logprobs, num_prompt_logprobs); !valid) return valid.error();
    auto mask = mask_of(std::move(rules), &spec.sampling);
    sequences.push_back(
        {id, std::move(spec), num_logprobs, num_prompt_logprobs, std::move(mask), pipe, waiter, now});
    streams.push_back(std::make_shared<PipeStream>(std::move(pipe)));
  }
  if (auto pushed = inbox_->push(std::move(sequences)); !pushed) return pushed.error();
  return streams;
}

void EngineLoop::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(end_mutex_);
  if (!drain_until_) drain_until_ = Clock::now() + limit;
  inbox_->wake();
  ended_changed_.wait(lock, [&] { return ended_; });
}

void EngineLoop::stop() {
  {
    std::unique_lock lock(end_mutex_);
    stop_requested_ = true;
    inbox_->wake();
    ended_changed_.wait(lock, [&] { return ended_; });
  }
  std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::run() {
  log_info("engine_started", "endpoint={} ranks={}", endpoint_, config_.ranks.world_size);
  while (!finished_) {
    link_->wait(inbox_->wake_fd(), kTick);
    turn();
  }
  inbox_->set_refusal("the server has stopped");
  take_inbox();
  fail_all(Error{Errc::kUnavailable, "the server has stopped"});
  notify_touched();
  link_.reset();
  publish();
  log_info("engine_ended", "");
  std::lock_guard lock(end_mutex_);
  ended_ = true;
  ended_changed_.notify_all();
}

void EngineLoop::turn() {
  receive();
  take_inbox();
  const TimePoint now = Clock::now();
  if (now - last_tick_ >= kTick / 5) {  // not at every step: it polls each rank's pidfd
    last_tick_ = now;
    ranks_->tick(now);
    check_overdue_frame(now);
    follow_rank_set();
  }
  expire_parked(now);
  resume_paused();
  step();
  advance_end(now);
  publish();
  notify_touched();  // last: the ranks already work on the next frame
}

/// Until nothing is there, or a frame was decoded: then the ranks get the next one before the socket is asked again.
void EngineLoop::receive() {
  bool decoded = false;
  for (int i = 0; i < kMaxMessagesPerTurn && !decoded; ++i) {
    auto received = link_->try_receive();
    if (!received) return;
    if (auto* control = std::get_if<ControlMessage>(&received->message)) {
      ranks_->on_message(received->identity, *control, Clock::now());
    } else if (auto* completion = std::get_if<Completion>(&received->message)) {
      decoded = on_completion(received->identity, std::move(*completion));
    } else if (const auto rank = ranks_->rank_of(received->identity)) {
      const Error& error = std::get<Error>(received->message);
      ranks_->fail(fmt::format("rank {} sent what is no message: {}", rank->value, error.message), rank, Clock::now());
    } else {
      log_debug("stray_message", "reason=\"{}\"", std::get<Error>(received->message).message);
    }
    follow_rank_set();  // what comes next may be of a set that is no more
  }
}

void EngineLoop::follow_rank_set() {
  while (auto event = ranks_->next_event()) {
    if (event->kind == RankSet::Event::Kind::kOpened) {
      on_opened();
    } else {
      on_broken(event->reason);
    }
  }
}

void EngineLoop::on_opened() {
  scheduler_.emplace(*ranks_->capabilities(),
                     SchedulerOptions{.prefix_cache = config_.prefix_cache, .proposals = config_.proposals});
  ledger_.emplace(config_.ranks.world_size, *ranks_->capabilities());
  for (auto& [id, spec] : std::exchange(parked_, {})) enqueue(id, std::move(spec));
  refuse_or_accept();
  publish();
  if (config_.on_ready) config_.on_ready();
}

void EngineLoop::on_broken(const std::string& reason) {
  if (scheduler_) {
    parked_ = scheduler_->take_waiting();
    parked_since_ = Clock::now();
  }
  scheduler_.reset();
  ledger_.reset();
  paused_.clear();
  refuse_or_accept();
  for (auto it = active_.begin(); it != active_.end();) {
    const auto next = std::next(it);
    if (it->second.started) fail_sequence(it, Error{Errc::kUnavailable, "the ranks are gone: " + reason});
    it = next;
  }
  publish();  // readiness is off before anybody reads of the failure
}

void EngineLoop::check_overdue_frame(TimePoint now) {
  if (!ledger_ || !ledger_->waiting_since()) return;
  const auto limit = config_.ranks.step_limit + config_.ranks.heartbeat_limit;
  if (now - *ledger_->waiting_since() <= limit) return;
  ranks_->fail(fmt::format("a submission was not completed within {} ms", limit.count()), std::nullopt, now);
}

void EngineLoop::expire_parked(TimePoint now) {
  if (parked_.empty() || scheduler_ || now - parked_since_ <= config_.restart_wait) return;
  for (const auto& [id, spec] : std::exchange(parked_, {})) {
    const auto it = active_.find(id);
    if (it != active_.end()) fail_sequence(it, Error{Errc::kUnavailable, "the ranks did not come back in time"});
  }
}

void EngineLoop::enqueue(RequestId id, RequestSpec spec) {
  const auto it = active_.find(id);
  if (it == active_.end()) return;  // cancelled while parked
  if (!scheduler_) {
    if (parked_.empty()) parked_since_ = Clock::now();
    parked_.emplace_back(id, std::move(spec));
    return;
  }
  const ActiveSequence& sequence = it->second;
  if (auto valid =
          check_sequence(scheduler_->capabilities(), spec, sequence.num_logprobs, sequence.num_prompt_logprobs);
      !valid) {
    return fail_sequence(it, valid.error());
  }
  scheduler_->enqueue(id, std::move(spec));
}

void EngineLoop::take_inbox() {
  RequestInbox::Taken taken = inbox_->take();
  for (ArrivedSequence& arrived : taken.arrived) {
    active_.emplace(arrived.id, ActiveSequence{.pipe = std::move(arrived.pipe),
                                               .waiter = std::move(arrived.waiter),
                                               .mask = std::move(arrived.mask),
                                               .num_logprobs = arrived.num_logprobs,
                                               .num_prompt_logprobs = arrived.num_prompt_logprobs,
                                               .logprobs = arrived.spec.logprobs,
                                               .prompt_tokens = static_cast<int64_t>(arrived.spec.prompt.size()),
                                               .arrived = arrived.arrived});
    enqueue(arrived.id, std::move(arrived.spec));
  }
  for (const RequestId id : taken.cancelled) {
    const auto it = active_.find(id);
    if (it != active_.end()) end_sequence(it, Outcome::kCancelled, FinishCode::kNone);
  }
}

/// A mask for each lane, empty where there is none. Nothing when a sequence has no token left to say: it has failed,
/// and the decision names it.
std::optional<std::vector<std::vector<uint32_t>>> EngineLoop::find_masks(const Decision& decision) {
  std::vector<std::vector<uint32_t>> masks(decision.lanes.size());
  for (size_t i = 0; i < masks.size(); ++i) {
    const PlannedLane& lane = decision.lanes[i];
    const auto it = active_.find(lane.request->id);
    if (!lane.samples || !it->second.mask) continue;
    auto words = it->second.mask->next(lane.request->generated(), scheduler_->capabilities().vocab_size);
    if (!words) {
      fail_sequence(it, std::move(words).error());
      return std::nullopt;
    }
    masks[i] = *std::move(words);
  }
  return masks;
}

void EngineLoop::mark_admitted(const Decision& decision, TimePoint now) {
  size_t first_time = 0;
  for (const PlannedAdmission& admission : decision.admissions) {
    ActiveSequence& sequence = active_.at(admission.request->id);
    if (sequence.started) continue;  // it was preempted
    const int64_t block_size = scheduler_->capabilities().kv_block_size;
    const int64_t cached = static_cast<int64_t>(admission.cached.size()) * block_size;
    const int64_t returning = static_cast<int64_t>(admission.returning.size()) * block_size;
    sequence.started = true;
    sequence.admitted = now;
    sequence.pipe->set_cached_tokens(cached);
    const bool looked_up = config_.prefix_cache && !admission.request->scores_left();
    if (observer_ && looked_up) observer_->on_prefix_lookup(sequence.prompt_tokens, cached - returning, returning);
    ++first_time;
  }
  num_started_ += static_cast<int64_t>(first_time);
  inbox_->no_longer_waiting(first_time);
  if (observer_ && !decision.preemptions.empty()) {
    observer_->on_preempted(static_cast<int64_t>(decision.preemptions.size()));
  }
}

void EngineLoop::step() {
  while (scheduler_ && ledger_->can_submit()) {
    const Decision decision = scheduler_->plan();
    if (decision.empty()) return;
    auto masks = find_masks(decision);
    if (!masks) continue;
    const TimePoint now = Clock::now();
    mark_admitted(decision, now);
    if (decision.lanes.empty()) {  // somebody gives way, and nobody can advance before that
      scheduler_->commit(decision);
      continue;
    }
    const FrameInFlight& frame = ledger_->begin(decision, now);
    Submission submission =
        build_submission(decision, scheduler_->capabilities(), ranks_->incarnation(), frame.sequence, frame.frame);
    for (size_t i = 0; i < masks->size(); ++i) submission.lanes[i].mask = std::move((*masks)[i]);
    CacheMoves moves = scheduler_->commit(decision);
    submission.blocks_out = std::move(moves.out);
    submission.blocks_in = std::move(moves.in);
    if (const auto failed = link_->send_submission(ranks_->identities(), submission)) {
      const Rank rank(static_cast<int32_t>(*failed));
      ranks_->fail(fmt::format("rank {} cannot be reached", rank.value), rank, now);
      follow_rank_set();
    }
  }
}

size_t EngineLoop::headroom() const {
  return static_cast<size_t>(kNumFrames) * static_cast<size_t>(scheduler_->capabilities().token_capacity);
}

void EngineLoop::resume_paused() {
  if (!scheduler_) return;
  std::erase_if(paused_, [&](RequestId id) {
    const auto it = active_.find(id);
    if (it == active_.end()) return true;
    if (it->second.pipe->is_behind(headroom())) return false;
    scheduler_->set_paused(id, false);
    return true;
  });
}

void EngineLoop::fail_sequence(ActiveMap::iterator it, Error error) {
  it->second.pipe->push(std::move(error));
  touch(it->second.waiter);
  end_sequence(it, Outcome::kFailed, FinishCode::kNone);
}

void EngineLoop::end_sequence(ActiveMap::iterator it, Outcome outcome, FinishCode finish) {
  const ActiveSequence& s = it->second;
  if (s.started) {
    num_started_ -= 1;
  } else {
    inbox_->no_longer_waiting(1);
  }
  if (observer_) {
    const TimePoint now = Clock::now();
    const bool first = s.first_token != TimePoint{};
    observer_->on_finished({.finish = finish,
                            .cancelled = outcome == Outcome::kCancelled,
                            .failed = outcome == Outcome::kFailed,
                            .prompt_tokens = s.prompt_tokens,
                            .generated_tokens = s.generated,
                            .queue_seconds = seconds((s.started ? s.admitted : now) - s.arrived),
                            .prefill_seconds = s.started ? seconds((first ? s.first_token : now) - s.admitted) : 0.0,
                            .decode_seconds = first ? seconds(s.last_token - s.first_token) : 0.0,
                            .e2e_seconds = seconds(now - s.arrived),
                            .logprobs = s.logprobs});
  }
  if (scheduler_) scheduler_->leave(it->first);
  active_.erase(it);
}

void EngineLoop::fail_all(const Error& error) {
  while (!active_.empty()) fail_sequence(active_.begin(), error);
  parked_.clear();
}

void EngineLoop::touch(const std::shared_ptr<StreamWaiter>& waiter) {
  if (waiter->notify.mark && !std::exchange(waiter->due, true)) touched_.push_back(waiter);
}

void EngineLoop::notify_touched() {
  for (const auto& waiter : touched_) {
    waiter->due = false;
    waiter->notify.mark();
  }
  for (const auto& waiter : touched_) {
    if (waiter->notify.wake) waiter->notify.wake();
  }
  touched_.clear();
}

void EngineLoop::advance_end(TimePoint now) {
  bool stop = false;
  std::optional<TimePoint> drain_until;
  {
    std::lock_guard lock(end_mutex_);
    stop = stop_requested_;
    drain_until = drain_until_;
  }
  if (stop) return advance_stop(now);
  if (!drain_until) return;
  if (!draining_) {
    draining_ = true;
    log_info("engine_draining", "sequences={}", active_.size());
    refuse_or_accept();
  }
  if (!ranks_told_) {
    if (!active_.empty() && (now >= *drain_until || !scheduler_))
      fail_all(Error{Errc::kUnavailable, "the server is shutting down"});
    if (!active_.empty()) return;
    if (ledger_ && !ledger_->idle() && now < *drain_until) return;  // frames of sequences that have left
    ranks_->drain(now);
    ranks_told_ = true;
    ranks_limit_ = now + config_.rank_drain_limit;
  }
  if (!ranks_->all_gone() && now < ranks_limit_) return;
  ranks_->kill_local();
  finished_ = true;
}

void EngineLoop::advance_stop(TimePoint now) {
  if (!stopping_) {
    stopping_ = draining_ = true;
    refuse_or_accept();
    fail_all(Error{Errc::kUnavailable, "the server has stopped"});
    ranks_->abort_all("the coordinator stops", now);
    scheduler_.reset();
    ledger_.reset();
    ranks_limit_ = now + kStopLimit;
  }
  if (!ranks_->all_gone() && now < ranks_limit_) return;
  ranks_->kill_local();
  finished_ = true;
}

void EngineLoop::refuse_or_accept() {
  if (draining_) {
    inbox_->set_refusal("the server is shutting down");
  } else {
    inbox_->set_refusal(scheduler_ ? "" : "not ready: " + ranks_->reason());
  }
}

void EngineLoop::publish() {
  const int64_t waiting_again = scheduler_ ? scheduler_->num_waiting_again() : 0;
  running_.store(num_started_ - waiting_again, std::memory_order_relaxed);
  waiting_again_.store(waiting_again, std::memory_order_relaxed);
  const BlockPool* blocks = scheduler_ ? &scheduler_->blocks() : nullptr;
  const TieredCache* cache = scheduler_ ? &scheduler_->cache() : nullptr;
  const int64_t held = blocks ? blocks->num_blocks() - blocks->num_free() : 0;
  kv_usage_.store(blocks ? static_cast<double>(held) / blocks->num_blocks() : 0.0, std::memory_order_relaxed);
  kv_blocks_held_.store(held, std::memory_order_relaxed);
  kv_blocks_known_.store(cache ? cache->prefixes().size() - cache->host_used() : 0, std::memory_order_relaxed);
  frames_in_flight_.store(ledger_ ? ledger_->num_in_flight() : 0, std::memory_order_relaxed);
  const int32_t host_blocks = scheduler_ ? scheduler_->capabilities().host_num_blocks : 0;
  host_usage_.store(host_blocks > 0 ? static_cast<double>(cache->host_used()) / host_blocks : 0.0,
                    std::memory_order_relaxed);
  const uint64_t version = 2 * ranks_->version() + (draining_ ? 1 : 0);
  if (version == published_version_ && !finished_) return;
  published_version_ = version;
  EngineStatus status{.ready = ranks_->phase() == RankSet::Phase::kOpen && !draining_ && !finished_,
                      .draining = draining_,
                      .reason = finished_   ? "stopped"
                                : draining_ ? "draining"
                                            : ranks_->reason(),
                      .incarnation = ranks_->incarnation()};
  if (ranks_->capabilities()) status.capabilities = *ranks_->capabilities();
  std::vector<TimePoint> last_seen;
  for (const RankSet::View& view : ranks_->views()) {
    status.ranks.push_back({.rank = view.rank,
                            .pid = view.pid,
                            .state = view.state,
                            .device = view.device,
                            .host_name = view.host_name,
                            .status_url = view.status_url,
                            .resident_bytes = view.resident_bytes,
                            .load_progress = view.load_progress,
                            .memory = view.memory,
                            .counters = view.counters});
    last_seen.push_back(view.last_seen);
  }
  std::lock_guard lock(status_mutex_);
  status_ = std::move(status);
  last_seen_ = std::move(last_seen);
}

EngineStatus EngineLoop::status() const {
  EngineStatus out;
  {
    std::lock_guard lock(status_mutex_);
    out = status_;
    const TimePoint now = Clock::now();
    for (size_t i = 0; i < out.ranks.size(); ++i) {
      if (last_seen_[i] != TimePoint{}) out.ranks[i].heartbeat_age_s = seconds(now - last_seen_[i]);
    }
  }
  out.running = running_.load(std::memory_order_relaxed);
  out.waiting = static_cast<int64_t>(inbox_->waiting()) + waiting_again_.load(std::memory_order_relaxed);
  out.kv_cache_usage = kv_usage_.load(std::memory_order_relaxed);
  out.kv_blocks_held = kv_blocks_held_.load(std::memory_order_relaxed);
  out.kv_blocks_known = kv_blocks_known_.load(std::memory_order_relaxed);
  out.frames_in_flight = frames_in_flight_.load(std::memory_order_relaxed);
  out.host_tier_usage = host_usage_.load(std::memory_order_relaxed);
  return out;
}

}  // namespace helios
