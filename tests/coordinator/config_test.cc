#include "coordinator/config.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <vector>

namespace helios::testing {
namespace {

using Environment = std::map<std::string, std::string>;

Result<CoordinatorConfig> parse(std::vector<const char*> arguments, const Environment& environment = {}) {
  arguments.insert(arguments.begin(), "helios-coordinator");
  return parse_coordinator_config(static_cast<int>(arguments.size()), arguments.data(),
                                  [&](const char* name) -> const char* {
                                    const auto found = environment.find(name);
                                    return found == environment.end() ? nullptr : found->second.c_str();
                                  });
}

std::string error_of(std::vector<const char*> arguments) {
  const auto config = parse(std::move(arguments));
  return config ? "" : config.error().message;
}

TEST(CoordinatorConfig, DefaultsAndTheDirectorysName) {
  const auto config = parse({"--model", "/some/where/demo-7b/"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->served_model_name, "demo-7b");
  EXPECT_EQ(config->host, "127.0.0.1");
  EXPECT_EQ(config->port, 8000);
  EXPECT_EQ(config->world_size, 1);
  EXPECT_EQ(config->rank_endpoint, "tcp://127.0.0.1:29500");
  EXPECT_EQ(config->api_key, "");
  EXPECT_TRUE(config->prefix_cache);
  EXPECT_EQ(config->speculative.num_tokens, 0);
  EXPECT_FALSE(config->prompt_tokens_details);
}

TEST(CoordinatorConfig, EveryFlagIsRead) {
  const auto config = parse({"--model=/m",
                             "--served-model-name",
                             "n",
                             "--host",
                             "0.0.0.0",
                             "--port",
                             "0",
                             "--nproc",
                             "2",
                             "--world-size",
                             "2",
                             "--rank-endpoint",
                             "ipc:///tmp/x",
                             "--collective",
                             "gloo",
                             "--chat-template",
                             "/t.jinja",
                             "--reasoning-parser",
                             "qwen3",
                             "--tool-call-parser",
                             "none",
                             "--reasoning-content",
                             "on",
                             "--prefix-cache",
                             "off",
                             "--prompt-tokens-details=on",
                             "--speculative-config",
                             R"({"method":"ngram","num_speculative_tokens":6,)"
                             R"("prompt_lookup_min":3,"prompt_lookup_max":4})",
                             "--max-waiting",
                             "7",
                             "--max-body-bytes",
                             "2048",
                             "--api-key",
                             "k",
                             "--heartbeat-timeout-ms",
                             "900",
                             "--drain-timeout-s",
                             "3",
                             "--io-threads",
                             "4",
                             "--die-with-parent",
                             "--log-level",
                             "debug"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->served_model_name, "n");
  EXPECT_EQ(config->host, "0.0.0.0");
  EXPECT_EQ(config->port, 0);
  EXPECT_EQ(config->world_size, 2);
  EXPECT_EQ(config->rank_endpoint, "ipc:///tmp/x");
  EXPECT_EQ(config->collective, "gloo");
  EXPECT_EQ(config->max_waiting, 7u);
  EXPECT_EQ(config->speculative.num_tokens, 6);
  EXPECT_EQ(config->speculative.lookup_min, 3);
  EXPECT_EQ(config->speculative.lookup_max, 4);
  EXPECT_EQ(config->max_body_bytes, 2048u);
  EXPECT_EQ(config->api_key, "k");
  EXPECT_EQ(config->heartbeat_timeout.count(), 900);
  EXPECT_EQ(config->drain_timeout.count(), 3);
  EXPECT_EQ(config->io_threads, 4);
  EXPECT_TRUE(config->die_with_parent);
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
}

TEST(CoordinatorConfig, WrongFlagsAreOneLineThatNamesThem) {
  const struct {
    std::vector<const char*> arguments;
    const char* mentions;
  } cases[] = {{{}, "--model"},
               {{"--model", "/m", "--porrt", "1"}, "porrt"},
               {{"--model", "/m", "--por", "1"}, "por"},
               {{"--model", "/m", "stray"}, "'stray'"},
               {{"--model", "/m", "--port"}, "port"},
               {{"--model", "/m", "--port", "70000"}, "--port 70000"},
               {{"--model", "/m", "--port", "-1"}, "port"},
               {{"--model", "/m", "--port", "80x"}, "--port 80x"},
               {{"--model", "/m", "--port", "1", "--port", "2"}, "twice"},
               {{"--model", "/m", "--world-size", "3"}, "1, 2, 4 or 8"},
               {{"--model", "/m", "--world-size", "2", "--nproc", "4"}, "contradict"},
               {{"--model", "/m", "--collective", "mpi"}, "auto, shm or gloo"},
               {{"--model", "/m", "--rank-endpoint", "here"}, "--rank-endpoint: endpoint: expected tcp://HOST:PORT"},
               {{"--model", "/m", "--log-level", "loud"}, "loud"},
               {{"--model", "/m", "--max-waiting", "0"}, "--max-waiting 0"},
               {{"--model", "/m", "--speculative-config", "{}"}, "--speculative-config: method: expected"},
               {{"--model", "/m", "--speculative-config", ""}, "--speculative-config is empty"},
               {{"--model", ""}, "model"}};
  for (const auto& one : cases) {
    const std::string message = error_of(one.arguments);
    EXPECT_NE(message.find(one.mentions), std::string::npos) << one.mentions << ": '" << message << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(CoordinatorConfig, TheEnvironmentFillsInWhatFlagsLeaveOut) {
  const Environment environment = {
      {"HELIOS_API_KEY", "from-env"}, {"HELIOS_WORLD_SIZE", "4"}, {"HELIOS_COORDINATOR", "tcp://127.0.0.1:1234"}};
  const auto config = parse({"--model", "/m"}, environment);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->api_key, "from-env");
  EXPECT_EQ(config->rank_endpoint, "tcp://127.0.0.1:1234");
  EXPECT_EQ(parse({"--model", "/m", "--api-key", "flag"}, environment)->api_key, "flag");
}

TEST(CoordinatorConfig, HelpFitsAScreenAndNamesEveryFlag) {
  EXPECT_TRUE(parse({"--help"})->help);
  EXPECT_TRUE(parse({"--model", "/m", "--help"})->help);
  EXPECT_TRUE(parse({"-h"})->help);
  const std::string help = coordinator_help();
  int lines = 0;
  std::istringstream text(help);
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_LE(lines, 46);
  for (const char* flag :
       {"--model", "--served-model-name", "--host", "--port", "--world-size", "--nproc", "--rank-endpoint",
        "--collective", "--chat-template", "--reasoning-parser", "--tool-call-parser", "--max-waiting",
        "--max-body-bytes", "--api-key", "--heartbeat-timeout-ms", "--drain-timeout-s", "--io-threads",
        "--die-with-parent", "--log-level", "--speculative-config"}) {
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace helios::testing
