#include "worker/rank/coordinator_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "common/base/log.h"

namespace helios {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxWaitingSubmissions = 8;  // two frames are ever in flight: more is a coordinator gone astray
constexpr size_t kMaxOutbox = 1024;
constexpr int kMaxMessagesPerTurn = 64;  // then heartbeats get their turn
constexpr auto kLongestWait = 50ms;
constexpr std::chrono::milliseconds kHelloRetry = 20ms;  // while the socket is not connected yet
constexpr auto kLastWordsLimit = 500ms;
constexpr auto kStoreRepeat = 500ms;

int64_t ms(std::chrono::steady_clock::duration d) { return std::chrono::ceil<std::chrono::milliseconds>(d).count(); }

/// Of many equal complaints, the 1st, 2nd, 4th, 8th ... are logged.
bool worth_a_line(uint64_t count) { return std::has_single_bit(count); }

}  // namespace

CoordinatorLink::CoordinatorLink(LinkConfig config, RankVitals& vitals, WakeEvent& wake)
    : config_(std::move(config)), vitals_(vitals), wake_(wake), submissions_(kMaxWaitingSubmissions) {
  last_turn_ = last_heard_ = next_hello_ = next_heartbeat_ = Clock::now();
  thread_ = std::thread([this] { run(); });
}

CoordinatorLink::~CoordinatorLink() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify();
  thread_.join();
}

std::optional<Welcome> CoordinatorLink::wait_welcome() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return welcome_ || leave_.reason != LeaveReason::kNone; });
  return leave_.reason == LeaveReason::kNone ? welcome_ : std::nullopt;
}

std::optional<Submission> CoordinatorLink::next_submission(std::chrono::milliseconds limit) {
  std::optional<Submission> submission = submissions_.pop_for(limit);
  return leave().reason == LeaveReason::kBroken ? std::nullopt : std::move(submission);
}

Leave CoordinatorLink::leave() const {
  std::lock_guard lock(mutex_);
  return leave_;
}

void CoordinatorLink::report_fault(std::string message, int exit_code) {
  std::replace(message.begin(), message.end(), '\n', ' ');  // other libraries' words: one line in the log
  {
    std::lock_guard lock(mutex_);
    if (leave_.reason == LeaveReason::kBroken || std::exchange(fault_reported_, true)) return;
    fault_exit_code_ = exit_code;
  }
  log_error("rank_fault", "rank={} message=\"{}\"", config_.hello.rank.value, message);
  send(Fault{vitals_.incarnation(), message});
  start_leaving(LeaveReason::kBroken, message);
}

int CoordinatorLink::exit_code() const {
  if (config_.termination_requested && config_.termination_requested()) return kExitDrained;
  std::lock_guard lock(mutex_);
  return leave_.reason == LeaveReason::kBroken ? fault_exit_code_ : kExitDrained;
}

void CoordinatorLink::send(const ControlMessage& message) { enqueue(MessageKind::kControl, encode_control(message)); }

void CoordinatorLink::send(const Completion& completion) {
  enqueue(MessageKind::kCompletion, encode_completion(completion));
}

void CoordinatorLink::enqueue(MessageKind kind, std::string bytes) {
  bool full = false;
  {
    std::lock_guard lock(mutex_);
    full = outbox_.size() >= kMaxOutbox;
    if (!full) outbox_.push_back({std::string(1, static_cast<char>(kind)), std::move(bytes)});
  }
  if (full) start_leaving(LeaveReason::kBroken, "the coordinator takes no messages");
  wake_.notify();
}

void CoordinatorLink::store_set(const std::string& key, const std::string& value) { send(StoreSet{key, value}); }

std::string CoordinatorLink::store_get(const std::string& key, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::unique_lock lock(mutex_);
  values_[key] = std::nullopt;
  while (leave_.reason == LeaveReason::kNone && Clock::now() < deadline) {
    lock.unlock();
    send(StoreGet{key});
    lock.lock();
    const auto until = std::min<Clock::time_point>(deadline, Clock::now() + kStoreRepeat);
    changed_.wait_until(lock, until, [&] { return values_[key] || leave_.reason != LeaveReason::kNone; });
    if (values_[key]) {
      std::string value = *std::move(values_[key]);
      values_.erase(key);
      return value;
    }
  }
  values_.erase(key);
  if (leave_.reason != LeaveReason::kNone) throw std::runtime_error("the rank leaves: " + leave_.why);
  throw std::runtime_error(fmt::format("no value for {} within {} ms", key, limit.count()));
}

void CoordinatorLink::attach(Communicator* communicator) {
  std::lock_guard lock(mutex_);
  communicator_ = communicator;
  if (communicator_ && leave_.reason == LeaveReason::kBroken) communicator_->abort(leave_.why);
}

void CoordinatorLink::start_leaving(LeaveReason reason, const std::string& why) {
  bool fault = false;  // has its own line in the log
  {
    std::lock_guard lock(mutex_);
    if (reason <= leave_.reason) return;
    fault = reason == LeaveReason::kBroken && fault_reported_;
    const bool terminated = leave_.reason == LeaveReason::kTerminated;
    leave_ = {reason, why};
    if (reason >= LeaveReason::kTerminated && !terminated) leave_deadline_ = Clock::now() + config_.leave_limit;
    if (reason == LeaveReason::kBroken && communicator_) communicator_->abort(why);
  }
  vitals_.advance_state(RankState::kDraining);
  if (!fault) log_info("rank_leaves", "rank={} reason=\"{}\"", config_.hello.rank.value, why);
  submissions_.close();
  changed_.notify_all();
  wake_.notify();
}

void CoordinatorLink::run() {
  ZmqContext context;
  ZmqSocket socket =
      ZmqSocket::dealer(context, fmt::format("rank-{}-{:016x}", config_.hello.rank.value, config_.hello.life));
  if (config_.key) socket.encrypt(*config_.key);
  if (Status connected = socket.connect(config_.endpoint); !connected.ok()) {
    start_leaving(LeaveReason::kBroken, connected.error().message);
  }
  for (bool stop = false; !stop;) {
    turn(socket);
    std::lock_guard lock(mutex_);
    stop = stop_;
  }
  last_words(socket);
}

void CoordinatorLink::turn(ZmqSocket& socket) {
  const auto now = Clock::now();
  vitals_.link_turns();
  watch_the_clock(now);
  say_hello_and_heartbeat(socket, now);
  flush(socket);
  ZmqSocket* const sockets[] = {&socket};
  const auto due = std::min(next_heartbeat_, next_hello_);
  const auto until_due = std::chrono::milliseconds(std::max<int64_t>(0, ms(due - Clock::now())));
  if (zmq_wait(sockets, wake_.fd(), std::min<std::chrono::milliseconds>(kLongestWait, until_due))) {
    receive(socket);
  }
}

void CoordinatorLink::watch_the_clock(Clock::time_point now) {
  if (config_.termination_requested && config_.termination_requested()) {
    start_leaving(LeaveReason::kTerminated, "terminated by a signal");
  }
  // When this thread did not run (a stopped process, a starved machine), the silence was ours.
  if (now - last_turn_ > config_.silence_limit / 2) last_heard_ = now;
  last_turn_ = now;
  const auto limit = ever_heard_ ? config_.silence_limit : config_.first_contact_limit;
  if (now - last_heard_ > limit) {
    start_leaving(LeaveReason::kBroken,
                  fmt::format("the coordinator at {} is silent for {} ms", config_.endpoint, limit.count()));
  }
  {
    std::lock_guard lock(mutex_);
    if (!leave_deadline_ || now < *leave_deadline_) return;
    leave_deadline_.reset();
  }
  log_warning("rank_ends_unfinished", "rank={} limit_ms={} exit_code={}", config_.hello.rank.value,
              config_.leave_limit.count(), exit_code());
  if (config_.end_process) config_.end_process(exit_code());
}

Heartbeat CoordinatorLink::heartbeat() const {
  const RankVitals::Steps steps = vitals_.steps();
  std::vector<CounterValue> counters;
  for (Executor::Counter& counter : vitals_.counters()) {
    if (counters.size() < kMaxCounters) counters.push_back({std::move(counter.name), counter.value});
  }
  return {.incarnation = vitals_.incarnation(),
          .state = vitals_.state(),
          .last_sequence = steps.last_sequence,
          .busy_for_ms = steps.busy_for.count(),
          .resident_bytes = resident_bytes(),
          .load_progress = std::clamp(vitals_.load_progress(), 0.0, 1.0),
          .counters = std::move(counters)};
}

void CoordinatorLink::say_hello_and_heartbeat(ZmqSocket& socket, Clock::time_point now) {
  bool welcomed;
  {
    std::lock_guard lock(mutex_);
    welcomed = welcome_.has_value() || leave_.reason != LeaveReason::kNone;
  }
  if (welcomed) next_hello_ = Clock::time_point::max();
  if (now >= next_hello_) {
    const bool sent = send_now(socket, MessageKind::kControl, encode_control(config_.hello));
    next_hello_ = now + (sent ? config_.hello_interval : kHelloRetry);
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + config_.heartbeat_interval;
    if (send_now(socket, MessageKind::kControl, encode_control(heartbeat()))) ++vitals_.heartbeats_sent;
  }
}

bool CoordinatorLink::send_now(ZmqSocket& socket, MessageKind kind, std::string bytes) {
  const std::array<std::string, 2> frames = {std::string(1, static_cast<char>(kind)), std::move(bytes)};
  return socket.send("", frames).ok();  // not there now: the next one will tell
}

void CoordinatorLink::flush(ZmqSocket& socket) {
  std::unique_lock lock(mutex_);
  while (!outbox_.empty()) {
    const std::array<std::string, 2> frames = std::move(outbox_.front());
    outbox_.pop_front();
    lock.unlock();
    const bool sent = socket.send("", frames).ok();
    lock.lock();
    if (!sent) {
      outbox_.push_front(frames);
      return;
    }
    if (frames[0][0] == static_cast<char>(MessageKind::kCompletion)) ++vitals_.completions_sent;
  }
}

void CoordinatorLink::receive(ZmqSocket& socket) {
  for (int i = 0; i < kMaxMessagesPerTurn; ++i) {
    const std::optional<ZmqMessage> message = socket.try_receive();
    if (!message) return;
    on_message(*message);
  }
}

void CoordinatorLink::on_message(const ZmqMessage& message) {
  if (message.frames.size() != 2 || message.frames[0].size() != 1) {
    return refuse(fmt::format("{} frames, expected a kind byte and a message", message.frames.size()));
  }
  const auto bytes = std::as_bytes(std::span(message.frames[1]));
  switch (static_cast<MessageKind>(message.frames[0][0])) {
    case MessageKind::kControl: {
      Result<ControlMessage> control = decode_control(bytes);
      return control.ok() ? on_control(*std::move(control)) : refuse(control.error().message);
    }
    case MessageKind::kSubmission: {
      Result<Submission> submission = decode_submission(bytes);
      return submission.ok() ? on_submission(*std::move(submission)) : refuse(submission.error().message);
    }
    case MessageKind::kCompletion:
      break;
  }
  refuse(fmt::format("message kind {}", static_cast<int>(message.frames[0][0])));
}

void CoordinatorLink::refuse(const std::string& what) {
  const uint64_t count = ++vitals_.messages_refused;
  if (!worth_a_line(count)) return;
  log_warning("message_refused", "rank={} count={} reason=\"{}\"", config_.hello.rank.value, count, what);
}

void CoordinatorLink::on_control(ControlMessage message) {
  last_heard_ = Clock::now();
  ever_heard_ = true;
  vitals_.coordinator_heard();
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (const auto* welcome = std::get_if<Welcome>(&message)) return on_welcome(*welcome);
  if (std::holds_alternative<Drain>(message)) return start_leaving(LeaveReason::kDrain, "drained by the coordinator");
  if (const auto* abort = std::get_if<Abort>(&message)) {
    return start_leaving(LeaveReason::kBroken, "aborted by the coordinator: " + abort->reason);
  }
  if (auto* stored = std::get_if<StoreValue>(&message)) {
    std::lock_guard lock(mutex_);
    if (const auto it = values_.find(stored->key); it != values_.end()) it->second = std::move(stored->value);
    changed_.notify_all();
    return;
  }
  refuse(fmt::format("control message {} is a rank's, not the coordinator's", message.index()));
}

void CoordinatorLink::on_welcome(const Welcome& welcome) {
  std::string trouble;
  {
    std::lock_guard lock(mutex_);
    if (!welcome_ && welcome.world_size == config_.hello.world_size) {
      welcome_ = welcome;
      vitals_.set_incarnation(welcome.incarnation);
      changed_.notify_all();
      return;
    }
    if (welcome_ == welcome) return;
    trouble = welcome_
                  ? fmt::format("welcomed to incarnation {} while in {}", welcome.incarnation, welcome_->incarnation)
                  : fmt::format("welcomed to a set of {} ranks, started for {}", welcome.world_size,
                                config_.hello.world_size);
  }
  start_leaving(LeaveReason::kBroken, trouble);
}

void CoordinatorLink::on_submission(Submission submission) {
  last_heard_ = Clock::now();
  vitals_.coordinator_heard();
  if (submissions_.push(std::move(submission)) || submissions_.closed()) return;
  start_leaving(LeaveReason::kBroken, fmt::format("more than {} submissions waiting", kMaxWaitingSubmissions));
}

void CoordinatorLink::last_words(ZmqSocket& socket) {
  const auto deadline = Clock::now() + kLastWordsLimit;
  ZmqSocket* const none[] = {&socket};
  for (flush(socket); Clock::now() < deadline; flush(socket)) {
    {
      std::lock_guard lock(mutex_);
      if (outbox_.empty() || !ever_heard_) break;
    }
    zmq_wait(none, -1, 10ms);
    receive(socket);  // or the wait would not wait
  }
  Heartbeat goodbye = heartbeat();
  goodbye.state = RankState::kLost;
  send_now(socket, MessageKind::kControl, encode_control(goodbye));
  socket.set_linger(kLastWordsLimit);
}

}  // namespace helios
