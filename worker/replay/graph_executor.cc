// Executor over a backend: builds the core once, captures a graph for each operation, then replays submissions.
//
// A step on the compute stream: upload, updates, row expansion, forward, head, token choice, commit, logprobs,
// producing event; then the frame's copy stream. All decisions inside the graph follow from device state that is the
// same on every rank.
#include "worker/replay/executor.h"

#include <array>
#include <atomic>
#include <mutex>
#include <new>

#include "common/contract/completion_layout.h"
#include "worker/frames/frame_readback.h"
#include "worker/model/lm_head.h"
#include "worker/model/transformer.h"
#include "worker/replay/commit_records.h"
#include "worker/replay/core_sizing.h"
#include "worker/replay/generation_logprobs.h"
#include "worker/replay/input_upload.h"
#include "worker/replay/row_expansion.h"
#include "worker/replay/submission_check.h"
#include "worker/replay/token_choice.h"

namespace helios {
namespace {

/// Written by the compute stream at a step's end, read by whoever serves /metrics.
struct ServedCounters {
  std::atomic<int64_t> steps{0}, rows{0}, sampled{0}, positions{0}, launches{0}, logits_read{0}, words{0},
      logprob_words{0};
  std::atomic<int64_t> payload_copies{0}, bytes_copied{0};
};

/// What prepare() has before anything of the core is allocated.
struct LoadedModel {
  ModelConfig config;
  RankShape shape;
  Checkpoint checkpoint;
  ModelWeights weights;
};

class GraphExecutor final : public Executor {
 public:
  GraphExecutor(std::unique_ptr<Backend> backend, std::unique_ptr<LoadedModel> model, const CoreShape& shape,
                CoreManifest manifest, Communicator& communicator);

  const CoreManifest& manifest() const override { return manifest_; }
  Status submit(const Submission& submission) override;
  Completion collect() override;
  std::vector<Counter> counters() const override;

 private:
  std::unique_ptr<Graph> capture(Operation operation);
  void commit();
  void reduce_logprobs(const Launcher& on);
  void note_step();
  bool rounds() const { return shape_.dtype == "bfloat16"; }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<LoadedModel> model_;
  const CoreShape shape_;
  CoreManifest manifest_;
  const VocabLayout vocabulary_;
  SubmissionCheck check_;  // rank thread

  KvCache cache_;
  CompletionOutputs outputs_;
  InputUpload upload_;
  RowExpansion rows_;
  Memory device_counters_;  // one helios::StepCounters
  Transformer transformer_;
  LmHead head_;
  Sampler sampler_;
  TokenChoice choice_;
  std::unique_ptr<GenerationLogprobs> logprobs_;  // null with K = 0
  Memory digests_;                                // [2] uint64
  ServedCounters counters_;

  std::array<std::unique_ptr<Graph>, 5> graphs_;  // by operation number; null: none
  std::array<std::unique_ptr<Event>, kNumFrames> produced_;
  FrameReadback readback_;

  std::mutex mutex_;  // guards the frames in flight
  std::array<bool, kNumFrames> in_flight_{};
  std::array<FrameIndex, kNumFrames> order_{};
  int num_in_flight_ = 0;

  std::unique_ptr<Stream> compute_;  // last: its thread uses everything above
};

GraphExecutor::GraphExecutor(std::unique_ptr<Backend> backend, std::unique_ptr<LoadedModel> model,
                             const CoreShape& shape, CoreManifest manifest, Communicator& communicator)
    : backend_(std::move(backend)),
      model_(std::move(model)),
      shape_(shape),
      manifest_(std::move(manifest)),
      vocabulary_(shape.vocab_size),
      check_(shape),
      cache_(*backend_, model_->config.num_layers, model_->shape.num_kv(), model_->config.head_dim,
             shape.kv_num_blocks),
      outputs_(shape, *backend_),
      upload_(shape, outputs_, *backend_),
      rows_(shape, upload_.device(), *backend_),
      device_counters_(backend_->device_memory(sizeof(StepCounters))),
      transformer_(model_->config, model_->shape, model_->weights, cache_, rows_.rows(),
                   row_capacity(shape, Operation::kMixed), shape.max_model_len, rounds(), communicator,
                   device_counters_.as<StepCounters>(), *backend_),
      head_(model_->config, model_->shape, model_->weights, transformer_.residual(), rows_.rows(), shape.slot_capacity,
            rounds(), *backend_),
      sampler_(vocabulary_, shape.slot_capacity, communicator, backend_->host_pool().num_threads()),
      choice_(rows_, head_.logits(), head_.logits_stride(), model_->shape.vocab, shape.slot_capacity, sampler_,
              *backend_),
      digests_(backend_->device_memory(kNumFrames * sizeof(uint64_t))),
      readback_(outputs_, digests_.as<uint64_t>(), communicator.rank(), *backend_) {
  if (shape.alternatives > 0) {
    logprobs_ = std::make_unique<GenerationLogprobs>(vocabulary_, shape.slot_capacity, shape.token_capacity,
                                                     shape.alternatives, outputs_.words_per_position(), communicator);
  }
  for (auto& event : produced_) event = backend_->make_event();
  compute_ = backend_->make_stream("compute");
  for (const GraphDeclaration& graph : manifest_.graphs) {
    graphs_[static_cast<size_t>(graph.operation)] = capture(graph.operation);
  }
  manifest_.memory = {.weights_bytes = model_->weights.bytes,
                      .kv_cache_bytes = cache_.bytes(),
                      .bundle_bytes = outputs_.bytes(),
                      .workspace_bytes = transformer_.workspace_bytes() + head_.workspace_bytes() +
                                         sampler_.workspace_bytes() + choice_.workspace_bytes() + rows_.bytes() +
                                         upload_.device_bytes() + (logprobs_ ? logprobs_->workspace_bytes() : 0),
                      .pinned_bytes = upload_.pinned_bytes() + readback_.pinned_bytes()};
}

std::unique_ptr<Graph> GraphExecutor::capture(Operation operation) {
  compute_->begin_capture();
  compute_->launch([this](const Launcher&) { rows_.apply_updates(); });
  if (operation != Operation::kAdmission) {
    compute_->launch([this](const Launcher&) { rows_.expand(); });
    transformer_.record(*compute_, row_capacity(shape_, operation));
    head_.record(*compute_);
    compute_->launch([this](const Launcher& on) { choice_.run(on); });
  }
  compute_->launch([this](const Launcher&) { commit(); });
  if (operation != Operation::kAdmission && logprobs_)
    compute_->launch([this](const Launcher& on) { reduce_logprobs(on); });
  compute_->launch([this](const Launcher&) { note_step(); });
  return compute_->end_capture();
}

void GraphExecutor::commit() {
  commit_records({.inputs = upload_.device(),
                  .slots = rows_.slots(),
                  .lane_fates = rows_.lane_fates(),
                  .lane_sampling = rows_.lane_sampling(),
                  .sampled = choice_.tokens(),
                  .records = {outputs_.records(FrameIndex(0)), outputs_.records(FrameIndex(1))},
                  .token_capacity = shape_.token_capacity,
                  .max_model_len = shape_.max_model_len,
                  .digests = digests_.as<uint64_t>()});
}

void GraphExecutor::reduce_logprobs(const Launcher& on) {
  const FrameIndex frame(upload_.device().header->frame);
  logprobs_->run({.logits = head_.logits(),
                  .logits_stride = head_.logits_stride(),
                  .rows = rows_.num_sampling(),
                  .row_slots = rows_.sampling_slots(),
                  .row_epochs = rows_.sampling_epochs(),
                  .records = outputs_.records(frame),
                  .packed = outputs_.packed(frame),
                  .requested = outputs_.requested(),
                  .token_ids = outputs_.token_ids(),
                  .token_id_counts = outputs_.token_id_counts()},
                 on);
}

void GraphExecutor::note_step() {
  const auto add = [](std::atomic<int64_t>& counter, int64_t by) { counter.fetch_add(by, std::memory_order_relaxed); };
  const auto set = [](std::atomic<int64_t>& counter, int64_t to) { counter.store(to, std::memory_order_relaxed); };
  add(counters_.steps, 1);
  if (upload_.device().header->operation == static_cast<int32_t>(Operation::kAdmission)) return;
  add(counters_.rows, rows_.num_rows());
  add(counters_.sampled, rows_.num_sampling());
  int64_t words = device_counters_.as<StepCounters>()->partial_sum_words + sampler_.counters().words_exchanged;
  if (logprobs_) {
    const GenerationLogprobs::Counters& c = logprobs_->counters();
    set(counters_.positions, c.positions);
    set(counters_.launches, c.launches);
    set(counters_.logits_read, c.logits_read);
    set(counters_.logprob_words, c.words_exchanged);
    words += c.words_exchanged;
  }
  set(counters_.words, words);
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
  upload_.enqueue(s, *compute_);
  compute_->replay(*graphs_[static_cast<size_t>(s.operation)]);
  compute_->record(*produced_[frame]);
  readback_.enqueue(s, *produced_[frame]);
  counters_.payload_copies.store(readback_.payload_copies(), std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
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
  Completion out = readback_.collect(frame);
  counters_.bytes_copied.fetch_add(out.bytes_copied, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  order_[0] = order_[1];
  --num_in_flight_;
  in_flight_[static_cast<size_t>(frame.value)] = false;
  return out;
}

std::vector<Executor::Counter> GraphExecutor::counters() const {
  const auto value = [](const std::atomic<int64_t>& c) {
    return static_cast<double>(c.load(std::memory_order_relaxed));
  };
  return {
      {"helios_steps_total", "Submissions replayed.", value(counters_.steps)},
      {"helios_rows_total", "Token rows that went through the model.", value(counters_.rows)},
      {"helios_sampling_rows_total", "Rows whose next token was sampled.", value(counters_.sampled)},
      {"helios_logprob_positions_total", "Positions whose logprobs were reduced.", value(counters_.positions)},
      {"helios_logprob_launches", "Launches of the last logprob reduction.", value(counters_.launches)},
      {"helios_logprob_vocab_words_read_total", "Logits that the logprob reduction read, in FP32 words.",
       value(counters_.logits_read)},
      {"helios_logprob_exchange_words_total", "32-bit words that this rank sent for logprobs.",
       value(counters_.logprob_words)},
      {"helios_logprob_payload_copies_total", "Copies of packed logprobs to host memory.",
       value(counters_.payload_copies)},
      {"helios_readback_bytes_total", "Bytes copied from frames to host memory.", value(counters_.bytes_copied)},
      {"helios_exchange_words_total", "32-bit words that this rank sent to its peers.", value(counters_.words)},
  };
}

std::unique_ptr<LoadedModel> load_model(const CoreConfig& config, const ModelConfig& model, Communicator& communicator,
                                        Backend& backend, const std::function<void(double)>& progress) {
  auto out =
      std::unique_ptr<LoadedModel>(new LoadedModel{model,
                                                   rank_shape(model, communicator.rank(), communicator.world_size()),
                                                   Checkpoint::open(config.model_dir),
                                                   {}});
  out->weights =
      load_weights(out->checkpoint, out->config, out->shape, config.dtype == ComputeDtype::kBFloat16, backend, progress);
  return out;
}

}  // namespace

std::unique_ptr<Executor> Executor::prepare(const CoreConfig& config, Communicator& communicator,
                                            const std::function<void(double)>& progress) try {
  if (config.num_threads < 1)
    throw LoadError("threads: expected at least 1, found " + std::to_string(config.num_threads));
  std::unique_ptr<Backend> backend = make_cpu_backend(config.num_threads);
  const ModelConfig model = read_model_config(config.model_dir);
  CoreShape shape = size_core(config, model, communicator.world_size(), *backend);
  std::unique_ptr<LoadedModel> loaded = load_model(config, model, communicator, *backend, progress);
  shape.kv_num_blocks = size_kv_cache(config, shape, model, loaded->shape, communicator, *backend);
  Result<CoreManifest> manifest = build_manifest(shape);
  if (!manifest) throw LoadError(manifest.error().message);
  return std::make_unique<GraphExecutor>(std::move(backend), std::move(loaded), shape, std::move(manifest).value(),
                                         communicator);
} catch (const DeviceError& e) {
  throw LoadError(config.model_dir + ": " + e.what());
} catch (const std::bad_alloc&) {
  throw LoadError(config.model_dir + ": out of memory");
}

}  // namespace helios
