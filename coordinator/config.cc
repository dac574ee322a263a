#include "coordinator/config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>

#include "common/base/vocab_range.h"
#include "common/net/zmq_socket.h"

namespace helios {
namespace {

namespace po = boost::program_options;
using Values = std::map<std::string, std::string>;

constexpr int64_t kMiB = 1024 * 1024;

Error invalid(std::string message) { return {Errc::kInvalidArgument, std::move(message), ""}; }

Result<Values> read_flags(int argc, const char* const* argv) {
  po::options_description flags;
  for (const char* name : {"model",
                           "served-model-name",
                           "host",
                           "port",
                           "world-size",
                           "nproc",
                           "rank-endpoint",
                           "collective",
                           "chat-template",
                           "reasoning-parser",
                           "tool-call-parser",
                           "reasoning-content",
                           "prefix-cache",
                           "speculative-config",
                           "prompt-tokens-details",
                           "max-waiting",
                           "max-body-bytes",
                           "api-key",
                           "heartbeat-timeout-ms",
                           "drain-timeout-s",
                           "io-threads",
                           "log-level"}) {
    flags.add_options()(name, po::value<std::string>());
  }
  flags.add_options()("die-with-parent", po::bool_switch())("help,h", po::bool_switch());
  Values values;
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const auto parsed = po::command_line_parser(argc, argv).options(flags).style(style).run();
    for (const auto& option : parsed.options) {
      if (option.position_key >= 0) return invalid(fmt::format("unexpected argument '{}'", option.value.front()));
      const std::string value = option.value.empty() ? "" : option.value.front();
      if (!values.emplace(option.string_key, value).second)
        return invalid(fmt::format("--{} is given twice", option.string_key));
    }
  } catch (const po::error& e) {
    return invalid(e.what());
  }
  return values;
}

/// Reads values one by one and keeps the first error.
class FlagReader {
 public:
  explicit FlagReader(const Values& values) : values_(values) {}

  std::optional<std::string> text(const std::string& name) {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    if (found->second.empty()) fail(fmt::format("--{} is empty", name));
    return found->second;
  }
  std::optional<int64_t> number(const std::string& name, int64_t low, int64_t high) {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    const std::string& digits = found->second;
    const bool numeric = !digits.empty() && digits.size() <= 15 &&
                         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    const int64_t value = numeric ? std::stoll(digits) : -1;
    if (!numeric || value < low || value > high)
      fail(fmt::format("--{} {}: expected a number from {} to {}", name, digits, low, high));
    return value;
  }
  bool on_or_off(const std::string& name, bool otherwise) {
    const std::string value = text(name).value_or(otherwise ? "on" : "off");
    if (value != "on" && value != "off") fail(fmt::format("--{} {}: expected on or off", name, value));
    return value == "on";
  }
  void fail(std::string message) {
    if (!error_) error_ = invalid(std::move(message));
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const Values& values_;
  std::optional<Error> error_;
};

std::optional<int> read_world_size(FlagReader& flags) {
  const auto world_size = flags.number("world-size", 1, 8), nproc = flags.number("nproc", 1, 8);
  if (world_size && nproc && *world_size != *nproc) {
    flags.fail(fmt::format("--world-size {} and --nproc {} contradict each other", *world_size, *nproc));
  }
  const auto given = world_size ? world_size : nproc;
  return given ? std::optional<int>(static_cast<int>(*given)) : std::nullopt;
}

std::string directory_name(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path full = std::filesystem::weakly_canonical(path, ignored);
  if (full.empty()) full = path;
  return full.filename().empty() ? full.parent_path().filename().string() : full.filename().string();
}

void read_into(FlagReader& flags, CoordinatorConfig* config) {
  config->model_dir = flags.text("model").value_or("");
  config->served_model_name = flags.text("served-model-name").value_or(directory_name(config->model_dir));
  config->host = flags.text("host").value_or(config->host);
  config->port = static_cast<uint16_t>(flags.number("port", 0, 65535).value_or(config->port));
  config->collective = flags.text("collective").value_or(config->collective);
  if (config->collective != "auto" && config->collective != "shm" && config->collective != "gloo") {
    flags.fail(fmt::format("--collective {}: expected auto, shm or gloo", config->collective));
  }
  config->chat_template = flags.text("chat-template").value_or("");
  config->reasoning_parser = flags.text("reasoning-parser").value_or(config->reasoning_parser);
  config->tool_call_parser = flags.text("tool-call-parser").value_or(config->tool_call_parser);
  config->reasoning_content = flags.on_or_off("reasoning-content", false);
  config->prefix_cache = flags.on_or_off("prefix-cache", true);
  if (const auto given = flags.text("speculative-config")) {
    const Result<SpeculativeConfig> speculative = parse_speculative_config(*given);
    if (!speculative) flags.fail("--speculative-config: " + speculative.error().message);
    if (speculative) config->speculative = *speculative;
  }
  config->prompt_tokens_details = flags.on_or_off("prompt-tokens-details", false);
  config->max_waiting = static_cast<size_t>(flags.number("max-waiting", 1, 1000000).value_or(1024));
  config->max_body_bytes = static_cast<size_t>(flags.number("max-body-bytes", 1024, 1024 * kMiB).value_or(16 * kMiB));
  config->heartbeat_timeout =
      std::chrono::milliseconds(flags.number("heartbeat-timeout-ms", 300, 600000).value_or(2000));
  config->drain_timeout = std::chrono::seconds(flags.number("drain-timeout-s", 0, 86400).value_or(20));
  config->io_threads = static_cast<int>(flags.number("io-threads", 1, 64).value_or(2));
  const std::string level = flags.text("log-level").value_or("info");
  if (!parse_log_level(level, &config->log_level)) {
    flags.fail(fmt::format("--log-level {}: expected trace, debug, info, warning, error or off", level));
  }
}

}  // namespace

Result<CoordinatorConfig> parse_coordinator_config(int argc, const char* const* argv, const GetEnv& getenv) {
  Result<Values> values = read_flags(argc, argv);
  if (!values) return values.error();
  CoordinatorConfig config;
  config.help = values->contains("help");
  if (config.help) return config;
  if (!values->contains("model")) return invalid("--model DIR is missing");
  config.die_with_parent = values->contains("die-with-parent");

  FlagReader flags(*values);
  read_into(flags, &config);
  const char* environment_key = getenv("HELIOS_API_KEY");
  config.api_key = flags.text("api-key").value_or(environment_key ? environment_key : "");
  const std::optional<int> world_size = read_world_size(flags);
  const std::optional<std::string> endpoint = flags.text("rank-endpoint");
  if (flags.error()) return *flags.error();

  Result<CoordinatorPlace> place = resolve_coordinator_place({world_size, endpoint}, getenv);
  if (!place) return place.error();
  config.world_size = place->world_size.value_or(1);
  if (!valid_world_size(config.world_size)) {
    return invalid(fmt::format("--world-size {}: expected 1, 2, 4 or 8", config.world_size));
  }
  config.rank_endpoint = place->endpoint;
  if (const Status good = check_endpoint(config.rank_endpoint); !good) {
    return invalid("--rank-endpoint: " + good.error().message);
  }
  Result<std::optional<ClusterKey>> key = cluster_key_for(config.rank_endpoint, getenv(kClusterKeyVariable));
  if (!key) return key.error();
  config.cluster_key = *std::move(key);
  return config;
}

const char* coordinator_help() {
  return R"(helios-coordinator --model DIR [flags]: serves the HTTP API, and plans the work of N rank workers.

When ready for the first time it prints one line on stdout, `ready http://HOST:PORT`; logs go to
stderr. SIGTERM or Ctrl-C drains and exits 0, a second one ends at once. helios-launch starts it
together with its ranks.

  --model DIR               Hugging Face directory (tokenizer.json, config.json)
  --served-model-name NAME  name in the API (default: the directory's)
  --host ADDR               HTTP address (default 127.0.0.1)
  --port N                  HTTP port, 0 picks a free one (default 8000)
  --world-size N            ranks to wait for: 1, 2, 4 or 8 (default: what the launcher says, else
                            1); also --nproc
  --rank-endpoint URL       where ranks connect, tcp://HOST:PORT or ipc://PATH (default: what the
                            launcher says, else tcp://127.0.0.1:29500)
  --collective auto|shm|gloo  how CPU ranks exchange, GPU ranks meet (default auto: shm on one
                            host, else gloo)
  --chat-template FILE      Jinja template of conversations (default: the model directory's own)
  --reasoning-parser NAME   auto (by the chat template), none, qwen3 or deepseek_r1 (default auto)
  --tool-call-parser NAME   auto, none, hermes, llama3_json or mistral (default auto)
  --reasoning-content on|off  chat's reasoning under its older name too (default off)
  --prefix-cache on|off     compute a prefix that several prompts share once; ranks may have a host
                            tier behind it, their --host-cache-gib (default on)
  --speculative-config J    guess tokens from the text, verify several a step: {"method":"ngram",
                            "num_speculative_tokens":4,"prompt_lookup_max":5,"prompt_lookup_min":5};
                            ranks need --num-speculative-tokens of as many
  --prompt-tokens-details on|off  usage says how many prompt tokens it gave (default off)
  --max-waiting N           sequences that may wait for a slot; more get 429 (default 1024)
  --max-body-bytes N        largest request body (default 16777216)
  --api-key KEY             clients must send it as a bearer token; also read from HELIOS_API_KEY
  --heartbeat-timeout-ms N  a rank silent for longer is lost (default 2000)
  --drain-timeout-s N       what running requests get after SIGTERM (default 20)
  --io-threads N            threads for HTTP, tokenising and text (default 2)
  --die-with-parent         end when the process that started this one ends
  --log-level LEVEL         trace, debug, info, warning, error or off (default info)
  -h, --help                this text

HELIOS_CLUSTER_KEY: the key that ranks must share, for a rank endpoint that other hosts can reach.
Exit code: 0 after a drain, 1 the model cannot be served or the address is taken, 2 a wrong flag.
)";
}

}  // namespace helios
