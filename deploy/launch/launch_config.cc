#include "deploy/launch/launch_config.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <boost/program_options/value_semantic.hpp>

#include "common/base/cpu_affinity.h"
#include "common/launch/cpu_binding.h"
#include "common/launch/speculative_config.h"

namespace helios {
namespace {

namespace po = boost::program_options;

enum class Kind { kText, kCount, kAlternatives, kSize, kGib, kPort, kOneOf, kSpeculative, kSwitch };

// Who is told: nobody (the launcher's own), the coordinator, the workers, or both.
enum Callee { kNobody = 0, kCoordinator = 1, kWorkers = 2 };

struct Flag {
  const char* name;
  Kind kind;
  int callee;
  const char* choices = "";  // for kOneOf, separated by '|'
  int most = 999'999'999;    // for kSize; the callee would refuse more, behind the log lines of those already started
};

constexpr int kMostGib = 1 << 20;

constexpr Flag kFlags[] = {
    {"model", Kind::kText, kNobody},
    {"new-cluster-key", Kind::kSwitch, kNobody},
    {"nproc", Kind::kSize, kNobody, "", 8},
    {"threads-per-rank", Kind::kSize, kNobody, "", 1024},
    {"cpu-bind", Kind::kText, kNobody},
    {"nnodes", Kind::kSize, kNobody, "", 8},
    {"node-rank", Kind::kCount, kNobody},
    {"master-addr", Kind::kText, kNobody},
    {"master-port", Kind::kPort, kNobody},
    {"api-key", Kind::kText, kNobody},
    {"host", Kind::kText, kCoordinator},
    {"port", Kind::kPort, kCoordinator},
    {"served-model-name", Kind::kText, kCoordinator},
    {"collective", Kind::kOneOf, kCoordinator, "auto|shm|gloo"},
    {"chat-template", Kind::kText, kCoordinator},
    {"reasoning-parser", Kind::kOneOf, kCoordinator, "auto|none|qwen3|deepseek_r1"},
    {"tool-call-parser", Kind::kOneOf, kCoordinator, "auto|none|hermes|llama3_json|mistral"},
    {"reasoning-content", Kind::kOneOf, kCoordinator, "on|off"},
    {"prefix-cache", Kind::kOneOf, kCoordinator, "on|off"},
    {"prompt-tokens-details", Kind::kOneOf, kCoordinator, "on|off"},
    {"speculative-config", Kind::kSpeculative, kCoordinator},
    {"max-waiting", Kind::kSize, kCoordinator, "", 1'000'000},
    {"io-threads", Kind::kSize, kCoordinator, "", 64},
    {"device", Kind::kOneOf, kWorkers, "cpu|cuda"},
    {"dtype", Kind::kOneOf, kWorkers, "auto|float32|bfloat16|float16"},
    {"kv-cache-dtype", Kind::kOneOf, kWorkers, "auto|float32|bfloat16"},
    {"tp-reduce", Kind::kOneOf, kWorkers, "canonical|fast"},
    {"max-num-seqs", Kind::kSize, kWorkers, "", 4096},
    {"max-model-len", Kind::kSize, kWorkers, "", 1 << 24},
    {"prefill-chunk", Kind::kSize, kWorkers, "", 1 << 16},
    {"max-logprobs", Kind::kAlternatives, kWorkers},
    {"logprob-token-ids", Kind::kOneOf, kWorkers, "on|off"},
    {"prompt-logprobs", Kind::kSwitch, kWorkers},
    {"kv-cache-tokens", Kind::kSize, kWorkers},
    {"kv-cache-gib", Kind::kGib, kWorkers},
    {"host-cache-gib", Kind::kGib, kWorkers},
    {"log-level", Kind::kOneOf, kCoordinator | kWorkers, "trace|debug|info|warning|error|off"},
};

Error invalid(std::string message) { return {Errc::kInvalidArgument, std::move(message), ""}; }

std::optional<int> parse_int(const std::string& text) {
  if (text.empty() || text.size() > 9 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::stoi(text);
}

/// Digits with at most one point among them.
bool is_decimal(const std::string& text) {
  const auto digits = [](char c) { return c >= '0' && c <= '9'; };
  return text.size() <= 15 && std::any_of(text.begin(), text.end(), digits) &&
         std::count(text.begin(), text.end(), '.') <= 1 &&
         std::all_of(text.begin(), text.end(), [&](char c) { return c == '.' || digits(c); });
}

bool is_choice(std::string_view value, std::string_view choices) {
  return !value.empty() &&
         ("|" + std::string(choices) + "|").find("|" + std::string(value) + "|") != std::string::npos &&
         value.find('|') == std::string_view::npos;
}

Status check_value(const Flag& flag, const std::string& value) {
  const std::optional<int> number = parse_int(value);
  switch (flag.kind) {
    case Kind::kText:
      if (value.empty()) return invalid(fmt::format("--{} is empty", flag.name));
      break;
    case Kind::kCount:
      if (!number) return invalid(fmt::format("--{} {}: expected a number of at least 0", flag.name, value));
      break;
    case Kind::kAlternatives:
      if (!number || *number > 20) return invalid(fmt::format("--{} {}: expected 0 to 20", flag.name, value));
      break;
    case Kind::kSize:
      if (!number || *number < 1 || *number > flag.most) {
        return invalid(fmt::format("--{} {}: expected 1 to {}", flag.name, value, flag.most));
      }
      break;
    case Kind::kGib:
      if (!is_decimal(value))
        return invalid(fmt::format("--{} {}: expected GiB, a number such as 4 or 0.5", flag.name, value));
      if (std::stod(value) > kMostGib) {
        return invalid(fmt::format("--{} {}: expected 0 to {} GiB", flag.name, value, kMostGib));
      }
      break;
    case Kind::kPort:
      if (!number || *number > 65535)
        return invalid(fmt::format("--{} {}: expected a port, 0 to 65535", flag.name, value));
      break;
    case Kind::kOneOf:
      if (!is_choice(value, flag.choices))
        return invalid(fmt::format("--{} {}: expected {}", flag.name, value, flag.choices));
      break;
    case Kind::kSpeculative:
      if (const auto config = parse_speculative_config(value); !config)
        return invalid(fmt::format("--{}: {}", flag.name, config.error().message));
      break;
    case Kind::kSwitch:
      break;
  }
  return Ok{};
}

// Name to value. Boost splits the words; what they mean is checked here.
Result<std::map<std::string, std::string>> read_flags(const std::vector<std::string>& arguments) {
  po::options_description description;
  description.add_options()("help,h", "");
  for (const Flag& flag : kFlags) {
    flag.kind == Kind::kSwitch ? description.add_options()(flag.name, "")
                               : description.add_options()(flag.name, po::value<std::string>(), "");
  }
  description.add_options()("word", po::value<std::vector<std::string>>(), "");
  po::positional_options_description words;  // collected only to be named when refused
  words.add("word", -1);
  std::map<std::string, std::string> values;
  try {
    namespace style = po::command_line_style;
    const po::parsed_options parsed = po::command_line_parser(arguments)
                                          .options(description)
                                          .positional(words)
                                          .style(style::unix_style & ~style::allow_guessing)
                                          .run();
    for (const po::option& option : parsed.options) {
      if (option.string_key == "word") return invalid(fmt::format("unexpected word \"{}\"", option.value.front()));
      if (!values.emplace(option.string_key, option.value.empty() ? "" : option.value.front()).second) {
        return invalid(fmt::format("--{} is given twice", option.string_key));
      }
    }
  } catch (const po::error& error) {
    return invalid(error.what());
  }
  return values;
}

/// Takes the flag apart: each rank is told its own list.
Status take_cpu_bind(const std::string& how, LaunchConfig* config) {
  if (how == "none") return Ok{};
  if (how == "auto") {
    config->cpu_bind.assign(static_cast<size_t>(config->num_local), how);
    return Ok{};
  }
  const Result<std::vector<std::vector<int>>> lists = parse_cpu_lists(how);
  if (!lists.ok()) return invalid("--cpu-bind: " + lists.error().message);
  if (std::cmp_not_equal(lists->size(), config->num_local)) {
    return invalid(fmt::format("--cpu-bind {}: {} list{} of CPUs for --nproc {}: expected one a rank, | between them",
                               how, lists->size(), lists->size() == 1 ? "" : "s", config->num_local));
  }
  const std::vector<HostCpu> host = host_cpus(allowed_cpus());
  for (const std::vector<int>& list : *lists) {
    const std::string text = print_cpu_list(list);
    if (const Result<CpuBinding> bound = bind_rank(text, 0, 1, config->threads_per_rank, host); !bound.ok()) {
      return invalid(fmt::format("--cpu-bind {}: {}", how, bound.error().message));
    }
    config->cpu_bind.push_back(text);
  }
  return Ok{};
}

Status check_together(const LaunchConfig& config, const std::map<std::string, std::string>& values) {
  constexpr auto is_world_size = [](int n) { return n == 1 || n == 2 || n == 4 || n == 8; };
  const auto given = [&](const char* name) { return values.contains(name); };
  const auto is = [&](const char* name, const char* value) { return given(name) && values.at(name) == value; };
  if (!is_world_size(config.num_local))
    return invalid(fmt::format("--nproc {}: expected 1, 2, 4 or 8", config.num_local));
  if (config.node_rank >= config.num_nodes) {
    return invalid(fmt::format("--node-rank {}: expected less than --nnodes {}", config.node_rank, config.num_nodes));
  }
  if (!is_world_size(config.world_size())) {
    return invalid(fmt::format("--nnodes {} with --nproc {} makes {} ranks: expected 1, 2, 4 or 8", config.num_nodes,
                               config.num_local, config.world_size()));
  }
  if (config.num_nodes > 1 && !given("master-addr")) {
    return invalid(fmt::format("--nnodes {} needs --master-addr, the address of node 0", config.num_nodes));
  }
  if (config.num_nodes > 1 && !given("node-rank"))
    return invalid(fmt::format("--nnodes {} needs --node-rank", config.num_nodes));
  if (config.num_nodes == 1 && (given("master-addr") || given("master-port"))) {
    return invalid("--master-addr and --master-port need --nnodes 2 or more");
  }
  if (is("master-port", "0")) return invalid("--master-port 0: the nodes must agree on a port");
  if (config.num_nodes > 1 && is("collective", "shm")) {
    return invalid("--collective shm works within one host: with several nodes leave it out or use gloo");
  }
  if (given("prompt-logprobs") && given("max-logprobs") && !is("max-logprobs", "20")) {
    return invalid("--prompt-logprobs needs --max-logprobs 20");
  }
  if (is("tp-reduce", "fast") && !is("device", "cuda")) return invalid("--tp-reduce fast is for --device cuda");
  if (given("kv-cache-tokens") && given("kv-cache-gib")) {
    return invalid("--kv-cache-tokens and --kv-cache-gib both say how large the KV cache is: expected one of them");
  }
  if (is("prefix-cache", "off") && given("host-cache-gib") && std::stod(values.at("host-cache-gib")) > 0.0) {
    return invalid("--host-cache-gib keeps what the prefix cache knows: it needs --prefix-cache on");
  }
  if (is("logprob-token-ids", "on") && given("max-logprobs") && !is("max-logprobs", "20")) {
    return invalid("--logprob-token-ids on needs --max-logprobs 20");
  }
  return Ok{};
}

void append(std::vector<std::string>& command, const Flags& flags) {
  for (const auto& [name, value] : flags) {
    command.push_back("--" + name);
    if (!value.empty()) command.push_back(value);  // a switch has none
  }
}

}  // namespace

Result<std::optional<LaunchConfig>> parse_launch_config(const std::vector<std::string>& arguments) {
  Result<std::map<std::string, std::string>> read = read_flags(arguments);
  if (!read) return read.error();
  const std::map<std::string, std::string>& values = *read;
  if (values.contains("help")) return std::optional<LaunchConfig>();
  LaunchConfig config;
  for (const Flag& flag : kFlags) {
    const auto found = values.find(flag.name);
    if (found == values.end()) continue;
    if (const Status good = check_value(flag, found->second); !good) return good.error();
    if (flag.callee & kCoordinator) config.coordinator_flags.emplace_back(flag.name, found->second);
    if (flag.callee & kWorkers) config.worker_flags.emplace_back(flag.name, found->second);
    if (flag.kind == Kind::kSpeculative) {  // the ranks need not know where proposals come from
      const int32_t num_tokens = parse_speculative_config(found->second).value().num_tokens;
      config.worker_flags.emplace_back("num-speculative-tokens", std::to_string(num_tokens));
    }
  }
  const auto number = [&](const char* name, int otherwise) {
    return values.contains(name) ? *parse_int(values.at(name)) : otherwise;
  };
  if (values.contains("new-cluster-key")) return invalid("--new-cluster-key prints a key and takes no other flag");
  if (!values.contains("model")) return invalid("--model DIR is missing");
  config.model = values.at("model");
  config.num_local = number("nproc", 1);
  config.num_nodes = number("nnodes", 1);
  config.node_rank = number("node-rank", 0);
  if (const Status good = check_together(config, values); !good) return good.error();
  const std::string cpu_bind = values.contains("cpu-bind") ? values.at("cpu-bind") : "none";
  const bool listed = cpu_bind != "none" && cpu_bind != "auto";  // then a rank has as many threads as its list CPUs
  const int share = std::max(1, static_cast<int>(allowed_cpus().size()) / config.num_local);
  config.threads_per_rank = number("threads-per-rank", listed ? 0 : share);
  if (const Status good = take_cpu_bind(cpu_bind, &config); !good) return good.error();
  if (values.contains("chat-template")) config.chat_template = values.at("chat-template");
  if (values.contains("api-key")) config.api_key = values.at("api-key");
  if (values.contains("log-level")) parse_log_level(values.at("log-level"), &config.log_level);
  if (config.num_nodes > 1) {
    const std::string& address = values.at("master-addr");
    const bool ipv6 = address.find(':') != std::string::npos && address.front() != '[';
    config.master = fmt::format("tcp://{}:{}", ipv6 ? "[" + address + "]" : address, number("master-port", 29500));
  }
  return std::optional(std::move(config));
}

std::vector<std::string> coordinator_command(const LaunchConfig& config, const std::string& bin_dir,
                                             const std::string& endpoint) {
  std::vector<std::string> command = {
      bin_dir + "/helios-coordinator",     "--model",         config.model, "--world-size",
      std::to_string(config.world_size()), "--rank-endpoint", endpoint,     "--die-with-parent"};
  append(command, config.coordinator_flags);
  return command;
}

std::vector<std::string> worker_command(const LaunchConfig& config, const std::string& bin_dir,
                                        const std::string& endpoint, int local_rank) {
  std::vector<std::string> command = {bin_dir + "/helios-worker",
                                      "--model",
                                      config.model,
                                      "--coordinator",
                                      endpoint,
                                      "--rank",
                                      std::to_string(config.node_rank * config.num_local + local_rank),
                                      "--world-size",
                                      std::to_string(config.world_size()),
                                      "--threads-per-rank",
                                      std::to_string(config.threads_per_rank),
                                      "--status-port",
                                      "0",
                                      "--die-with-parent"};
  if (!config.cpu_bind.empty()) append(command, {{"cpu-bind", config.cpu_bind[static_cast<size_t>(local_rank)]}});
  append(command, config.worker_flags);
  return command;
}

const char* launch_help() {
  return R"(helios-launch --model DIR [flags]: serves a model over HTTP with one coordinator and N rank workers.

When ready it prints one line on stdout, `ready http://HOST:PORT`; logs go to stderr. SIGTERM or
Ctrl-C drains and exits 0, a second one ends at once. If a rank is lost, only the ranks restart.

  --model DIR              Hugging Face directory (config.json, tokenizer.json, safetensors)
  --nproc N                ranks on this host: 1, 2, 4 or 8 (default 1)
  --device cpu|cuda        where ranks compute (default cpu)
  --dtype TYPE             auto (as stored), float32, bfloat16 or float16 (default auto)
  --kv-cache-dtype TYPE    float32; bfloat16: half the memory (auto: with --dtype bfloat16)
  --tp-reduce HOW          canonical (default): the same bits at every --nproc; fast: NCCL adds
  --threads-per-rank N     CPU threads of a rank (default: usable CPUs / nproc)
  --cpu-bind HOW           none; auto: ranks share out the CPUs by NUMA node; or 0-3|4-7 (none)
  --host ADDR              HTTP address (default 127.0.0.1)
  --port N                 HTTP port, 0 picks a free one (default 8000)
  --served-model-name NAME name in the API (default: the directory's)
  --api-key KEY            clients must send it as a bearer token; also read from HELIOS_API_KEY
  --max-num-seqs N         sequences that run at once (default 32)
  --max-model-len N        longest prompt plus output, in tokens (default: the model's own)
  --prefill-chunk N        prompt tokens computed in one step (default 512)
  --kv-cache-tokens N      tokens of the KV cache (default: what a quarter of free memory holds)
  --kv-cache-gib G         or its GiB a rank
  --host-cache-gib G       host memory a rank where known prefixes come back from (default 0: none)
  --max-logprobs K         most alternatives a token, 0 to 20; 0: no logprobs (default 20)
  --logprob-token-ids on|off   logprobs of ids that the client selects (default on where K is 20)
  --prompt-logprobs        score prompts: prompt_logprobs, and echo with logprobs (takes memory)
  --chat-template FILE     Jinja template of conversations (default: the model directory's own)
  --reasoning-parser NAME  auto (by the chat template), none, qwen3 or deepseek_r1 (default auto)
  --tool-call-parser NAME  auto, none, hermes, llama3_json or mistral (default auto)
  --reasoning-content on|off   chat's reasoning under its older name too (default off)
  --prefix-cache on|off    compute a prefix that several prompts share once (default on)
  --speculative-config J   tokens are guessed ahead: {"method":"ngram","num_speculative_tokens":4}
  --prompt-tokens-details on|off   usage says how many prompt tokens it gave (default off)
  --max-waiting N          sequences that may wait their turn; more get 429 (default 1024)
  --io-threads N           threads for HTTP, tokenising and text (default 2)
  --collective auto|shm|gloo   how CPU ranks exchange, GPU ranks meet (auto: shm on one host)
  --log-level LEVEL        trace, debug, info, warning, error or off (default info)
  --nnodes N               the same command on N hosts (default 1)
  --node-rank R            of these, this one's number, 0 to N-1; node 0 runs the coordinator
  --master-addr A          node 0's address
  --master-port P          its port for ranks (default 29500)
  --new-cluster-key        prints a HELIOS_CLUSTER_KEY, which several nodes must share, and exits
  -h, --help               this text

Exit code: 0 after a drain, 1 the model cannot be served, 2 a wrong flag, else the coordinator's.
HELIOS_BIN_DIR: where helios-coordinator and helios-worker are, if not beside helios-launch.
)";
}

}  // namespace helios
