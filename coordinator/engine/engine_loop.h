// The engine thread's loop: receive, take new requests, plan, submit; decode completions, post token events.
//
// Private to coordinator/engine; engine.h is the door. Members under "engine thread" are touched by nobody else; the
// others are the inbox, the published status and the requests to end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/net/zmq_socket.h"
#include "coordinator/completion/lane_decoder.h"
#include "coordinator/completion/prompt_score_decoder.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/request_inbox.h"
#include "coordinator/engine/sequence_pipe.h"
#include "coordinator/engine/token_mask.h"
#include "coordinator/scheduler/scheduler.h"
#include "coordinator/submission/frame_ledger.h"
#include "coordinator/submission/rank_link.h"
#include "coordinator/submission/rank_set.h"

namespace helios {

class EngineLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  EngineLoop(EngineConfig config, EngineObserver* observer);
  ~EngineLoop();

  /// Starts the thread and waits until it has bound. Returns the resolved endpoint.
  Result<std::string> start();
  Result<std::vector<std::shared_ptr<SequenceStream>>> submit(std::vector<SequenceRequest> requests, Notify notify);
  EngineStatus status() const;
  void drain(std::chrono::milliseconds limit);
  void stop();
  const std::string& endpoint() const { return endpoint_; }

 private:
  static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

  /// A sequence that has not ended: waiting, running, or parked while ranks restart.
  struct ActiveSequence {
    std::shared_ptr<SequencePipe> pipe;
    std::shared_ptr<StreamWaiter> waiter;
    std::shared_ptr<TokenMask> mask;
    int32_t num_logprobs = 0;
    int32_t num_prompt_logprobs = 0;
    bool logprobs = false;
    int64_t prompt_tokens = 0;
    int64_t prompt_prefilled = 0;  // of them, in the KV cache at some time
    int64_t generated = 0;
    bool started = false;  // has, or had, a slot; it may wait again after a preemption
    TimePoint arrived, admitted{}, first_token{}, last_token{};
  };
  using ActiveMap = std::unordered_map<RequestId, ActiveSequence>;
  enum class Outcome { kFinished, kCancelled, kFailed };

  void run();
  void turn();

  // Messages.
  void receive();
  bool on_completion(const std::string& identity, Completion completion);
  void decode_frame(const FrameInFlight& frame, const Completion& completion);
  DecodedLane decode(const ActiveSequence& sequence, const FrameInFlight& frame, size_t lane,
                     const Completion& completion) const;
  Result<PromptScores> decode_scores(const ActiveSequence& sequence, const LedgerLane& lane, int64_t first_row,
                                     const Completion& completion) const;
  int64_t note_decoded(ActiveSequence& sequence, const LedgerLane& lane, const DecodedLane& decoded);
  int64_t deliver(ActiveMap::iterator it, std::optional<PromptScores> scores, DecodedLane lane, TimePoint now);
  void observe_token(ActiveSequence& sequence, TimePoint now);
  void observe_gaps();

  // The rank set's fate.
  void follow_rank_set();
  void on_opened();
  void on_broken(const std::string& reason);
  void check_overdue_frame(TimePoint now);
  void expire_parked(TimePoint now);

  // Requests.
  void take_inbox();
  void enqueue(RequestId id, RequestSpec spec);
  std::optional<std::vector<std::vector<uint32_t>>> find_masks(const Decision& decision);
  void mark_admitted(const Decision& decision, TimePoint now);
  void step();
  void resume_paused();
  void fail_sequence(ActiveMap::iterator it, Error error);
  void end_sequence(ActiveMap::iterator it, Outcome outcome, FinishCode finish);
  void fail_all(const Error& error);
  void touch(const std::shared_ptr<StreamWaiter>& waiter);
  void notify_touched();

  // The end.
  void advance_end(TimePoint now);
  void advance_stop(TimePoint now);
  void refuse_or_accept();
  void publish();
  size_t headroom() const;

  const EngineConfig config_;
  EngineObserver* const observer_;
  const std::shared_ptr<RequestInbox> inbox_;
  std::string endpoint_;
  std::atomic<uint64_t> next_id_{1};
  ZmqContext context_;
  std::thread thread_;
  std::mutex join_mutex_;

  // Requests to end, and the end itself.
  std::mutex end_mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = true;  // the thread is not running
  bool stop_requested_ = false;
  std::optional<TimePoint> drain_until_;

  // Published for status() and submit().
  mutable std::mutex status_mutex_;
  EngineStatus status_;
  std::vector<TimePoint> last_seen_;
  std::atomic<int64_t> running_{0}, waiting_again_{0};
  std::atomic<double> kv_usage_{0.0}, host_usage_{0.0};
  std::atomic<int64_t> kv_blocks_held_{0}, kv_blocks_known_{0}, frames_in_flight_{0};

  // Engine thread.
  std::optional<RankLink> link_;
  std::optional<RankSet> ranks_;
  std::optional<Scheduler> scheduler_;  // while a set is open
  std::optional<FrameLedger> ledger_;   // likewise
  ActiveMap active_;
  std::vector<std::pair<RequestId, RequestSpec>> parked_;  // queued, waiting for ranks to come back
  TimePoint parked_since_{};
  TimePoint last_tick_{};
  std::vector<RequestId> paused_;
  std::vector<std::shared_ptr<StreamWaiter>> touched_;
  Clock::duration gap_{};  // between tokens, of so many that were not observed yet
  int64_t num_gaps_ = 0;
  bool draining_ = false;
  bool ranks_told_ = false;
  bool stopping_ = false;
  TimePoint ranks_limit_{};
  bool finished_ = false;
  int64_t num_started_ = 0;
  uint64_t published_version_ = 0;
};

}  // namespace helios
