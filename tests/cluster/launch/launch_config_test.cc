#include "deploy/launch/launch_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "common/base/cpu_affinity.h"

namespace helios {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

LaunchConfig parse(const std::string& line) {
  Result<std::optional<LaunchConfig>> config = parse_launch_config(words(line));
  EXPECT_TRUE(config.ok()) << line;
  EXPECT_TRUE(config->has_value()) << line;
  return **config;
}

std::string refusal(const std::string& line) {
  const Result<std::optional<LaunchConfig>> config = parse_launch_config(words(line));
  return config.ok() ? "accepted" : config.error().message;
}

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : " ") + part;
  return all;
}

TEST(LaunchConfig, PassesOnOnlyWhatTheUserGave) {
  const LaunchConfig config = parse("--model /m --threads-per-rank 3");
  EXPECT_EQ(config.world_size(), 1);
  EXPECT_TRUE(config.has_coordinator());
  EXPECT_EQ(join(coordinator_command(config, "/bin", "ipc:///x")),
            "/bin/helios-coordinator --model /m --world-size 1 --rank-endpoint ipc:///x --die-with-parent");
  EXPECT_EQ(join(worker_command(config, "/bin", "ipc:///x", 0)),
            "/bin/helios-worker --model /m --coordinator ipc:///x --rank 0 --world-size 1 --threads-per-rank 3 "
            "--status-port 0 --die-with-parent");
}

TEST(LaunchConfig, EveryFlagReachesWhoNeedsIt) {
  const LaunchConfig config = parse(
      "--model /m --nproc 2 --host 0.0.0.0 --port 0 --device cpu --dtype float32 --threads-per-rank 1 "
      "--served-model-name demo --max-num-seqs 8 --max-model-len 512 --prefill-chunk 64 --max-logprobs 0 "
      "--logprob-token-ids off --kv-cache-tokens 4096 --host-cache-gib 0.5 --collective shm --api-key secret "
      "--log-level debug");
  EXPECT_NE(join(worker_command(parse("--model /m --prompt-logprobs --max-num-seqs 3"), "/bin", "e", 0))
                .find("--die-with-parent --max-num-seqs 3 --prompt-logprobs"),
            std::string::npos);
  const std::string coordinator = join(coordinator_command(config, "/bin", "e"));
  const std::string worker = join(worker_command(config, "/bin", "e", 1));
  EXPECT_NE(coordinator.find("--host 0.0.0.0 --port 0 --served-model-name demo --collective shm --log-level debug"),
            std::string::npos)
      << coordinator;
  EXPECT_NE(worker.find("--rank 1 --world-size 2"), std::string::npos) << worker;
  EXPECT_NE(
      worker.find(
          "--device cpu --dtype float32 --max-num-seqs 8 --max-model-len 512 --prefill-chunk 64 "
          "--max-logprobs 0 --logprob-token-ids off --kv-cache-tokens 4096 --host-cache-gib 0.5 --log-level debug"),
      std::string::npos)
      << worker;
  for (const std::string& command : {coordinator, worker}) EXPECT_EQ(command.find("secret"), std::string::npos);
  EXPECT_EQ(config.api_key, "secret");
  EXPECT_EQ(config.log_level, LogLevel::kDebug);
}

TEST(LaunchConfig, TheCoordinatorProposesAndRanksVerifyAsMany) {
  const LaunchConfig config =
      parse(R"(--model /m --speculative-config {"method":"ngram","num_speculative_tokens":7} --max-num-seqs 4)");
  EXPECT_NE(join(coordinator_command(config, "/b", "e"))
                .find(R"(--speculative-config {"method":"ngram","num_speculative_tokens":7})"),
            std::string::npos);
  const std::string worker = join(worker_command(config, "/b", "e", 0));
  EXPECT_NE(worker.find("--num-speculative-tokens 7"), std::string::npos) << worker;
  EXPECT_EQ(worker.find("--speculative-config"), std::string::npos) << worker;
  EXPECT_EQ(join(worker_command(parse("--model /m"), "/b", "e", 0)).find("--num-speculative"), std::string::npos);
  EXPECT_EQ(refusal(R"(--model /m --speculative-config {"method":"eagle","num_speculative_tokens":7})"),
            R"(--speculative-config: method: expected "ngram", found "eagle")");
  EXPECT_EQ(refusal("--model /m --speculative-config 4").find("--speculative-config: expected a JSON object"), 0u);
}

TEST(LaunchConfig, RanksCountAcrossNodes) {
  const LaunchConfig config =
      parse("--model /m --nproc 2 --nnodes 4 --node-rank 3 --master-addr 10.0.0.1 --master-port 4000");
  EXPECT_EQ(config.world_size(), 8);
  EXPECT_FALSE(config.has_coordinator());
  EXPECT_EQ(config.master, "tcp://10.0.0.1:4000");
  EXPECT_NE(join(worker_command(config, "/b", "e", 1)).find("--rank 7 --world-size 8"), std::string::npos);
  EXPECT_EQ(parse("--model /m --nnodes 2 --node-rank 0 --master-addr fd00::1").master, "tcp://[fd00::1]:29500");
}

TEST(LaunchConfig, ThreadsDefaultToTheCoresSharedOut) {
  const int alone = parse("--model /m").threads_per_rank;
  EXPECT_GE(alone, 1);
  EXPECT_EQ(parse("--model /m --nproc 8").threads_per_rank, std::max(1, alone / 8));
}

TEST(LaunchConfig, EachRankIsToldItsOwnCpus) {
  const std::string unbound = join(worker_command(parse("--model /m --nproc 2"), "/b", "e", 1));
  EXPECT_EQ(unbound.find("--cpu-bind"), std::string::npos) << unbound;
  const std::string shared = join(worker_command(parse("--model /m --nproc 2 --cpu-bind auto"), "/b", "e", 1));
  EXPECT_NE(shared.find("--cpu-bind auto"), std::string::npos) << shared;
  const std::string cpu = std::to_string(allowed_cpus().front());
  const LaunchConfig listed = parse("--model /m --cpu-bind " + cpu);
  EXPECT_EQ(listed.threads_per_rank, 0) << "as many as the list has CPUs";
  EXPECT_NE(join(worker_command(listed, "/b", "e", 0)).find("--cpu-bind " + cpu), std::string::npos);
  EXPECT_NE(refusal("--model /m --threads-per-rank 2 --cpu-bind " + cpu).find("too few"), std::string::npos);
}

TEST(LaunchConfig, HelpIsAskedForInAnyCompany) {
  EXPECT_FALSE(parse_launch_config({"--help"})->has_value());
  EXPECT_FALSE(parse_launch_config({"-h"})->has_value());
  EXPECT_FALSE(parse_launch_config({"--nproc", "3", "--help"})->has_value());
}

TEST(LaunchConfig, HelpFitsAScreenAndNamesEveryFlag) {
  const std::string help = launch_help();
  int lines = 0;
  std::istringstream text(help);
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_LE(lines, 46);
  for (const char* flag : {"--model",
                           "--nproc",
                           "--host",
                           "--port",
                           "--device",
                           "--dtype",
                           "--threads-per-rank",
                           "--cpu-bind",
                           "--served-model-name",
                           "--max-num-seqs",
                           "--max-model-len",
                           "--prefill-chunk",
                           "--max-logprobs",
                           "--logprob-token-ids",
                           "--prompt-logprobs",
                           "--kv-cache-tokens",
                           "--kv-cache-gib",
                           "--host-cache-gib",
                           "--collective",
                           "--api-key",
                           "--log-level",
                           "--tp-reduce",
                           "--kv-cache-dtype",
                           "--chat-template",
                           "--reasoning-parser",
                           "--tool-call-parser",
                           "--reasoning-content",
                           "--prefix-cache",
                           "--speculative-config",
                           "--prompt-tokens-details",
                           "--max-waiting",
                           "--io-threads",
                           "--new-cluster-key",
                           "--nnodes",
                           "--node-rank",
                           "--master-addr",
                           "--master-port",
                           "-h, --help"}) {
    EXPECT_NE(help.find(std::string("  ") + flag), std::string::npos) << flag;
  }
}

TEST(LaunchConfig, WrongFlagsAreRefusedInOneLineThatNamesThem) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "--model"},
      {"--nproc 2", "--model"},
      {"--model", "--model"},
      {"--model /m --frobnicate 1", "--frobnicate"},
      {"--model /m --max-mod 5", "--max-mod"},
      {"--model /m stray", "stray"},
      {"--model /m --model /n", "--model is given twice"},
      {"--model /m --max-logprobs 21", "--max-logprobs 21"},
      {"--model /m --prompt-logprobs yes", "yes"},
      {"--model /m --tp-reduce fast", "--tp-reduce fast is for --device cuda"},
      {"--model /m --prompt-logprobs --max-logprobs 5", "--prompt-logprobs needs --max-logprobs 20"},
      {"--model /m --logprob-token-ids on --max-logprobs 0", "--logprob-token-ids on needs --max-logprobs 20"},
      {"--model /m --host-cache-gib much", "--host-cache-gib much"},
      {"--model /m --host-cache-gib 1.5.2", "--host-cache-gib"},
      {"--model /m --kv-cache-gib -1", "--kv-cache-gib"},
      {"--model /m --kv-cache-gib 1 --kv-cache-tokens 64", "--kv-cache-tokens and --kv-cache-gib"},
      {"--model /m --host-cache-gib 1 --prefix-cache off", "--prefix-cache on"},
      {"--model /m --max-num-seqs 4097", "--max-num-seqs 4097: expected 1 to 4096"},
      {"--model /m --max-model-len 16777217", "expected 1 to 16777216"},
      {"--model /m --prefill-chunk 65537", "expected 1 to 65536"},
      {"--model /m --reasoning-parser nope", "auto|none|qwen3|deepseek_r1"},
      {"--model /m --tool-call-parser nope", "auto|none|hermes|llama3_json|mistral"},
      {"--model /m --nproc 3", "--nproc 3"},
      {"--model /m --nproc 16", "--nproc 16"},
      {"--model /m --nproc 0", "--nproc 0"},
      {"--model /m --nproc 2x", "--nproc 2x"},
      {"--model /m --new-cluster-key", "--new-cluster-key prints a key and takes no other flag"},
      {"--model /m --kv-cache-gib 1048577", "--kv-cache-gib 1048577: expected 0 to 1048576 GiB"},
      {"--model /m --host-cache-gib 99999999999999", "--host-cache-gib 99999999999999: expected 0 to 1048576 GiB"},
      {"--model /m --io-threads 65", "--io-threads 65: expected 1 to 64"},
      {"--model /m --max-waiting 1000001", "--max-waiting 1000001: expected 1 to 1000000"},
      {"--model /m --threads-per-rank 1025", "--threads-per-rank 1025: expected 1 to 1024"},
      {"--model /m --nproc 99999999999", "--nproc 9999"},
      {"--model /m --port 65536", "--port 65536"},
      {"--model /m --port -1", "--port"},
      {"--model /m --device tpu", "cpu|cuda"},
      {"--model /m --dtype int4", "auto|float32|bfloat16|float16"},
      {"--model /m --dtype float32|bfloat16", "--dtype"},
      {"--model /m --collective nccl", "auto|shm|gloo"},
      {"--model /m --log-level loud", "--log-level"},
      {"--model /m --max-logprobs many", "--max-logprobs"},
      {"--model /m --threads-per-rank 0", "--threads-per-rank"},
      {"--model /m --cpu-bind cores", "--cpu-bind: 'cores' is no list of CPUs"},
      {"--model /m --cpu-bind 0,0", "--cpu-bind: CPU 0 is named twice"},
      {"--model /m --nproc 2 --cpu-bind 0", "--cpu-bind 0: 1 list of CPUs for --nproc 2"},
      {"--model /m --cpu-bind 0|1", "--cpu-bind 0|1: 2 lists of CPUs for --nproc 1"},
      {"--model /m --cpu-bind 65000", "this process may not use CPU 65000"},
      {"--model /m --nnodes 2 --node-rank 2 --master-addr a", "--node-rank 2"},
      {"--model /m --node-rank 1", "--node-rank 1"},
      {"--model /m --nnodes 2 --node-rank 1", "--master-addr"},
      {"--model /m --nnodes 2 --master-addr a", "--node-rank"},
      {"--model /m --nnodes 3 --node-rank 0 --master-addr a", "3 ranks"},
      {"--model /m --nproc 8 --nnodes 2 --node-rank 0 --master-addr a", "16 ranks"},
      {"--model /m --master-addr a", "--nnodes"},
      {"--model /m --nnodes 2 --node-rank 0 --master-addr a --master-port 0", "--master-port 0"},
      {"--model /m --nnodes 2 --node-rank 0 --master-addr a --collective shm", "--collective shm"},
  };
  for (const auto& [line, part] : kCases) {
    const std::string message = refusal(line);
    EXPECT_NE(message.find(part), std::string::npos) << line << " -> " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace helios
