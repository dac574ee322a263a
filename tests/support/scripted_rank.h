// A rank for tests of the coordinator: speaks the real protocol over a real socket, computes a toy model.
//
// Its "device" keeps the state that a slot has on a real one (epoch, last token, position, what is left) and a KV cache
// of token ids, written and read through the slot's block table. So prefill, decode ahead of known tokens, proposals,
// stale lanes and finishes behave as they should, and a block that is shared, reused or restored wrongly gives wrong
// tokens. Tokens and logprobs are arithmetic: toy_token() and toy_logprob() say which, so a test knows what must
// arrive. It shares no code with the worker. A test can make it die, fall silent, report a fault, or spoil a completion
// before it is sent.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/contract/completion.h"
#include "common/contract/control.h"
#include "common/contract/submission.h"
#include "common/net/zmq_socket.h"
#include "common/wire/codec.h"
#include "tests/support/small_core.h"

namespace helios::testing {

/// The token that follows a prefix; toy_hash() over its tokens, in order, from toy_hash's initial value on. With a
/// `period` the text mostly says again what stood that many tokens ago.
inline uint64_t toy_hash(uint64_t hash, TokenId token) {
  return (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
}
inline TokenId toy_token(uint64_t prefix_hash, uint64_t seed, int64_t vocab_size) {
  const uint64_t x = prefix_hash ^ seed;
  return static_cast<TokenId>((x ^ (x >> 33)) % static_cast<uint64_t>(vocab_size));
}
inline TokenId toy_token(std::span<const TokenId> prefix, uint64_t seed, int64_t vocab_size, size_t period) {
  uint64_t hash = 0;
  for (const TokenId token : prefix) hash = toy_hash(hash, token);
  if (period > 0 && prefix.size() >= period && (hash >> 20) % 4 != 0) return prefix[prefix.size() - period];
  return toy_token(hash, seed, vocab_size);
}
inline float toy_logprob(TokenId id, int64_t position) {
  return -static_cast<float>(1 + (id * 7 + position) % 13) / 8.0f;
}

/// Of a prompt token, as a prompt score row has it.
inline int32_t toy_rank(TokenId id, int64_t position) { return 1 + static_cast<int32_t>((id + position) % 5); }

struct ScriptedRankOptions {
  std::string endpoint;
  int rank = 0;
  int world_size = 1;
  SmallCoreOptions core;
  std::string host_key = "scripted/rank";  // not this host's: threads cannot be watched by pid
  int64_t pid = 1;
  std::chrono::milliseconds step_time{0};
  bool ignores_masks = false;
  size_t period = 0;  // of the toy model's text
  /// Sees every completion before it is sent; runs on the rank's thread.
  std::function<void(const Submission&, Completion&)> spoil;
};

class ScriptedRank {
 public:
  explicit ScriptedRank(ScriptedRankOptions options)
      : options_(std::move(options)), life_(next_life()), thread_([this] { run(); }) {}
  ~ScriptedRank() { die(); }

  /// Leaves without a word.
  void die() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// Stays connected, says and does nothing.
  void hang() { hung_ = true; }
  /// Says in its heartbeats that the current step has run for so long.
  void pretend_busy(int64_t ms) { busy_ms_ = ms; }
  /// Sends a message of the test's making.
  void say(ControlMessage message) {
    std::lock_guard lock(mutex_);
    outbox_.push_back(std::move(message));
  }

  uint32_t incarnation() const { return incarnation_; }
  bool aborted() const { return aborted_; }
  bool drained() const { return drained_; }
  int echoes() const { return echoes_; }
  /// Submissions received and not yet answered, at most so far.
  int max_backlog() const { return max_backlog_; }
  std::vector<Submission> submissions() const {
    std::lock_guard lock(mutex_);
    return submissions_;
  }
  std::vector<StoreValue> store_values() const {
    std::lock_guard lock(mutex_);
    return store_values_;
  }
  std::string collective() const {
    std::lock_guard lock(mutex_);
    return collective_;
  }

 private:
  struct Slot {
    Epoch epoch;
    SamplingParams sampling;
    TokenId last = -1;
    int32_t length = 0;          // positions in the KV cache
    std::vector<int32_t> table;  // blocks; -1: none
    int32_t generated = 0;
    bool finished = true;
  };
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBeat{30};

  static uint64_t next_life() {
    static std::atomic<uint64_t> life{1};
    return life++;
  }

  void run() {
    ZmqContext context;
    ZmqSocket socket =
        ZmqSocket::dealer(context, "rank-" + std::to_string(options_.rank) + "-" + std::to_string(life_));
    if (!socket.connect(options_.endpoint)) return;
    slots_.resize(options_.core.slot_capacity);
    cache_.assign(static_cast<size_t>(options_.core.kv_num_blocks) * options_.core.kv_block_size, -1);
    host_.assign(static_cast<size_t>(options_.core.host_num_blocks) * options_.core.kv_block_size, -1);
    Clock::time_point next_beat{};
    while (!stop_ && !aborted_ && !drained_) {
      ZmqSocket* const sockets[] = {&socket};
      zmq_wait(sockets, -1, std::chrono::milliseconds(work_.empty() ? 5 : 0));
      if (hung_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      while (auto message = socket.try_receive()) on_message(*message);
      if (Clock::now() >= next_beat) {
        next_beat = Clock::now() + kBeat;
        beat(socket);
      }
      send_outbox(socket);
      work_one(socket);
    }
  }

  void send(ZmqSocket& socket, MessageKind kind, std::string bytes) {
    const std::string frames[] = {std::string(1, static_cast<char>(kind)), std::move(bytes)};
    (void)socket.send("", frames);
  }
  void send(ZmqSocket& socket, const ControlMessage& message) {
    send(socket, MessageKind::kControl, encode_control(message));
  }

  void beat(ZmqSocket& socket) {
    if (incarnation_ == 0) {
      send(socket, Hello{.rank = Rank(options_.rank),
                         .world_size = options_.world_size,
                         .life = life_,
                         .pid = options_.pid,
                         .host_key = options_.host_key,
                         .host_name = "scripted",
                         .device = "cpu"});
    }
    send(socket, Heartbeat{.incarnation = incarnation_, .state = RankState::kReady, .busy_for_ms = busy_ms_});
  }

  void send_outbox(ZmqSocket& socket) {
    std::deque<ControlMessage> outbox;
    {
      std::lock_guard lock(mutex_);
      outbox.swap(outbox_);
    }
    for (const ControlMessage& message : outbox) send(socket, message);
  }

  void on_message(const ZmqMessage& message) {
    if (message.frames.size() != 2 || message.frames[0].size() != 1) return;
    const auto bytes = std::as_bytes(std::span(message.frames.at(1)));
    if (static_cast<MessageKind>(message.frames.at(0).at(0)) == MessageKind::kSubmission) {
      auto submission = decode_submission(bytes);
      if (!submission || submission->incarnation != incarnation_ || faulty_) return;  // refused, as a real rank does
      std::lock_guard lock(mutex_);
      if (submission->sequence.value != ++last_sequence_) {
        faulty_ = true;
        outbox_.push_back(Fault{incarnation_, "sequence gap: submission " + std::to_string(submission->sequence.value) +
                                                  " after " + std::to_string(last_sequence_ - 1)});
        return;
      }
      submissions_.push_back(*submission);
      work_.push_back(*std::move(submission));
      max_backlog_ = std::max(max_backlog_.load(), static_cast<int>(work_.size()));
      return;
    }
    auto control = decode_control(bytes);
    if (!control) return;
    if (const auto* welcome = std::get_if<Welcome>(&*control)) {
      incarnation_ = welcome->incarnation;
      std::lock_guard lock(mutex_);
      collective_ = welcome->collective;
      outbox_.push_back(Ready{welcome->incarnation, small_core_manifest(options_.core)});
    } else if (std::holds_alternative<Abort>(*control)) {
      aborted_ = true;
    } else if (std::holds_alternative<Drain>(*control)) {
      drained_ = true;
    } else if (std::holds_alternative<Heartbeat>(*control)) {
      ++echoes_;
    } else if (auto* value = std::get_if<StoreValue>(&*control)) {
      std::lock_guard lock(mutex_);
      store_values_.push_back(std::move(*value));
    }
  }

  void work_one(ZmqSocket& socket) {
    if (work_.empty()) return;
    if (options_.step_time.count() > 0) std::this_thread::sleep_for(options_.step_time);
    const Submission submission = std::move(work_.front());
    work_.pop_front();
    Completion completion = execute(submission);
    if (options_.spoil) options_.spoil(submission, completion);
    send(socket, MessageKind::kCompletion, encode_completion(completion));
  }

  /// From a block is taken what it held: who still reads it there gets wrong tokens.
  void move_blocks(const Submission& s) {
    const int32_t size = options_.core.kv_block_size;
    const auto move = [size](std::vector<TokenId>& to, int32_t to_block, std::vector<TokenId>& from, int32_t block) {
      for (int32_t i = 0; i < size; ++i) {
        TokenId& token = from.at(static_cast<size_t>(block) * size + i);
        to.at(static_cast<size_t>(to_block) * size + i) = std::exchange(token, -1);
      }
    };
    for (const BlockCopy& c : s.blocks_out) move(host_, c.host_block, cache_, c.block);
    for (const BlockCopy& c : s.blocks_in) move(cache_, c.block, host_, c.host_block);
  }

  Completion execute(const Submission& s) {
    move_blocks(s);
    for (const SlotAdmission& admission : s.admissions) {
      slots_.at(admission.slot.value) = Slot{.epoch = admission.epoch,
                                             .sampling = admission.sampling,
                                             .table = std::vector<int32_t>(options_.core.max_model_len, -1),
                                             .generated = admission.generated,
                                             .finished = false};
    }
    for (const BlockTableUpdate& update : s.block_updates) {
      for (size_t i = 0; i < update.blocks.size(); ++i) {
        slots_.at(update.slot.value).table.at(update.first + i) = update.blocks[i];
      }
    }
    Completion c{.incarnation = s.incarnation,
                 .sequence = s.sequence,
                 .frame = s.frame,
                 .rank = Rank(options_.rank),
                 .token_capacity = tokens_};
    for (const Lane& lane : s.lanes) {
      const int32_t slot = lane.slot.value;
      if (s.logprob_requested.at(slot) == 0) continue;
      c.width = std::max({c.width, kMaxNaturalAlternatives, s.logprob_token_id_counts.at(slot)});
    }
    for (const Lane& lane : s.lanes) execute_lane(s, lane, c);
    if (s.operation == Operation::kScoredPrefill) score(s, c);
    c.record_digest = 14695981039346656037u;
    for (const int64_t word : c.records)
      c.record_digest = (c.record_digest ^ static_cast<uint64_t>(word)) * 1099511628211u;
    if (options_.rank != 0) {
      c.records.clear();
      c.payloads.clear();
      c.prompt_rows.clear();
      c.width = 0;
    }
    return c;
  }

  void execute_lane(const Submission& s, const Lane& lane, Completion& c) {
    Slot& slot = slots_.at(lane.slot.value);
    std::vector<int64_t> record(record_words(tokens_), 0);
    record[record_word::kAbi] = kRecordAbi;
    record[record_word::kSlot] = lane.slot.value;
    record[record_word::kEpoch] = lane.epoch.value;
    record[record_word::kOperation] = static_cast<int64_t>(s.operation);
    record[record_word::kSequence] = static_cast<int64_t>(s.sequence.value);
    const bool live = slot.epoch == lane.epoch && !slot.finished;
    if (live && lane.role == LaneRole::kPrefill) {
      slot.length = lane.start;
      for (const TokenId token : lane.tokens) cached(slot, slot.length++) = token;
    } else if (live) {
      cached(slot, slot.length++) = slot.last;
      for (size_t i = 0; i < lane.tokens.size(); ++i)
        cached(slot, slot.length + static_cast<int32_t>(i)) = lane.tokens[i];
    }
    if (live && lane.samples) sample(s, lane, slot, record, c);
    record[record_word::kKvLength] = slot.length;
    c.records.insert(c.records.end(), record.begin(), record.end());
  }

  /// One token, and one more for each proposal that says the same, up to the sequence's end.
  void sample(const Submission& s, const Lane& lane, Slot& slot, std::vector<int64_t>& record, Completion& c) {
    const size_t offered = s.operation == Operation::kVerify ? lane.tokens.size() : 0;
    record[record_word::kProposalsOffered] = static_cast<int64_t>(offered);
    int64_t& emitted = record[record_word::kEmitted];
    int64_t& accepted = record[record_word::kProposalsAccepted];
    CompletionPayload all{.slot = lane.slot};
    for (bool goes_on = true; goes_on;) {
      std::vector<TokenId> prefix;
      for (int32_t position = 0; position < slot.length; ++position) prefix.push_back(cached(slot, position));
      const TokenId token =
          allowed(lane, toy_token(prefix, slot.sampling.seed, options_.core.vocab_size, options_.period));
      slot.generated += 1;
      record[record_word::kTokens + emitted] = token;
      record[record_word::kFinish] = static_cast<int64_t>(finish_of(slot, token, record));
      slot.finished = record[record_word::kFinish] != 0;
      const CompletionPayload one = payload(s, lane, token, slot.length, c.width);
      all.words.insert(all.words.end(), one.words.begin(), one.words.end());
      slot.last = token;
      const bool came_true = static_cast<size_t>(emitted) < offered && lane.tokens[emitted] == token;
      emitted += 1;
      accepted += came_true ? 1 : 0;
      goes_on = came_true && !slot.finished;
      slot.length += goes_on ? 1 : 0;
    }
    if (s.logprob_requested.at(lane.slot.value) != 0) c.payloads.push_back(std::move(all));
  }

  /// One row a prompt token, from the targets alone: a wrong target or a wrong place gives a wrong score.
  void score(const Submission& s, Completion& c) {
    size_t row = 0;
    for (const Lane& lane : s.lanes) {
      for (size_t i = 0; i < lane.tokens.size(); ++i, ++row) {
        const TokenId target = s.prompt_target_tokens.at(row);
        const int64_t position = lane.start + static_cast<int64_t>(i) + 1;
        const bool valid = target != kNoTarget;
        c.prompt_rows.push_back(target);
        c.prompt_rows.push_back(float_bits(valid ? toy_logprob(target, position) : NAN));
        c.prompt_rows.push_back(valid ? toy_rank(target, position) : 0);
        for (int k = 0; k < kMaxNaturalAlternatives; ++k) {
          c.prompt_rows.push_back(valid ? static_cast<TokenId>((target + k) % options_.core.vocab_size) : -1);
          c.prompt_rows.push_back(float_bits(valid ? -static_cast<float>(k + 1) / 16.0f : NAN));
        }
      }
    }
  }

  /// The token, or under a mask the next one, in the order of ids, that it allows.
  TokenId allowed(const Lane& lane, TokenId token) const {
    if (lane.mask.empty() || options_.ignores_masks) return token;
    while ((lane.mask.at(static_cast<size_t>(token) / 32) >> (token % 32) & 1) == 0)
      token = static_cast<TokenId>((token + 1) % options_.core.vocab_size);
    return token;
  }

  TokenId& cached(const Slot& slot, int32_t position) {
    const int32_t size = options_.core.kv_block_size, block = slot.table.at(position / size);
    return cache_.at(static_cast<size_t>(block) * size + position % size);
  }

  static FinishCode finish_of(const Slot& slot, TokenId token, std::vector<int64_t>& record) {
    const SamplingParams& sampling = slot.sampling;
    if (token == sampling.eos_id) {
      if (!sampling.ignore_eos) return FinishCode::kEos;
      record[record_word::kFlags] |= kRecordFlagSilentEos;
    }
    if (std::count(sampling.stop_ids.begin(), sampling.stop_ids.end(), token) > 0) return FinishCode::kStopId;
    return slot.generated == sampling.max_tokens ? FinishCode::kTokenLimit : FinishCode::kNone;
  }

  CompletionPayload payload(const Submission& s, const Lane& lane, TokenId token, int64_t position, int width) const {
    CompletionPayload out{.slot = lane.slot};
    out.words = {token, float_bits(toy_logprob(token, position))};
    const auto selected = std::find_if(s.logprob_token_ids.begin(), s.logprob_token_ids.end(),
                                       [&](const SelectedIds& ids) { return ids.slot == lane.slot; });
    for (int i = 0; i < width; ++i) {
      TokenId id = -1;
      float logprob = 0.0f;
      if (selected == s.logprob_token_ids.end()) {
        if (i < kMaxNaturalAlternatives) {
          id = static_cast<TokenId>((token + 1 + i) % options_.core.vocab_size);
          logprob = -static_cast<float>(i + 1) / 16.0f;
        }
      } else if (static_cast<size_t>(i) < selected->ids.size()) {
        id = selected->ids[i];
        logprob = toy_logprob(id, position);
      }
      out.words.push_back(id);
      out.words.push_back(float_bits(logprob));
    }
    return out;
  }

  const ScriptedRankOptions options_;
  const int tokens_ = small_core_manifest(options_.core).token_capacity;  // T
  const uint64_t life_;
  std::atomic<bool> stop_{false}, hung_{false}, aborted_{false}, drained_{false};
  std::atomic<int64_t> busy_ms_{0};
  std::atomic<uint32_t> incarnation_{0};
  std::atomic<int> echoes_{0}, max_backlog_{0};
  mutable std::mutex mutex_;  // of the four below
  std::deque<ControlMessage> outbox_;
  std::vector<Submission> submissions_;
  std::vector<StoreValue> store_values_;
  std::string collective_;
  std::deque<Submission> work_;  // the rank's thread only, as all below
  uint64_t last_sequence_ = 0;
  bool faulty_ = false;  // has said so, and does nothing more
  std::vector<Slot> slots_;
  std::vector<TokenId> cache_, host_;  // [blocks, block size]
  std::thread thread_;                 // last: runs while the rest lives
};

}  // namespace helios::testing
