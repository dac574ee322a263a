// The rank's side of the conversation with the coordinator: one DEALER socket on a thread of its own.
//
// Heartbeats must go out and an abort must come in while the rank thread loads weights, computes, or waits in an
// exchange; so this thread does nothing else, and is the one that ends the process when the others do not come to an
// end in time. The conversation is described in common/contract/control.h.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/bounded_queue.h"
#include "common/contract/completion.h"
#include "common/contract/control.h"
#include "common/contract/submission.h"
#include "common/net/wake_event.h"
#include "common/net/zmq_socket.h"
#include "common/wire/codec.h"
#include "worker/collective/communicator.h"
#include "worker/rank/drain.h"
#include "worker/rank/rank_vitals.h"

namespace helios {

struct LinkConfig {
  std::string endpoint;
  std::optional<ClusterKey> key;  // of the cluster
  Hello hello;
  std::chrono::milliseconds heartbeat_interval{100};
  std::chrono::milliseconds hello_interval{200};
  std::chrono::milliseconds silence_limit{5000};
  std::chrono::milliseconds first_contact_limit{60000};
  std::chrono::milliseconds leave_limit{1000};  // for the other threads, once the rank was terminated or its set broke

  /// Polled each turn: were we asked to end? And how to end when the other threads do not.
  std::function<bool()> termination_requested;
  std::function<void(int exit_code)> end_process;
};

/// Why a rank stops taking submissions. Ordered: a later one may follow an earlier one, never the reverse.
enum class LeaveReason {
  kNone,
  kDrain,       // finish what was taken, however long it takes
  kTerminated,  // finish what was taken, within leave_limit
  kBroken,      // aborted, silent, or out of step: leave any exchange at once
};

struct Leave {
  LeaveReason reason = LeaveReason::kNone;
  std::string why;
};

class CoordinatorLink {
 public:
  /// Starts the thread. `wake` ends its wait: signals and send() use it. All references outlive the link.
  CoordinatorLink(LinkConfig config, RankVitals& vitals, WakeEvent& wake);
  /// Says the last words (at most half a second), then joins.
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  /// Blocks. Empty when the rank leaves before it was welcomed.
  std::optional<Welcome> wait_welcome();

  /// Empty at the limit, or when there will be none any more: see leave(). After kDrain and kTerminated those that
  /// arrived before are still handed out; after kBroken none.
  std::optional<Submission> next_submission(std::chrono::milliseconds limit);

  Leave leave() const;
  /// From any thread: the rank cannot go on. Tells the coordinator, once, and aborts the exchanges. Nothing when the
  /// rank leaves in a hurry anyway: what fails then is the consequence, not the cause.
  void report_fault(std::string message, int exit_code = kExitRestart);
  /// How the process ends: 0 when it was drained or terminated, else why not.
  int exit_code() const;

  /// Any thread; delivered in order, as soon as the coordinator can be reached.
  void send(const ControlMessage& message);
  void send(const Completion& completion);

  /// The group's bootstrap. Throw std::runtime_error when the rank leaves or the limit passes.
  void store_set(const std::string& key, const std::string& value);
  std::string store_get(const std::string& key, std::chrono::milliseconds limit);

  /// Aborted when the set breaks; at once if it is broken already. Call with null before destroying the communicator.
  void attach(Communicator* communicator);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void turn(ZmqSocket& socket);
  void say_hello_and_heartbeat(ZmqSocket& socket, Clock::time_point now);
  void flush(ZmqSocket& socket);
  void receive(ZmqSocket& socket);
  void on_message(const ZmqMessage& message);
  void on_control(ControlMessage message);
  void on_welcome(const Welcome& welcome);
  void on_submission(Submission submission);
  void refuse(const std::string& what);
  void watch_the_clock(Clock::time_point now);
  void last_words(ZmqSocket& socket);
  void start_leaving(LeaveReason reason, const std::string& why);
  void enqueue(MessageKind kind, std::string bytes);
  bool send_now(ZmqSocket& socket, MessageKind kind, std::string bytes);
  Heartbeat heartbeat() const;

  const LinkConfig config_;
  RankVitals& vitals_;
  WakeEvent& wake_;
  BoundedQueue<Submission> submissions_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // welcome_, values_, leave_
  std::optional<Welcome> welcome_;
  std::map<std::string, std::optional<std::string>> values_;  // keys that somebody waits for
  std::deque<std::array<std::string, 2>> outbox_;
  Leave leave_;
  bool fault_reported_ = false;
  int fault_exit_code_ = kExitRestart;
  std::optional<Clock::time_point> leave_deadline_;
  Communicator* communicator_ = nullptr;
  bool stop_ = false;

  // The link thread's own.
  Clock::time_point last_turn_, last_heard_, next_hello_, next_heartbeat_;
  bool ever_heard_ = false;

  std::thread thread_;
};

}  // namespace helios
