// helios-bench: measures the machine's limits, forks the ranks, and says how near to the limits they come.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "kernels/base/machine_limits.h"
#include "worker/bench/bench_options.h"
#include "worker/bench/bench_plan.h"
#include "worker/bench/bench_report.h"
#include "worker/bench/rank_group.h"
#include "worker/bench/rank_session.h"
#include "worker/collective/rendezvous.h"

namespace helios {
namespace {

constexpr auto kTimeEach = std::chrono::milliseconds(150);  // of each limit, between rounds
constexpr auto kPeerTimeout = std::chrono::seconds(60);     // a dead peer is noticed at once, a stopped one after this

/// What one rank process does.
void run_rank(int rank, const BenchOptions& options, const ModelConfig& config, const std::string& group_key,
              const Gate& gate, const RankGroup::Say& say) {
  const std::unique_ptr<Communicator> communicator = make_communicator({.collective = "shm",
                                                                        .group_key = group_key,
                                                                        .rank = Rank(rank),
                                                                        .world_size = options.ranks,
                                                                        .timeout = kPeerTimeout});
  const CoreConfig core = bench_core(options, config);
  const auto executor = Executor::prepare(core, cpu_device(core), *communicator, [](double) {});
  RankMessage ready{.kind = RankMessage::kReady};
  ready.value = static_cast<double>(executor->manifest().memory.weights_bytes);
  ready.kv_cache_bytes = static_cast<double>(executor->manifest().memory.kv_cache_bytes);
  say(ready);
  RankSession session(*executor, Rank(rank));
  const std::vector<BenchWork> plan = bench_plan(config, options.contents);
  for (int round = -1; round < options.rounds; ++round) {  // the first warms up
    say({.kind = RankMessage::kPaused});
    gate.wait();
    for (size_t i = 0; i < plan.size(); ++i) {
      // Back and forth, so that no work always has the processor as the same other work left it.
      const size_t work = round % 2 == 0 ? i : plan.size() - 1 - i;
      RankMessage timed{.kind = RankMessage::kTimed, .work = static_cast<int32_t>(work)};
      const RankSession::Round measured = session.run(plan[work]);
      timed.value = measured.seconds;
      timed.words = measured.words;
      timed.sampler_words = measured.sampler_words;
      if (round >= 0 && rank == 0) say(timed);
    }
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  say({.kind = RankMessage::kDone, .value = static_cast<double>(used.ru_maxrss) * 1024});
}

/// Measured between rounds, while every rank sleeps at the gate: the machine's limits change with its neighbours.
class Limits {
 public:
  explicit Limits(int threads) : pool_(threads), meter_(pool_) {}
  void measure() {
    const MachineLimits limits = meter_.measure(kTimeEach);
    read_.push_back(limits.read_gb_per_s), fma_.push_back(limits.fma_gflop_per_s);
  }
  MachineLimits median() const { return {median_of(read_), median_of(fma_)}; }

 private:
  ThreadPool pool_;
  LimitMeter meter_;
  std::vector<double> read_, fma_;
};

/// A line on a terminal that the next one overwrites.
void progress(const std::string& text) {
  if (::isatty(STDERR_FILENO)) fmt::print(stderr, "\r\033[K{}", text);
}

int run(const BenchOptions& options) {
  const ModelConfig config = read_model_config(options.model_dir);
  const std::vector<BenchWork> plan = bench_plan(config, options.contents);
  if (plan.empty()) {
    throw LoadError(fmt::format("{}: a context of {} positions is too short to measure anything", options.model_dir,
                                config.max_positions));
  }
  progress(fmt::format("loading {} ...", options.model_dir));
  const std::string group_key = fmt::format("helios-bench-{}-{}", ::getpid(), std::random_device()());
  const Gate gate;
  RankGroup ranks(options.ranks,
                  [&](int rank, const RankGroup::Say& say) { run_rank(rank, options, config, group_key, gate, say); });
  Limits limits(options.ranks * options.threads);  // after the fork: neither its threads nor its memory are a rank's
  double weights_bytes = 0;
  BenchMemory memory;
  std::vector<std::vector<double>> seconds(plan.size());
  std::vector<BenchWords> words(plan.size());
  size_t timed = 0;
  int rank = 0, paused = 0;
  for (RankMessage message; ranks.next(&rank, &message);) {
    if (message.kind == RankMessage::kReady) {
      weights_bytes += message.value;
      memory.kv_cache_bytes += message.kv_cache_bytes / options.ranks;
    }
    if (message.kind == RankMessage::kDone) {
      memory.peak_bytes = std::max(memory.peak_bytes, message.value);
      memory.peak_bytes_all_ranks += message.value;
    }
    if (message.kind == RankMessage::kPaused && ++paused == options.ranks) {
      paused = 0;
      limits.measure();
      gate.open(options.ranks);
    }
    if (message.kind != RankMessage::kTimed) continue;
    seconds[static_cast<size_t>(message.work)].push_back(message.value);
    words[static_cast<size_t>(message.work)] = {message.words, message.sampler_words};
    progress(fmt::format("{} of {} ...", ++timed, plan.size() * static_cast<size_t>(options.rounds)));
  }
  progress("");
  std::vector<BenchFigure> figures;
  for (size_t work = 0; work < plan.size(); ++work) {
    const BenchCost cost = bench_cost(plan[work], config, options.ranks, weights_bytes);
    figures.push_back(bench_figure(plan[work], cost, limits.median(), seconds[work], words[work]));
  }
  memory.weights_bytes = weights_bytes / options.ranks;
  if (options.json) {
    print_json(stdout, options, limits.median(), memory, figures);
  } else {
    print_table(stdout, options, limits.median(), memory, figures);
  }
  return 0;
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  const auto arguments = helios::parse_bench_arguments(argc, argv);
  if (!arguments.ok()) {
    fmt::print(stderr, "helios-bench: {}\n", arguments.error().message);
    return 2;
  }
  if (arguments->help) {
    fmt::print("{}", helios::bench_help());
    return 0;
  }
  try {
    return helios::run(arguments->options);
  } catch (const std::exception& error) {
    helios::progress("");
    fmt::print(stderr, "helios-bench: {}\n", error.what());
    return 1;
  }
}
