// A prepared core on one rank: load and prepare once, then replay submissions without allocating.
//
// submit() runs on the rank thread: it checks and uploads a submission, launches the graph of its operation on the
// compute stream, and enqueues the frame's copy behind the producing event. collect() runs on the readback thread: it
// waits for the frame's transfer event and builds the Completion. Frames alternate; a frame is submitted again only
// after it was collected.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/contract/completion.h"
#include "common/contract/core_manifest.h"
#include "common/contract/submission.h"
#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"
#include "worker/model/load_error.h"

namespace helios {

/// How a rank computes and stores numbers. kAuto and kFloat32: weights in the checkpoint's own precision, every
/// activation FP32: exact products. kBFloat16, kFloat16: weights and matrix inputs rounded to that type once; a weight
/// that F16 cannot hold is refused, an input that it cannot hold becomes infinite.
enum class ComputeDtype { kAuto, kFloat32, kBFloat16, kFloat16 };

/// What keys and values are stored as. kAuto: BF16 with ComputeDtype::kBFloat16, which rounds them anyway, else FP32
/// (with kFloat16 too: no cache is F16, and BF16 would round what F16 holds).
/// kBFloat16: rounded where they are stored, and nowhere else; half the memory, and on a GPU half of attention's
/// products.
enum class KvCacheDtype { kAuto, kFloat32, kBFloat16 };

/// How partial sums of the ranks are added. kCanonical: gathered and added as one tree of eight segments, the same bits
/// at every degree (X1). kFast: by the collective library's all-reduce, which moves less and rounds otherwise at each
/// degree; a group made for it adds them, so a CPU's group refuses.
enum class TpReduce { kCanonical, kFast };

/// Most proposals of a slot in a step: every read-back copies records of T = N + 1 tokens, used or not.
inline constexpr int kMaxSpeculativeTokens = 15;

struct CoreConfig {
  std::string model_dir;
  ComputeDtype dtype = ComputeDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  TpReduce tp_reduce = TpReduce::kCanonical;
  int num_threads = 1;
  std::vector<int> thread_cpus;  // compute thread i runs on the i-th of them alone; empty: where the process may run
  int slot_capacity = 32;  // --max-num-seqs
  int max_model_len = 0;   // 0: the model's own
  int prefill_chunk = 512;
  // The KV cache's size: so many tokens, or so many bytes of each rank's device. Both 0: as many tokens as fit a
  // quarter of the free memory, at most slot_capacity * max_model_len.
  int64_t kv_cache_tokens = 0;
  int64_t kv_cache_bytes = 0;
  int64_t host_tier_bytes = 0;  // pinned host memory of each rank for blocks that leave the KV cache; 0: no host tier
  int token_capacity = 0;       // T; 0: 8, or with speculation N + 1
  int num_speculative_tokens = 0;  // N, 0..15: proposals of a slot that a step can verify (R3); 0: no verify graph
  int max_logprobs = 20;        // K; 0: a core without the logprob buffers (R34)
  // False: natural alternatives only (R35). The id inputs exist only with K = 20, whose layout they fix; with a smaller
  // K this is false whatever was asked.
  bool logprob_token_ids = true;
  bool prompt_logprobs = false;  // scored prefill graphs and their storage (R39); needs K = 20
};

/// The embedded device with the configuration's threads, each on its CPU if there are any. Throws LoadError.
Device cpu_device(const CoreConfig& config);

class Executor {
 public:
  /// Loads this rank's shard onto the device and prepares every graph. A communicator whose exchanges are captured was
  /// made over the device's compute stream. `progress` is called with 0..1 while weights are packed.
  /// Throws LoadError, CollectiveError.
  static std::unique_ptr<Executor> prepare(const CoreConfig& config, Device device, Communicator& communicator,
                                           const std::function<void(double)>& progress);
  virtual ~Executor() = default;

  virtual const CoreManifest& manifest() const = 0;

  /// Errors: kInvalidArgument when the submission does not fit the core (slot, block, token id, capacity, vector length
  /// out of range, frame still in use). Nothing was launched then.
  virtual Status submit(const Submission& submission) = 0;

  /// Waits for the oldest frame not yet collected; there must be one (std::logic_error otherwise). Throws
  /// CollectiveError, std::runtime_error (the device failed).
  virtual Completion collect() = 0;
  /// Whether collect() would return without waiting.
  virtual bool collectable() const = 0;

  /// Values for /metrics of the rank, at the end of the last step that was collected: name (Prometheus style, helios_
  /// prefix) and value.
  struct Counter {
    std::string name, help;
    double value = 0;
  };
  virtual std::vector<Counter> counters() const = 0;
};

/// A core that is ready, and what its exchanges go through when that is not the group it was prepared with: a GPU's own
/// communicator, which the graphs captured and therefore outlives them.
struct PreparedCore {
  std::unique_ptr<Communicator> device_group;  // may be null
  std::unique_ptr<Executor> executor;
};

}  // namespace helios
