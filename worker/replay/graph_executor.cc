// Executor over a backend: builds the core once, captures a graph for each operation, then replays submissions.
//
// A step on the compute stream: upload; updates, row expansion, forward, head, token choice, verification of proposals,
// commit, logprobs, merge of the roles, summary; producing event; then the frame's copy stream. The host decides
// nothing between two launches: what varies follows from device state, which is the same on every rank, and comes home
// with the frame.
#include "worker/replay/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "common/base/cpu_affinity.h"
#include "common/contract/completion_layout.h"
#include "worker/frames/frame_readback.h"
#include "worker/model/lm_head.h"
#include "worker/model/transformer.h"
#include "worker/replay/core_sizing.h"
#include "worker/replay/generation_logprobs.h"
#include "worker/replay/host_tier.h"
#include "worker/replay/input_upload.h"
#include "worker/replay/prompt_scoring.h"
#include "worker/replay/row_expansion.h"
#include "worker/replay/step_commit.h"
#include "worker/replay/submission_check.h"
#include "worker/replay/token_choice.h"

namespace helios {
namespace {

/// What prepare() has before anything of the core is allocated.
struct LoadedModel {
  ModelConfig config;
  RankShape shape;
  Checkpoint checkpoint;
  ModelWeights weights;
};

class GraphExecutor final : public Executor {
 public:
  GraphExecutor(Device device, std::unique_ptr<LoadedModel> model, const CoreShape& shape, CoreManifest manifest,
                Communicator& communicator);

  const CoreManifest& manifest() const override { return manifest_; }
  Status submit(const Submission& submission) override;
  Completion collect() override;
  bool collectable() const override;
  std::vector<Counter> counters() const override;

 private:
  std::unique_ptr<Graph> capture(const GraphDeclaration& declared);
  const Graph& graph_of(const Submission& submission) const;
  void record_logprobs(Operation operation);
  MemoryReport memory_report() const;

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LoadedModel> model_;
  const CoreShape shape_;
  CoreManifest manifest_;
  const VocabLayout vocabulary_;
  SubmissionCheck check_;  // rank thread

  KvCache cache_;
  std::unique_ptr<HostTier> tier_;  // null without a host tier
  CompletionOutputs outputs_;
  InputUpload upload_;
  Memory counters_;  // one StepCounters
  RowExpansion rows_;
  Transformer transformer_;
  LmHead head_;
  TokenChoice choice_;
  StepCommit commit_;
  std::unique_ptr<GenerationLogprobs> logprobs_;  // null with K = 0
  std::unique_ptr<PromptHead> prompt_head_;       // null without prompt scoring
  std::unique_ptr<PromptScoring> scoring_;        // null without prompt scoring

  std::array<std::unique_ptr<Graph>, 6> graphs_;  // by operation number, to kVerify; null: none
  struct ScoredGraph {
    int32_t rows = 0;
    std::unique_ptr<Graph> graph;
  };
  std::vector<ScoredGraph> scored_graphs_;  // ascending; the last one holds a whole chunk
  std::array<std::unique_ptr<Event>, kNumFrames> produced_;
  FrameReadback readback_;

  mutable std::mutex mutex_;  // guards the frames in flight and what was counted
  std::array<bool, kNumFrames> in_flight_{};
  std::array<FrameIndex, kNumFrames> order_{};
  int num_in_flight_ = 0;
  StepCounters counted_;  // at the end of the last step that was collected
  int64_t payload_copies_ = 0, bytes_copied_ = 0, mask_words_ = 0, blocks_out_ = 0, blocks_in_ = 0;

  std::unique_ptr<Stream> compute_;  // last: its thread uses everything above
};

GraphExecutor::GraphExecutor(Device device, std::unique_ptr<LoadedModel> model, const CoreShape& shape,
                             CoreManifest manifest, Communicator& communicator)
    : backend_(std::move(device.backend)),
      model_(std::move(model)),
      shape_(shape),
      manifest_(std::move(manifest)),
      vocabulary_(shape.vocab_size),
      check_(shape),
      cache_(*backend_, model_->config.num_layers, model_->shape.num_kv(), model_->config.head_dim, kv_dtype(shape),
             shape.kv_num_blocks),
      tier_(shape.host_num_blocks > 0 ? std::make_unique<HostTier>(cache_, shape.host_num_blocks, *backend_) : nullptr),
      outputs_(shape, *backend_),
      upload_(shape, outputs_, *backend_),
      counters_(backend_->device_memory(sizeof(StepCounters))),
      rows_(shape, upload_.device(), counters_.as<StepCounters>(), *backend_),
      transformer_(model_->config, model_->shape, model_->weights, cache_, rows_.rows(), most_rows(shape),
                   shape.max_model_len, rounded_dtype(shape), communicator, counters_.as<StepCounters>(), *backend_),
      head_(model_->config, model_->shape, model_->weights, transformer_.residual(), rows_.rows(),
            most_sampling_rows(shape), rounded_dtype(shape), *backend_),
      choice_(shape, rows_, head_.logits(), head_.logits_stride(), counters_.as<StepCounters>(), communicator,
              *backend_),
      commit_(shape, upload_.device(), rows_, outputs_, choice_.tokens(), counters_.as<StepCounters>(), *backend_),
      readback_(outputs_, commit_.summaries(), communicator.rank(), *backend_),
      compute_(std::move(device.compute)) {
  if (shape.alternatives > 0) {
    const GenerationLogprobsShape reduced{.slot_capacity = shape.slot_capacity,
                                          .token_capacity = shape.token_capacity,
                                          .alternatives = shape.alternatives,
                                          .position_words = outputs_.words_per_position(),
                                          .max_rows = most_sampling_rows(shape)};
    logprobs_ = std::make_unique<GenerationLogprobs>(vocabulary_, reduced, counters_.as<StepCounters>(), communicator,
                                                     *backend_);
  }
  if (shape.prompt_scoring) {
    prompt_head_ = std::make_unique<PromptHead>(model_->config, model_->shape, model_->weights, transformer_.residual(),
                                                rounded_dtype(shape), *backend_);
    scoring_ = std::make_unique<PromptScoring>(shape, upload_.device(), rows_, *prompt_head_, outputs_,
                                               counters_.as<StepCounters>(), communicator, *backend_);
  }
  for (auto& event : produced_) event = backend_->make_event();
  for (const GraphDeclaration& graph : manifest_.graphs) {
    if (graph.operation == Operation::kScoredPrefill) {
      scored_graphs_.push_back({graph.row_capacity, capture(graph)});
    } else {
      graphs_[static_cast<size_t>(graph.operation)] = capture(graph);
    }
  }
  manifest_.memory = memory_report();
}

MemoryReport GraphExecutor::memory_report() const {
  MemoryReport m{.weights_bytes = model_->weights.bytes,
                 .kv_cache_bytes = cache_.bytes(),
                 .bundle_bytes = outputs_.bytes(),
                 .workspace_bytes = transformer_.workspace_bytes() + head_.workspace_bytes() +
                                    choice_.workspace_bytes() + rows_.bytes() + commit_.bytes() +
                                    upload_.device_bytes() + (logprobs_ ? logprobs_->workspace_bytes() : 0),
                 .pinned_bytes = upload_.pinned_bytes() + choice_.pinned_bytes() + readback_.pinned_bytes(),
                 .host_tier_bytes = tier_ ? tier_->bytes() : 0,
                 .scoring_bytes = scoring_ ? scoring_->workspace_bytes() + prompt_head_->workspace_bytes() : 0};
  m.device_allocated_bytes = m.weights_bytes + m.kv_cache_bytes + m.bundle_bytes + m.workspace_bytes + m.scoring_bytes;
  m.device_reserved_bytes = backend_->reserved_memory();
  return m;
}

std::unique_ptr<Graph> GraphExecutor::capture(const GraphDeclaration& declared) {
  const Operation operation = declared.operation;
  compute_->begin_capture();
  rows_.record_updates(*compute_);
  choice_.record_admissions(*compute_);
  if (operation != Operation::kAdmission) {
    rows_.record_rows(*compute_, operation);
    transformer_.record(*compute_, declared.row_capacity);
    if (operation == Operation::kScoredPrefill) scoring_->record(*compute_, declared.row_capacity);
    head_.record(*compute_, sampling_capacity(shape_, operation));
    choice_.record(*compute_, operation);
  }
  commit_.record_commit(*compute_, operation);
  if (operation != Operation::kAdmission) {
    choice_.record_counts(*compute_, operation, commit_.halves(operation).records);
  }
  if (operation != Operation::kAdmission && logprobs_) record_logprobs(operation);
  commit_.record_merge(*compute_, operation);
  commit_.record_summary(*compute_);
  return compute_->end_capture();
}

void GraphExecutor::record_logprobs(Operation operation) {
  const OutputHalves halves = commit_.halves(operation);
  logprobs_->record({.logits = head_.logits(),
                     .logits_stride = head_.logits_stride(),
                     .max_rows = sampling_capacity(shape_, operation),
                     .num_rows = rows_.num_sampling_rows(),
                     .row_slots = rows_.sampling_slots(),
                     .row_epochs = rows_.sampling_epochs(),
                     .row_tokens = rows_.sampling_tokens(),
                     .row_halves = rows_.sampling_halves(),
                     .records = halves.records,
                     .packed = halves.packed,
                     .requested = outputs_.requested(),
                     .token_ids = outputs_.token_ids(),
                     .token_id_counts = outputs_.token_id_counts()},
                    *compute_);
}

/// Of the scored graphs the smallest that holds the submission's prompt tokens.
const Graph& GraphExecutor::graph_of(const Submission& s) const {
  if (s.operation != Operation::kScoredPrefill) return *graphs_[static_cast<size_t>(s.operation)];
  const auto tokens = static_cast<int64_t>(s.prompt_target_tokens.size());
  const auto fits = [&](const ScoredGraph& scored) { return scored.rows >= tokens; };
  return *std::find_if(scored_graphs_.begin(), scored_graphs_.end(), fits)->graph;  // checked: within the chunk
}

Status GraphExecutor::submit(const Submission& s) {
  if (auto status = check_.check(s); !status) return status;
  const auto frame = static_cast<size_t>(s.frame.value);
  {
    std::lock_guard lock(mutex_);
    if (in_flight_[frame]) {
      return Error{Errc::kInvalidArgument, "frame: " + std::to_string(s.frame.value) + " is still in flight"};
    }
  }
  if (tier_) tier_->enqueue(s, *compute_);
  upload_.enqueue(s, *compute_);
  choice_.enqueue(s, *compute_);
  compute_->replay(graph_of(s));
  compute_->record(*produced_[frame]);
  readback_.enqueue(s, *produced_[frame]);
  std::lock_guard lock(mutex_);
  payload_copies_ = readback_.payload_copies();
  mask_words_ = choice_.mask_words_uploaded();
  if (tier_) blocks_out_ = tier_->blocks_out(), blocks_in_ = tier_->blocks_in();
  in_flight_[frame] = true;
  order_[static_cast<size_t>(num_in_flight_++)] = s.frame;
  return Ok{};
}

Completion GraphExecutor::collect() {
  FrameIndex frame;
  {
    std::lock_guard lock(mutex_);
    if (num_in_flight_ == 0) throw std::logic_error("collect() without a frame in flight");
    frame = order_[0];
  }
  CollectedFrame out = readback_.collect(frame);
  std::lock_guard lock(mutex_);
  counted_ = out.counters;
  bytes_copied_ += out.completion.bytes_copied;
  order_[0] = order_[1];
  --num_in_flight_;
  in_flight_[static_cast<size_t>(frame.value)] = false;
  return std::move(out.completion);
}

bool GraphExecutor::collectable() const {
  std::lock_guard lock(mutex_);
  return num_in_flight_ > 0 && readback_.arrived(order_[0]);
}

std::vector<Executor::Counter> GraphExecutor::counters() const {
  StepCounters c;
  int64_t payload_copies = 0, bytes_copied = 0, mask_words = 0, blocks_out = 0, blocks_in = 0;
  {
    std::lock_guard lock(mutex_);
    c = counted_;
    payload_copies = payload_copies_;
    bytes_copied = bytes_copied_;
    mask_words = mask_words_;
    blocks_out = blocks_out_;
    blocks_in = blocks_in_;
  }
  const MemoryReport& m = manifest_.memory;
  const auto value = [](int64_t count) { return static_cast<double>(count); };
  return {
      {"helios_steps_total", "Submissions replayed.", value(c.steps)},
      {"helios_rows_total", "Token rows that went through the model.", value(c.rows)},
      {"helios_sampling_rows_total", "Rows whose next token was sampled.", value(c.sampled)},
      {"helios_emitted_tokens_total", "Tokens that completion records emitted.", value(c.emitted)},
      {"helios_merged_records_total", "Records that mixed graphs merged into a frame.", value(c.merged_records)},
      {"helios_merged_positions_total", "Positions of packed logprobs that mixed graphs merged into a frame.",
       value(c.merged_positions)},
      {"helios_logprob_positions_total", "Positions whose logprobs were reduced.", value(c.logprob_positions)},
      {"helios_logprob_launches", "Launches of the last logprob reduction.", value(c.logprob_launches)},
      {"helios_logprob_vocab_words_read_total", "Logits that the logprob reduction read, in FP32 words.",
       value(c.logprob_logits_read)},
      {"helios_logprob_exchange_words_total", "32-bit words that this rank sent for logprobs.", value(c.logprob_words)},
      {"helios_prompt_rows_total", "Prompt positions that were scored.", value(c.prompt_rows)},
      {"helios_prompt_exchange_words_total", "32-bit words that this rank sent for prompt scores.",
       value(c.prompt_words)},
      {"helios_sampler_exchange_words_total", "32-bit words that this rank sent to choose tokens.",
       value(c.sampler_words)},
      {"helios_mask_upload_words_total", "32-bit words of lanes' token masks that went to the device.",
       value(mask_words)},
      {"helios_logprob_payload_copies_total", "Copies of packed logprobs to host memory.", value(payload_copies)},
      {"helios_readback_bytes_total", "Bytes copied from frames to host memory.", value(bytes_copied)},
      {"helios_host_tier_blocks_out_total", "KV cache blocks that were copied to the host tier.", value(blocks_out)},
      {"helios_host_tier_blocks_in_total", "KV cache blocks that came back from the host tier.", value(blocks_in)},
      {"helios_weights_bytes", "Device memory of the weights.", value(m.weights_bytes)},
      {"helios_kv_cache_bytes", "Device memory of the KV cache.", value(m.kv_cache_bytes)},
      {"helios_host_tier_bytes", "Host memory of the tier behind the KV cache.", value(m.host_tier_bytes)},
      {"helios_bundle_bytes", "Device memory of the completion bundle.", value(m.bundle_bytes)},
      {"helios_scoring_bytes", "Device memory of prompt scoring's workspace.", value(m.scoring_bytes)},
      {"helios_workspace_bytes", "Device memory of every other workspace.", value(m.workspace_bytes)},
      {"helios_pinned_bytes", "Pinned host memory of staging and read-back.", value(m.pinned_bytes)},
      {"helios_device_allocated_bytes", "Device memory that the core's parts asked for.",
       value(m.device_allocated_bytes)},
      {"helios_device_reserved_bytes", "Device memory that was set aside for the process at start.",
       value(m.device_reserved_bytes)},
      {"helios_exchange_words_total", "32-bit words that this rank sent to its peers.",
       value(c.partial_sum_words + c.sampler_words + c.logprob_words + c.prompt_words)},
  };
}

std::unique_ptr<LoadedModel> load_model(const std::string& directory, const ModelConfig& model, DType round_to,
                                        Communicator& communicator, Backend& backend,
                                        const std::function<void(double)>& progress) {
  auto out = std::unique_ptr<LoadedModel>(new LoadedModel{
      model, rank_shape(model, communicator.rank(), communicator.world_size()), Checkpoint::open(directory), {}});
  out->weights = load_weights(out->checkpoint, out->config, out->shape, round_to, backend, progress);
  return out;
}

}  // namespace

/// Each compute thread binds itself, the stream's own, which is the pool's thread 0, among them. The pool's caller runs
/// the piece of a thread that is late; such a thread is asked again.
static void bind_compute_threads(Device& device, const std::vector<int>& cpus) {
  constexpr int kNotAsked = -1, kMostTries = 5000;
  std::vector<int> errors(cpus.size(), kNotAsked);
  device.compute->begin_capture();
  device.compute->launch([&](const Launcher& on) {
    const std::thread::id caller = std::this_thread::get_id();
    const auto all_asked = [&] { return std::find(errors.begin(), errors.end(), kNotAsked) == errors.end(); };
    for (int tries = 0; tries < kMostTries && !all_asked(); ++tries) {
      on.pool().run([&](int thread, int num_threads) {
        if (thread == 0 && num_threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (thread != 0 && std::this_thread::get_id() == caller) return;
        const auto index = static_cast<size_t>(thread);
        errors[index] = bind_this_thread(std::span(cpus).subspan(index, 1));
      });
    }
  });
  const std::unique_ptr<Graph> once = device.compute->end_capture();
  device.compute->replay(*once);
  device.compute->synchronize();
  for (size_t i = 0; i < cpus.size(); ++i) {
    if (errors[i] == 0) continue;
    throw LoadError(fmt::format("compute thread {} cannot be bound to CPU {}: {}", i, cpus[i],
                                errors[i] == kNotAsked ? "it does not run" : std::strerror(errors[i])));
  }
}

Device cpu_device(const CoreConfig& config) {
  if (config.num_threads < 1)
    throw LoadError("threads: expected at least 1, found " + std::to_string(config.num_threads));
  Device device{.backend = make_cpu_backend(config.num_threads)};
  device.compute = device.backend->make_stream("compute");
  if (config.thread_cpus.empty()) return device;
  if (std::cmp_not_equal(config.thread_cpus.size(), config.num_threads)) {
    throw LoadError(
        fmt::format("{} CPUs for {} threads: expected one each", config.thread_cpus.size(), config.num_threads));
  }
  bind_compute_threads(device, config.thread_cpus);
  return device;
}

std::unique_ptr<Executor> Executor::prepare(const CoreConfig& config, Device device, Communicator& communicator,
                                            const std::function<void(double)>& progress) try {
  const ModelConfig model = read_model_config(config.model_dir);
  CoreShape shape = size_core(config, model, communicator.world_size(), *device.backend);
  std::unique_ptr<LoadedModel> loaded =
      load_model(config.model_dir, model, rounded_dtype(shape), communicator, *device.backend, progress);
  shape.kv_num_blocks = size_kv_cache(config, shape, model, loaded->shape, communicator, device);
  shape.host_num_blocks = size_host_tier(config, shape, model, loaded->shape, communicator, device);
  Result<CoreManifest> manifest = build_manifest(shape);
  if (!manifest) throw LoadError(manifest.error().message);
  return std::make_unique<GraphExecutor>(std::move(device), std::move(loaded), shape, std::move(manifest).value(),
                                         communicator);
} catch (const DeviceError& e) {
  throw LoadError(config.model_dir + ": " + e.what());
} catch (const std::bad_alloc&) {
  throw LoadError(config.model_dir + ": out of memory");
}

}  // namespace helios
