// One process a rank, as in service: the worker's own backend and NCCL, over a model directory.
//
//   gpu_run MODEL RANKS bits      prints a digest of every token and logprob of a fixed run
//   gpu_run MODEL RANKS figures   prints what the device and the model do in a second
//
// Lines are `digest | hex`, `figure | name | value`, `skip | reason`, `fail | reason`; the exit status says the same.
// With fewer GPUs than ranks it asks NCCL for two ranks on one, which most versions refuse. Built for the emulator too,
// so that all but the GPU is proven there.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "common/contract/completion_layout.h"
#include "worker/bench/bench_plan.h"
#include "worker/bench/rank_group.h"
#include "worker/bench/rank_session.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/shm_communicator.h"
#include "worker/replay/generation_logprobs.h"
#if defined(HELIOS_EMULATED_DEVICE)
#include "tests/support/simt/simt_backend.h"
#else
#include <cuda_runtime.h>

#include "worker/cuda/cuda_backend.h"
#include "worker/cuda/nccl_communicator.h"
#endif

namespace helios {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{60000};
constexpr int kHostThreads = 8;
constexpr const char* kJoining = "joining: ";  // what NCCL may refuse

/// A rank's device, and the group on it.
struct RankDevice {
  Device device;
  std::unique_ptr<Communicator> group;
};

#if defined(HELIOS_EMULATED_DEVICE)
constexpr bool kEmulated = true;
RankDevice join(Communicator& hosts) {
  RankDevice out{.device = testing::simt_device()};
  out.group = testing::make_simt_communicator(hosts, *out.device.compute);
  return out;
}
#else
constexpr bool kEmulated = false;
RankDevice join(Communicator& hosts) {
  int devices = 0;
  cuda::check(cudaGetDeviceCount(&devices), "count the devices");
  const int rank = hosts.rank().value;
  if (devices < hosts.world_size()) {  // to NCCL they are hosts of their own, or it would refuse at once
    setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);  // since NCCL 2.30; before that the names above may do
  }
  RankDevice out{.device = {.backend = cuda::make_backend(rank % devices, kHostThreads)}};
  out.device.compute = out.device.backend->make_stream("compute");
  std::string id = rank == 0 ? cuda::make_nccl_group_id() : std::string(cuda::kNcclGroupIdBytes, '\0');
  std::string all(id.size() * static_cast<size_t>(hosts.world_size()), '\0');
  hosts.all_gather(std::as_bytes(std::span(id)), std::as_writable_bytes(std::span(all)));
  id = all.substr(0, id.size());
  try {
    out.group = cuda::make_nccl_communicator(id, hosts.rank(), hosts.world_size(), *out.device.compute, kPatience);
    out.group->barrier();
  } catch (const CollectiveError& e) {
    if (devices < hosts.world_size()) throw CollectiveError(kJoining + std::string(e.what()));
    throw;
  }
  return out;
}
#endif

/// FNV-1a.
struct Digest {
  uint64_t value = 14695981039346656037u;
  void add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) value = (value ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  }
};

CoreConfig bits_core(const std::string& model_dir) {
  return {.model_dir = model_dir,
          .num_threads = 1,
          .slot_capacity = 4,
          .max_model_len = 128,
          .prefill_chunk = kEmulated ? 24 : 96,
          .kv_cache_tokens = 4 * 128};
}

/// Four prompts, then decode steps, greedy, all with twenty alternatives; what rank 0 reads back of it.
uint64_t run_bits(Executor& executor, Rank rank) {
  constexpr int kSlots = 4;
  const int steps = kEmulated ? 2 : 48;
  const int64_t vocab = executor.manifest().vocab_size;
  Digest digest;
  for (int step = 0; step <= steps; ++step) {
    Submission s{.sequence = Sequence(static_cast<uint64_t>(step) + 1),
                 .frame = FrameIndex(step % 2),
                 .operation = step == 0 ? Operation::kPrefill : Operation::kDecode,
                 .logprob_requested = std::vector<int32_t>(kSlots, 1),
                 .logprob_token_id_counts = std::vector<int32_t>(kSlots, 0)};
    for (int slot = 0; slot < kSlots; ++slot) {
      Lane lane{.slot = SlotIndex(slot), .epoch = Epoch(1)};
      if (step == 0) {
        s.admissions.push_back({SlotIndex(slot), Epoch(1), {.temperature = 0.0f, .max_tokens = 100}});
        s.block_updates.push_back({SlotIndex(slot), 0, {4 * slot, 4 * slot + 1, 4 * slot + 2, 4 * slot + 3}});
        lane.role = LaneRole::kPrefill;
        lane.start = 0;
        for (int i = 0; i < 3 + slot * (kEmulated ? 2 : 13); ++i)
          lane.tokens.push_back(static_cast<TokenId>((i * 7919 + slot * 104729 + 13) % vocab));
      }
      s.lanes.push_back(std::move(lane));
    }
    if (const Status status = executor.submit(s); !status.ok()) throw std::runtime_error(status.error().message);
    const Completion done = executor.collect();
    if (rank != Rank(0)) continue;
    for (int slot = 0; slot < kSlots; ++slot) {
      const int64_t* record = done.records.data() + slot * record_words(done.token_capacity);
      digest.add(record + record_word::kTokens, sizeof(int64_t));
    }
    for (const CompletionPayload& p : done.payloads) digest.add(p.words.data(), p.words.size() * sizeof(int32_t));
  }
  return digest.value;
}

void figure(const char* name, const char* format, double value) {
  std::printf("figure | %s | ", name);
  std::printf(format, value);
  std::printf("\n");
}

/// Seconds that one replay takes, the stream kept busy.
double seconds_each(Stream& stream, const Graph& graph, int times) {
  stream.replay(graph);
  stream.synchronize();
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) stream.replay(graph);
  stream.synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count() / times;
}

/// The reduction of a full batch at a large vocabulary beside a copy of the same logits.
void reduction_figures(Device& device, Communicator& group) {
  const int lanes = kEmulated ? 2 : 32, tokens = 1, words = record_words(tokens);
  const int64_t vocab = kEmulated ? 5000 : 151936;
  const VocabLayout layout(vocab);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  const int64_t stride = layout.shard_stride(1);
  std::vector<float> logits(static_cast<size_t>(lanes * stride));
  for (float& value : logits) value = normal(random);
  std::vector<int64_t> records(static_cast<size_t>(2 * lanes * words));
  std::vector<int32_t> slots(static_cast<size_t>(lanes)), halves(slots.size(), 0), requested(slots.size(), 1);
  const std::vector<uint32_t> epochs(slots.size(), 1);
  for (int slot = 0; slot < lanes; ++slot) {
    slots[static_cast<size_t>(slot)] = slot;
    int64_t* record = records.data() + slot * words;
    record[record_word::kAbi] = kRecordAbi;
    record[record_word::kSlot] = slot;
    record[record_word::kEpoch] = 1;
    record[record_word::kEmitted] = 1;
  }
  Backend& backend = *device.backend;
  const auto upload = [&](const auto& values) {
    return device_copy(backend, values.data(), values.size() * sizeof(values[0]));
  };
  const Memory logits_memory = upload(logits), records_memory = upload(records), slots_memory = upload(slots),
               epochs_memory = upload(epochs), halves_memory = upload(halves), requested_memory = upload(requested),
               count = upload(std::vector<int32_t>{lanes}),
               packed = backend.device_memory(static_cast<size_t>(2 * lanes * packed_words(20)) * sizeof(int32_t)),
               copy = backend.device_memory(logits_memory.bytes());
  GenerationLogprobs reduction(layout,
                               {.slot_capacity = lanes,
                                .token_capacity = tokens,
                                .alternatives = 20,
                                .position_words = packed_words(20),
                                .max_rows = lanes},
                               nullptr, group, backend);
  Stream& stream = *device.compute;
  stream.begin_capture();
  reduction.record({.logits = logits_memory.as<float>(),
                    .logits_stride = stride,
                    .num_rows = count.as<int32_t>(),
                    .row_slots = slots_memory.as<int32_t>(),
                    .row_epochs = epochs_memory.as<uint32_t>(),
                    .row_halves = halves_memory.as<int32_t>(),
                    .records = records_memory.as<int64_t>(),
                    .packed = packed.as<int32_t>(),
                    .requested = requested_memory.as<int32_t>()},
                   stream);
  const std::unique_ptr<Graph> graph = stream.end_capture();
  const int times = kEmulated ? 1 : 200;
  const double reduced = seconds_each(stream, *graph, times);
  stream.copy(copy.data(), logits_memory.data(), copy.bytes());
  stream.synchronize();
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) stream.copy(copy.data(), logits_memory.data(), copy.bytes());
  stream.synchronize();
  const double copied = std::chrono::duration<double>(Clock::now() - start).count() / times;
  const double bytes = static_cast<double>(lanes) * static_cast<double>(vocab) * sizeof(float);
  figure("device copy, GB/s read and written", "%.0f", 2 * bytes / copied / 1e9);
  figure("reduction of 32 x 151936 logits, us", "%.1f", reduced * 1e6);
  figure("reduction, GB/s of logits read once", "%.0f", bytes / reduced / 1e9);
}

/// How a model is run: what its products and its cache hold. Of the later ones only what they change is measured.
struct Setting {
  const char* name;
  ComputeDtype dtype;
  KvCacheDtype cache;
  bool prefill, sampled;
};
constexpr Setting kSettings[] = {
    {"", ComputeDtype::kAuto, KvCacheDtype::kFloat32, true, true},
    {", BF16 cache", ComputeDtype::kAuto, KvCacheDtype::kBFloat16, true, false},
    {", BF16 inputs and cache", ComputeDtype::kBFloat16, KvCacheDtype::kBFloat16, true, false},
    {", F16 inputs, BF16 cache", ComputeDtype::kFloat16, KvCacheDtype::kBFloat16, true, false},
};

/// The median round of each piece of work.
void model_figures(const std::string& model_dir, const Setting& setting, RankDevice at) {
  const ModelConfig config = read_model_config(model_dir);
  BenchOptions options;
  options.model_dir = model_dir;
  options.threads = kHostThreads;
  options.dtype = setting.dtype;
  options.kv_cache_dtype = setting.cache;
  const auto executor = Executor::prepare(bench_core(options, config), std::move(at.device), *at.group, nullptr);
  const std::vector<BenchWork> plan = bench_plan(config);
  RankSession session(*executor, Rank(0), plan);
  double plain = 0.0;
  for (const BenchWork& work : plan) {
    if ((work.prefill && !setting.prefill) || (work.sampled && !setting.sampled)) continue;
    std::vector<double> seconds;
    for (int round = 0; round < 6; ++round) seconds.push_back(session.run(work).seconds);
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    const double rate = work.tokens / seconds[seconds.size() / 2];
    std::string name =
        work.prefill ? "prefill " + std::to_string(work.tokens) : "decode x" + std::to_string(work.batch);
    name += setting.name;
    if (work.logprobs > 0) name += ", 20 logprobs";
    if (work.sampled) name += ", sampled";
    figure((name + ", tokens/s").c_str(), "%.0f", rate);
    if (!work.prefill && work.logprobs == 0 && !work.sampled) plain = rate;
    if (work.logprobs > 0) figure((name + ", of decode without").c_str(), "%.3f", rate / plain);
  }
}

int run(const std::string& model_dir, int world, const std::string& what) {
  const std::string key = "helios-gpu-run-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device()());
  RankGroup ranks(world, [&](int rank, const RankGroup::Say& say) {
    const auto hosts = ShmCommunicator::join(key, Rank(rank), world, kPatience);
    RankDevice at = join(*hosts);
    if (what == "figures") {
      reduction_figures(at.device, *at.group);
      for (const Setting& setting : kSettings) {
        if (!kEmulated) model_figures(model_dir, setting, join(*hosts));  // minutes there; helios-bench has the session
      }
    } else {
      const auto executor = Executor::prepare(bits_core(model_dir), std::move(at.device), *at.group, nullptr);
      const uint64_t digest = run_bits(*executor, Rank(rank));
      if (rank == 0) std::printf("digest | %016llx\n", static_cast<unsigned long long>(digest));
    }
    std::fflush(stdout);
    say({.kind = RankMessage::kDone});
  });
  int rank = 0;
  for (RankMessage message; ranks.next(&rank, &message);) {
  }
  return 0;
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  const int ranks = argc == 4 ? std::atoi(argv[2]) : 0;
  const std::string what = argc == 4 ? argv[3] : "";
  if (ranks < 1 || (what != "bits" && (what != "figures" || ranks != 1))) {
    std::fprintf(stderr, "usage: gpu_run MODEL RANKS bits | gpu_run MODEL 1 figures\n");
    return 2;
  }
  try {
    return helios::run(argv[1], ranks, what);
  } catch (const std::exception& e) {
    const bool refused = std::strstr(e.what(), helios::kJoining) != nullptr;
    std::printf("%s | %s\n", refused ? "skip" : "fail", e.what());
    return refused ? 77 : 1;
  }
}
