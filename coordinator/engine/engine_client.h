// The connections' door to the engine: hand in sequences, take their events out, cancel.
//
// A SequenceStream is the bounded pipe between the engine thread (producer) and one connection's strand (consumer). A
// full pipe is backpressure: the engine stops scheduling that sequence until the consumer has caught up. Dropping the
// last reference, or cancel(), tells the engine to stop at once and frees the slot when no frame in flight names it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/contract/control.h"
#include "common/contract/core_manifest.h"
#include "common/contract/sampling_params.h"
#include "coordinator/completion/token_event.h"
#include "coordinator/grammar/compiled_grammar.h"

namespace helios {

/// The tokens around a sequence's reasoning, where they decide something: when a grammar begins, how long it may last.
struct Thinking {
  TokenId open = -1, close = -1;
  bool in_reasoning = false;      // the prompt ends between them; a grammar begins behind the close
  bool may_open = false;          // beside a grammar: the text may begin with `open`, and the grammar behind the close
  std::optional<int64_t> budget;  // generated tokens between them; then the close is forced
};

/// One sequence to generate or to score (one prompt, one choice). Validated against Capabilities by the protocol.
struct SequenceRequest {
  std::vector<TokenId> prompt;  // 1 <= size, size + max_tokens <= max_model_len
  SamplingParams sampling;
  bool logprobs = false;
  int32_t num_logprobs = 0;                        // natural alternatives, 0..K
  std::vector<TokenId> logprob_token_ids;          // or selected ids; empty: natural
  bool prompt_scores = false;                      // the prompt's tokens are scored; max_tokens may be 0 then
  int32_t num_prompt_logprobs = 0;                 // natural alternatives at every prompt position, 0..20
  int64_t priority = 0;                            // the lower, the earlier; then the order of arrival
  std::string cache_salt;                          // only sequences with the same salt share a cached prefix
  std::shared_ptr<const CompiledGrammar> grammar;  // the text is one of its texts; null: any text
  std::optional<Thinking> thinking;
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that may not come; none empty
};

class SequenceStream {
 public:
  virtual ~SequenceStream() = default;
  /// The next event, if one is there. After an event with finish != kNone, or an Error, nothing follows. A prompt of
  /// one token has no scores: without a budget its stream is one empty chunk that finishes, else it begins with a
  /// token.
  virtual std::optional<SequenceEvent> try_pop() = 0;
  /// Prompt tokens that were found in the prefix cache: known from the first event on.
  virtual int64_t cached_tokens() const { return 0; }
  /// The consumer has seen enough (string stop, client gone). Idempotent, any thread.
  virtual void cancel() = 0;
};

struct RankStatus {
  Rank rank;
  int64_t pid = 0;
  RankState state = RankState::kStarting;
  std::string device;
  std::string host_name;
  std::string status_url;
  double heartbeat_age_s = 0.0;
  int64_t resident_bytes = 0;
  double load_progress = 0.0;
  MemoryReport memory;
  std::vector<CounterValue> counters;  // the rank's own, as of its last heartbeat
};

/// A consistent picture for /health, /readyz and /metrics; taken without stopping the engine.
struct EngineStatus {
  bool ready = false;  // every rank is ready, agrees, and can finish a step
  bool draining = false;
  std::string reason;  // why not ready, one line for a person
  uint32_t incarnation = 0;
  std::optional<Capabilities> capabilities;  // of the loaded core; kept while ranks restart
  std::vector<RankStatus> ranks;
  int64_t running = 0;
  int64_t waiting = 0;           // for a slot, preempted ones included
  double kv_cache_usage = 0.0;   // 0..1: blocks that sequences hold
  int64_t kv_blocks_held = 0;    // by sequences
  int64_t kv_blocks_known = 0;   // the prefix in them can be found, held or not
  double host_tier_usage = 0.0;  // 0..1: blocks that hold something
  int64_t frames_in_flight = 0;  // submitted, not yet decoded
};

/// Tells whoever waits for streams that one of them may have become non-empty. The engine marks all for whom a step has
/// something, and then wakes each: a thread that serves many is woken once. Called on the engine thread; must be cheap
/// and must not throw.
struct Notify {
  std::function<void()> mark;
  std::function<void()> wake;  // may be empty
  void operator()() const {
    mark();
    if (wake) wake();
  }
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;

  /// All or nothing. Errors: kQueueFull (429), kUnavailable (503).
  virtual Result<std::vector<std::shared_ptr<SequenceStream>>> submit(std::vector<SequenceRequest> requests,
                                                                      Notify notify) = 0;
  virtual EngineStatus status() const = 0;
};

/// What the engine tells whoever counts: called on the engine thread, must be cheap.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void on_tokens(int64_t prompt_tokens, int64_t generated_tokens) = 0;  // of one completed submission
  /// A prompt was looked up at its first admission: what of it was in the KV cache, and what came back from the host.
  virtual void on_prefix_lookup(int64_t prompt_tokens, int64_t cached_tokens, int64_t host_tokens) = 0;
  /// So many sequences have to wait again, since the KV cache was full.
  virtual void on_preempted(int64_t sequences) = 0;
  virtual void on_first_token(double queue_seconds, double time_to_first_token_seconds) = 0;
  /// So many tokens came `seconds` after their predecessors.
  virtual void on_inter_token(double seconds, int64_t tokens) = 0;
  /// A lane's proposals were verified; of them the first `accepted` became tokens.
  virtual void on_verified(int32_t offered, int32_t accepted) = 0;
  struct Finished {
    FinishCode finish = FinishCode::kNone;
    bool cancelled = false;
    bool failed = false;
    int64_t prompt_tokens = 0;
    int64_t generated_tokens = 0;
    double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0, e2e_seconds = 0;
    bool logprobs = false;
  };
  virtual void on_finished(const Finished& finished) = 0;
  /// One decoded frame. R26: where nobody asked, no payload was copied and none came.
  struct Frame {
    bool requested = false;     // some lane asked for logprobs
    int64_t records = 0;        // lanes whose record was read
    int64_t payload_bytes = 0;  // packed logprobs that came: the positions of lanes that asked
    int64_t bytes_copied = 0;   // by rank 0, device to host, records included
  };
  virtual void on_frame(const Frame& frame) = 0;
};

}  // namespace helios
