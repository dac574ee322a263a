// The worker's flags: what each sets, and the one line that refuses a wrong one.
#include "worker/config.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "common/base/cpu_affinity.h"

namespace helios {
namespace {

const char* no_variables(const char*) { return nullptr; }

Result<WorkerArguments> parse(std::vector<std::string> flags, const GetEnv& getenv = no_variables) {
  std::vector<const char*> argv = {"helios-worker"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return parse_worker_arguments(static_cast<int>(argv.size()), argv.data(), getenv);
}

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> all = {"--model", "m", "--rank", "1", "--world-size", "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(WorkerConfig, DefaultsServeOneRankOnTheCpu) {
  const WorkerConfig config = parse({"--model", "dir", "--rank", "0", "--world-size", "1"}).value().config;
  EXPECT_EQ(config.core.model_dir, "dir");
  EXPECT_EQ(config.core.dtype, ComputeDtype::kAuto);
  EXPECT_GE(config.core.num_threads, 1);
  EXPECT_EQ(config.core.slot_capacity, 32);
  EXPECT_EQ(config.core.prefill_chunk, 512);
  EXPECT_EQ(config.core.max_logprobs, 20);
  EXPECT_TRUE(config.core.logprob_token_ids);
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.rank, Rank(0));
  EXPECT_EQ(config.coordinator, kDefaultCoordinator);
  EXPECT_EQ(config.status_host, "127.0.0.1");
  EXPECT_EQ(config.status_port, 0);
  EXPECT_FALSE(config.die_with_parent);
}

TEST(WorkerConfig, EveryFlagArrives) {
  const auto trusts_the_network = [](const char* name) {
    return std::string_view(name) == "HELIOS_CLUSTER_KEY" ? "none" : nullptr;
  };
  const WorkerConfig config = parse(with({"--coordinator=tcp://10.0.0.1:29500",
                                          "--device",
                                          "cuda",
                                          "--dtype",
                                          "bfloat16",
                                          "--threads-per-rank",
                                          "3",
                                          "--max-num-seqs",
                                          "7",
                                          "--max-model-len",
                                          "99",
                                          "--prefill-chunk",
                                          "64",
                                          "--max-logprobs",
                                          "5",
                                          "--logprob-token-ids",
                                          "off",
                                          "--num-speculative-tokens",
                                          "4",
                                          "--kv-cache-tokens",
                                          "5000000000",
                                          "--host-cache-gib",
                                          "0.5",
                                          "--collective-timeout-ms",
                                          "1500",
                                          "--status-host",
                                          "0.0.0.0",
                                          "--status-port",
                                          "-1",
                                          "--die-with-parent",
                                          "--log-level",
                                          "debug"}),
                                    trusts_the_network)
                                  .value()
                                  .config;
  EXPECT_EQ(config.coordinator, "tcp://10.0.0.1:29500");
  EXPECT_EQ(config.rank, Rank(1));
  EXPECT_EQ(config.world_size, 2);
  EXPECT_EQ(config.device, "cuda");
  EXPECT_EQ(config.core.dtype, ComputeDtype::kBFloat16);
  EXPECT_EQ(config.core.num_threads, 3);
  EXPECT_EQ(config.core.slot_capacity, 7);
  EXPECT_EQ(config.core.max_model_len, 99);
  EXPECT_EQ(config.core.prefill_chunk, 64);
  EXPECT_EQ(config.core.max_logprobs, 5);
  EXPECT_FALSE(config.core.logprob_token_ids);
  EXPECT_EQ(config.core.num_speculative_tokens, 4);
  EXPECT_EQ(parse(with({})).value().config.core.num_speculative_tokens, 0);
  EXPECT_EQ(config.core.kv_cache_tokens, 5000000000);
  EXPECT_EQ(config.core.host_tier_bytes, 1 << 29);
  EXPECT_EQ(parse(with({"--kv-cache-gib", "3"}))->config.core.kv_cache_bytes, int64_t{3} << 30);
  EXPECT_EQ(config.collective_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.status_host, "0.0.0.0");
  EXPECT_EQ(config.status_port, -1);
  EXPECT_TRUE(config.die_with_parent);
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
}

TEST(WorkerConfig, R39_PromptScoringIsOffUntilItIsAskedFor) {
  EXPECT_FALSE(parse(with({})).value().config.core.prompt_logprobs);
  EXPECT_EQ(parse(with({"--device", "cuda", "--tp-reduce", "fast"})).value().config.core.tp_reduce, TpReduce::kFast);
  EXPECT_EQ(parse(with({})).value().config.core.tp_reduce, TpReduce::kCanonical);
  EXPECT_TRUE(parse(with({"--prompt-logprobs"})).value().config.core.prompt_logprobs);
}

TEST(WorkerConfig, CpusAreThisRanksListAndThreadsFollow) {
  EXPECT_TRUE(parse(with({}))->config.cpus.cpus.empty());
  const int cpu = allowed_cpus().front();
  const WorkerConfig own = parse(with({"--cpu-bind", std::to_string(cpu)})).value().config;
  EXPECT_EQ(own.cpus.cpus, std::vector<int>{cpu});
  EXPECT_EQ(own.core.num_threads, 1);
  EXPECT_EQ(own.core.thread_cpus, std::vector<int>{cpu});
  EXPECT_TRUE(parse(with({"--device", "cuda", "--cpu-bind", std::to_string(cpu)}))->config.core.thread_cpus.empty());
  const std::string second = "65000|" + std::to_string(cpu);
  EXPECT_EQ(parse(with({"--cpu-bind", second})).value().config.cpus.cpus, std::vector<int>{cpu});
  EXPECT_TRUE(parse(with({"--cpu-bind", "auto", "--threads-per-rank", "999"}))->config.cpus.cpus.empty());
}

TEST(WorkerConfig, CpusOfItsOwnAreNotSharedOutAgain) {
  std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                  {"OMPI_MCA_hwloc_base_binding_policy", "core"}};
  const auto getenv = [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
  const size_t all = allowed_cpus().size();
  const WorkerConfig shared = parse({"--model", "m", "--cpu-bind", "auto"}, getenv).value().config;
  EXPECT_EQ(shared.core.num_threads, static_cast<int>(std::max<size_t>(1, all / 2)));
  variables["OMPI_MCA_orte_bound_at_launch"] = "1";
  const WorkerConfig own = parse({"--model", "m", "--cpu-bind", "auto"}, getenv).value().config;
  EXPECT_EQ(own.core.num_threads, static_cast<int>(all));
  EXPECT_EQ(own.cpus.cpus.size(), all);
  EXPECT_EQ(own.local_rank, 1) << "which picks the device";
  EXPECT_EQ(parse({"--model", "m"}, getenv)->config.core.num_threads, static_cast<int>(all));
  const std::string lists = "65000|" + std::to_string(allowed_cpus().front());
  EXPECT_EQ(parse({"--model", "m", "--cpu-bind", lists}, getenv)->config.core.num_threads, 1) << "the operator's word";
}

TEST(WorkerConfig, TheKvCachesTypeIsTheCoresOwnUntilItIsNamed) {
  EXPECT_EQ(parse(with({}))->config.core.kv_cache_dtype, KvCacheDtype::kAuto);
  EXPECT_EQ(parse(with({"--kv-cache-dtype", "float32"}))->config.core.kv_cache_dtype, KvCacheDtype::kFloat32);
  EXPECT_EQ(parse(with({"--dtype", "float16", "--device", "cuda"}))->config.core.dtype, ComputeDtype::kFloat16);
  EXPECT_EQ(parse(with({"--kv-cache-dtype", "bfloat16"}))->config.core.kv_cache_dtype, KvCacheDtype::kBFloat16);
}

TEST(WorkerConfig, ALaunchersVariablesSayWhichRankThisIs) {  // D6
  const std::map<std::string, std::string> variables = {{"OMPI_COMM_WORLD_RANK", "3"},
                                                        {"OMPI_COMM_WORLD_SIZE", "4"},
                                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  const auto getenv = [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
  const WorkerConfig config = parse({"--model", "m"}, getenv).value().config;
  EXPECT_EQ(config.rank, Rank(3));
  EXPECT_EQ(config.world_size, 4);
  EXPECT_EQ(config.place_source, "Open MPI");
}

TEST(WorkerConfig, WrongFlagsAreRefusedInOneLineThatNamesThem) {
  struct Case {
    std::vector<std::string> flags;
    const char* named;
  };
  const std::vector<Case> cases = {
      {{}, "--model"},
      {{"--model", "m"}, "--rank"},
      {{"--model", "m", "--rank", "0"}, "world"},
      {{"--model", "m", "--rank", "2", "--world-size", "2"}, "rank"},
      {{"--model", "m", "--rank", "0", "--world-size", "3"}, "--world-size"},
      {with({"--rank", "0"}), "rank"},
      {with({"--modle", "x"}), "modle"},
      {with({"--max-num", "3"}), "max-num"},  // no guessing of prefixes
      {with({"stray"}), "unexpected argument"},
      {with({"--max-num-seqs", "many"}), "max-num-seqs"},
      {with({"--max-num-seqs"}), "max-num-seqs"},
      {with({"--max-num-seqs", "0"}), "--max-num-seqs: expected 1 to 4096, found 0"},
      {with({"--max-num-seqs", "99999999999"}), "max-num-seqs"},
      {with({"--max-model-len", "-1"}), "--max-model-len"},
      {with({"--prefill-chunk", "0"}), "--prefill-chunk"},
      {with({"--prefill-chunk", "65537"}), "--prefill-chunk"},
      {with({"--max-logprobs", "21"}), "--max-logprobs: expected 0 to 20, found 21"},
      {with({"--num-speculative-tokens", "16"}), "--num-speculative-tokens: expected 0 to 15, found 16"},
      {with({"--num-speculative-tokens", "-1"}), "--num-speculative-tokens"},
      {with({"--logprob-token-ids", "yes"}), "--logprob-token-ids"},
      {with({"--prompt-logprobs", "--max-logprobs", "5"}), "--prompt-logprobs: needs --max-logprobs 20"},
      {with({"--logprob-token-ids", "on", "--max-logprobs", "5"}), "--logprob-token-ids on: needs --max-logprobs 20"},
      {with({"--kv-cache-tokens", "-5"}), "--kv-cache-tokens"},
      {with({"--kv-cache-gib", "-1"}), "--kv-cache-gib"},
      {with({"--host-cache-gib", "nan"}), "--host-cache-gib"},
      {with({"--kv-cache-gib", "1", "--kv-cache-tokens", "64"}), "--kv-cache-tokens and --kv-cache-gib"},
      {with({"--device", "tpu"}), "--device"},
      {with({"--dtype", "int8"}), "--dtype: expected auto, float32, bfloat16 or float16, found 'int8'"},
      {with({"--kv-cache-dtype", "fp8"}), "--kv-cache-dtype: expected auto, float32 or bfloat16, found 'fp8'"},
      {with({"--tp-reduce", "fast"}), "--tp-reduce fast: is for --device cuda"},
      {with({"--tp-reduce", "quick"}), "--tp-reduce: expected canonical or fast, found 'quick'"},
      {with({"--threads-per-rank", "-1"}), "--threads-per-rank"},
      {with({"--collective-timeout-ms", "0"}), "--collective-timeout-ms"},
      {with({"--status-port", "70000"}), "--status-port"},
      {with({"--cpu-bind", "all"}), "--cpu-bind: 'all' is no list of CPUs"},
      {with({"--cpu-bind", "65000"}), "--cpu-bind: this process may not use CPU 65000"},
      {with({"--cpu-bind", "0", "--threads-per-rank", "2"}), "--cpu-bind: 0 is too few CPUs for --threads-per-rank 2"},
      {with({"--coordinator", "localhost:1"}), "--coordinator"},
      {with({"--log-level", "loud"}), "--log-level"},
  };
  for (const Case& c : cases) {
    const auto result = parse(c.flags);
    ASSERT_FALSE(result.ok()) << c.named;
    EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
    EXPECT_NE(result.error().message.find(c.named), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
  }
}

TEST(WorkerConfig, HelpFitsAScreenAndNamesEveryFlag) {
  EXPECT_TRUE(parse({"--help"}).value().help);
  EXPECT_TRUE(parse({"-h", "--device", "tpu"}).value().help);
  const std::string help = worker_help();
  int lines = 0;
  std::istringstream text(help);
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_LE(lines, 48);
  for (const char* flag : {"--model",
                           "--coordinator",
                           "--rank",
                           "--world-size",
                           "--local-rank",
                           "--device",
                           "--dtype",
                           "--kv-cache-dtype",
                           "--tp-reduce",
                           "--threads-per-rank",
                           "--cpu-bind",
                           "--max-num-seqs",
                           "--max-model-len",
                           "--prefill-chunk",
                           "--kv-cache-tokens",
                           "--kv-cache-gib",
                           "--host-cache-gib",
                           "--max-logprobs",
                           "--logprob-token-ids",
                           "--prompt-logprobs",
                           "--num-speculative-tokens",
                           "--collective-timeout-ms",
                           "--status-host",
                           "--status-port",
                           "--die-with-parent",
                           "--log-level"}) {
    EXPECT_NE(help.find(std::string("  ") + flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace helios
