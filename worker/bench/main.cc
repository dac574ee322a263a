// helios-bench: measures the machine's limits, forks the ranks, and says how near to the limits they come.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "kernels/base/machine_limits.h"
#include "worker/bench/bench_options.h"
#include "worker/bench/bench_plan.h"
#include "worker/bench/bench_report.h"
#include "worker/bench/rank_team.h"

namespace helios {
namespace {

constexpr auto kTimeEach = std::chrono::milliseconds(150);  // of each limit, between rounds

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

/// `of` all pieces of work, in a round's order: back and forth, so that no work always has the processor as the same
/// other work left it. Round -1 warms up.
size_t work_of(int round, size_t i, size_t of) { return round % 2 == 0 ? i : of - 1 - i; }

int run_alone(const BenchOptions& options, const ModelConfig& config, const std::vector<BenchWork>& plan) {
  RankTeam team(options, config, options.ranks, options.threads);
  Limits limits(options.ranks * options.threads);  // after the fork: neither its threads nor its memory are a rank's
  team.wait_ready();
  std::vector<std::vector<double>> seconds(plan.size());
  std::vector<BenchWords> words(plan.size());
  for (int round = -1; round < options.rounds; ++round) {
    limits.measure();
    for (size_t i = 0; i < plan.size(); ++i) {
      const size_t work = work_of(round, i, plan.size());
      const RankTeam::Timed timed = team.run(work);
      if (round < 0) continue;
      seconds[work].push_back(timed.seconds);
      words[work] = timed.words;
      progress(fmt::format("{} of {} ...", static_cast<size_t>(round) * plan.size() + i + 1,
                           plan.size() * static_cast<size_t>(options.rounds)));
    }
  }
  const BenchMemory memory = team.finish();
  progress("");
  std::vector<BenchFigure> figures;
  for (size_t work = 0; work < plan.size(); ++work) {
    const BenchCost cost = bench_cost(plan[work], config, options.ranks, team.weights_bytes(), memory.element_bytes);
    figures.push_back(bench_figure(plan[work], cost, limits.median(), seconds[work], words[work]));
  }
  if (options.json) {
    print_json(stdout, options, limits.median(), memory, figures);
  } else {
    print_table(stdout, options, limits.median(), memory, figures);
  }
  return 0;
}

/// Both sides are loaded before anything is timed, and do each piece of work one directly behind the other: whoever was
/// second is first in the next round, and a ratio is of two neighbours.
int run_paired(const BenchOptions& options, const ModelConfig& config, const std::vector<BenchWork>& plan) {
  RankTeam one(options, config, 1, options.ranks * options.threads);
  RankTeam ranks(options, config, options.ranks, options.threads);
  one.wait_ready();
  ranks.wait_ready();
  std::vector<BenchPairs> pairs(plan.size());
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t i = 0; i < plan.size(); ++i) {
      const size_t work = work_of(round, i, plan.size());
      const bool one_first = (round + static_cast<int>(work)) % 2 == 0;
      double one_seconds = one_first ? one.run(work).seconds : 0;
      const double ranks_seconds = ranks.run(work).seconds;
      if (!one_first) one_seconds = one.run(work).seconds;
      if (round < 0) continue;
      pairs[work].one.push_back(plan[work].tokens / one_seconds);
      pairs[work].ranks.push_back(plan[work].tokens / ranks_seconds);
      progress(fmt::format("{} of {} pairs ...", static_cast<size_t>(round) * plan.size() + i + 1,
                           plan.size() * static_cast<size_t>(options.rounds)));
    }
  }
  one.finish();
  ranks.finish();
  progress("");
  print_pairs(stdout, options, plan, pairs);
  return 0;
}

int run(const BenchOptions& options) {
  const ModelConfig config = read_model_config(options.model_dir);
  const std::vector<BenchWork> plan = bench_plan(config, options.contents, options.only);
  if (plan.empty()) {
    throw LoadError(fmt::format("{}: a context of {} positions{} leaves nothing to measure", options.model_dir,
                                config.max_positions, options.only.empty() ? "" : " and --only " + options.only));
  }
  progress(fmt::format("loading {} ...", options.model_dir));
  return options.paired ? run_paired(options, config, plan) : run_alone(options, config, plan);
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
