#include "worker/bench/rank_team.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "common/base/cpu_affinity.h"
#include "common/launch/cpu_binding.h"
#include "worker/bench/rank_session.h"
#include "worker/collective/rendezvous.h"

namespace helios {
namespace {

constexpr auto kPeerTimeout = std::chrono::seconds(60);  // a dead peer is noticed at once, a stopped one after this
constexpr char kNoMoreWork = 127;                        // every other word is the number of a piece of work

/// Where helios-worker would run with the same flags.
void bind_rank_process(const CommunicatorConfig& group, const BenchOptions& options, CoreConfig& core) {
  const Result<CpuBinding> binding = bind_rank(options.cpu_bind, group.rank.value, group.world_size, core.num_threads,
                                               host_cpus(allowed_cpus()));
  if (!binding.ok()) throw std::runtime_error("--cpu-bind: " + binding.error().message);
  if (options.cpu_bind != "none" && binding->cpus.empty()) {
    throw std::runtime_error("--cpu-bind auto: " + binding->why_unbound);  // figures would say what was not so
  }
  if (binding->cpus.empty()) return;
  if (const int error = bind_this_thread(binding->cpus); error != 0) {
    throw std::runtime_error(fmt::format("CPUs {}: {}", print_cpu_list(binding->cpus), std::strerror(error)));
  }
  if (binding->each_thread) core.thread_cpus = binding->cpus;
}

/// What one rank process does.
void run_rank(const CommunicatorConfig& group, const BenchOptions& options, const ModelConfig& config, int threads,
              const Gate& gate, const RankGroup::Say& say) {
  CoreConfig core = bench_core(options, config);
  core.num_threads = threads;
  bind_rank_process(group, options, core);
  const std::unique_ptr<Communicator> communicator = make_communicator(group);
  const auto executor = Executor::prepare(core, cpu_device(core), *communicator, [](double) {});
  const std::vector<BenchWork> plan = bench_plan(config, options.contents, options.only);
  RankSession session(*executor, group.rank, plan);
  RankMessage ready{.kind = RankMessage::kReady};
  ready.value = static_cast<double>(executor->manifest().memory.weights_bytes);
  ready.kv_cache_bytes = static_cast<double>(executor->manifest().memory.kv_cache_bytes);
  ready.element_bytes = executor->manifest().kv_cache_dtype == "float32" ? 4 : 2;
  say(ready);
  for (char word = gate.wait(); word != kNoMoreWork; word = gate.wait()) {
    const RankSession::Round measured = session.run(plan.at(static_cast<size_t>(word)));
    RankMessage timed{.kind = RankMessage::kTimed, .work = word, .value = measured.seconds};
    timed.words = measured.words;
    timed.sampler_words = measured.sampler_words;
    say(timed);
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  say({.kind = RankMessage::kDone, .value = static_cast<double>(used.ru_maxrss) * 1024});
}

}  // namespace

RankTeam::RankTeam(const BenchOptions& options, const ModelConfig& config, int ranks, int threads)
    : ranks_(ranks),
      group_(ranks, [&, key = fmt::format("helios-bench-{}-{}", ::getpid(), std::random_device()())](
                        int rank, const RankGroup::Say& say) {
        run_rank({.collective = "shm",
                  .group_key = key,
                  .rank = Rank(rank),
                  .world_size = ranks,
                  .timeout = kPeerTimeout},
                 options, config, threads, gate_, say);
      }) {}

void RankTeam::wait_ready() {
  int rank = 0;
  RankMessage message;
  for (int waiting = ranks_; waiting > 0; --waiting) {
    group_.next(&rank, &message);
    memory_.weights_bytes += message.value / ranks_;
    memory_.kv_cache_bytes += message.kv_cache_bytes / ranks_;
    memory_.element_bytes = message.element_bytes;
  }
}

RankTeam::Timed RankTeam::run(size_t work) {
  gate_.open(ranks_, static_cast<char>(work));
  Timed timed;
  int rank = 0;
  RankMessage message;
  for (int waiting = ranks_; waiting > 0; --waiting) {
    group_.next(&rank, &message);
    if (rank == 0) timed = {message.value, {message.words, message.sampler_words}};
  }
  return timed;
}

BenchMemory RankTeam::finish() {
  gate_.open(ranks_, kNoMoreWork);
  int rank = 0;
  for (RankMessage message; group_.next(&rank, &message);) {
    memory_.peak_bytes = std::max(memory_.peak_bytes, message.value);
    memory_.peak_bytes_all_ranks += message.value;
  }
  return memory_;
}

}  // namespace helios
