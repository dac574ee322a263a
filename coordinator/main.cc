// helios-coordinator: builds every part and wires them; the map of the process.
//
//   main thread      waits for signals and for the first ready rank set
//   I/O threads      connections: HTTP, tokenising, text, JSON
//   engine thread    scheduler and rank sockets
//
// HTTP opens before the ranks are there, so that probes are answered while they load.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include <fmt/format.h>

#include "common/base/log.h"
#include "coordinator/config.h"
#include "coordinator/engine/engine.h"
#include "coordinator/http/api.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/metrics.h"
#include "coordinator/parser/output_format.h"
#include "coordinator/template/chat_template.h"
#include "coordinator/tokenizer/generation_defaults.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {
namespace {

constexpr std::chrono::seconds kLastBytesLimit{2};  // for replies that are complete but not yet written

int complain(const Error& error, int exit_code) {
  std::fprintf(stderr, "helios-coordinator: %s%s\n", error.message.c_str(), exit_code == 2 ? " (see --help)" : "");
  return exit_code;
}

/// SIGTERM and SIGINT as something to poll. Construct before any thread, so that all inherit the mask.
class StopSignals {
 public:
  StopSignals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~StopSignals() { close(fd_); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int fd() const { return fd_; }
  /// The signal that has come, or 0.
  int take() {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  int fd_;
};

/// A flag that one thread sets and another polls.
class Event {
 public:
  Event() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Event() { close(fd_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  int fd() const { return fd_; }
  void set() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
  }
  bool take() {
    uint64_t count = 0;
    return read(fd_, &count, sizeof count) == sizeof count;
  }

 private:
  int fd_;
};

/// True when the signal will come: a parent that has already gone never sends it.
bool die_with_parent() {
  const pid_t parent = getppid();
  return prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent;
}

EngineConfig engine_config(const CoordinatorConfig& config, std::function<void()> on_ready) {
  EngineConfig engine;
  engine.rank_endpoint = config.rank_endpoint;
  engine.cluster_key = config.cluster_key;
  engine.ranks.world_size = config.world_size;
  engine.ranks.collective = config.collective;
  engine.ranks.heartbeat_limit = config.heartbeat_timeout;
  engine.prefix_cache = config.prefix_cache;
  engine.proposals = {config.speculative.num_tokens, config.speculative.lookup_min, config.speculative.lookup_max};
  engine.max_waiting = config.max_waiting;
  engine.on_ready = std::move(on_ready);
  return engine;
}

ServedModel served_model(const CoordinatorConfig& config) {
  const std::string configuration = fmt::format("{}|{}|{}", config.model_dir, config.world_size, config.collective);
  return {.name = config.served_model_name,
          .root = config.model_dir,
          .created = unix_seconds(),
          .fingerprint = system_fingerprint(config.served_model_name, config.world_size, configuration)};
}

/// The model's own templates are a service: without them, or with ones that this server cannot read, everything but
/// chat still works, and chat says why it does not. A file that the operator names has to be right.
Result<ChatTemplates> load_chat_templates(const CoordinatorConfig& config) {
  auto loaded = ChatTemplate::load(config.model_dir, config.chat_template);
  if (loaded) return ChatTemplates{.loaded = *loaded, .reason = ""};
  if (!config.chat_template.empty()) return loaded.error();
  if (loaded.error().code == Errc::kNotFound)
    return ChatTemplates{.loaded = nullptr, .reason = "the model has no chat template"};
  log_warning("chat_template_unusable", "reason=\"{}\"", loaded.error().message);
  return ChatTemplates{.loaded = nullptr, .reason = "the model's chat template cannot be used"};
}

Result<OutputFormat> load_output_format(const CoordinatorConfig& config, const ChatTemplates& templates) {
  OutputFormat of_model;
  if (templates.loaded) {
    of_model.reasoning = format_of_template(templates.loaded->source()).reasoning;
    of_model.tools = format_of_template(templates.loaded->tool_source()).tools;
  }
  const Result<ReasoningFormat> reasoning = reasoning_format(config.reasoning_parser, of_model);
  if (!reasoning) return Error{Errc::kInvalidArgument, "--reasoning-parser: " + reasoning.error().message, ""};
  const Result<ToolFormat> tools = tool_format(config.tool_call_parser, of_model);
  if (!tools) return Error{Errc::kInvalidArgument, "--tool-call-parser: " + tools.error().message, ""};
  return OutputFormat{*reasoning, *tools};
}

/// Readiness off, then running requests get their time. A second signal ends it all at once: that signal, else 0.
int drain(StopSignals& signals, Api& api, HttpServer& server, Engine& engine, std::chrono::milliseconds limit) {
  api.drain();
  server.close_after_replies();
  Event drained;
  std::thread drainer([&] {
    engine.drain(limit);
    drained.set();
  });
  int second = 0;
  for (bool done = false; !done;) {
    pollfd fds[2] = {{signals.fd(), POLLIN, 0}, {drained.fd(), POLLIN, 0}};
    poll(fds, 2, -1);
    done = drained.take();
    if (done) break;
    second = signals.take();
    if (second != 0) {
      log_warning("ended_at_once", "signal={}", second);
      engine.stop();
      break;
    }
  }
  drainer.join();
  const auto deadline = std::chrono::steady_clock::now() + (second != 0 ? std::chrono::seconds(0) : kLastBytesLimit);
  while (server.active_requests() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  server.stop();
  return second;
}

int serve(const CoordinatorConfig& config, StopSignals& signals) {
  Result<GenerationDefaults> defaults = load_generation_defaults(config.model_dir);
  if (!defaults) return complain(defaults.error(), 1);
  Result<ChatTemplates> chat_templates = load_chat_templates(config);
  if (!chat_templates) return complain(chat_templates.error(), 1);
  const Result<OutputFormat> output_format = load_output_format(config, *chat_templates);
  if (!output_format) return complain(output_format.error(), 2);
  // A vocabulary takes as long to read as a small model's weights: the ranks need not wait for it.
  auto loading = std::async(std::launch::async, [&config] { return Tokenizer::load(config.model_dir); });
  Result<std::string> endpoint = bind_endpoint(config.rank_endpoint);
  if (!endpoint) return complain(endpoint.error(), 1);

  // From here on each part borrows those above it, and ends before them.
  ServerMetrics metrics(config.served_model_name, config.speculative.num_tokens);
  Event ready;
  EngineConfig engine_settings = engine_config(config, [&ready] { ready.set(); });
  engine_settings.rank_endpoint = *endpoint;
  Result<std::unique_ptr<Engine>> engine = Engine::start(std::move(engine_settings), &metrics);
  if (!engine) return complain(engine.error(), 1);
  Result<std::shared_ptr<const Tokenizer>> tokenizer = loading.get();
  if (!tokenizer) return complain(tokenizer.error(), 1);
  const ProtocolLimits limits{.max_choices = static_cast<int64_t>(config.max_waiting)};
  Api api({**tokenizer, **engine, metrics, *defaults, served_model(config), limits, *chat_templates, *output_format,
           config.reasoning_content, config.prompt_tokens_details});
  Router router(config.api_key);
  api.add_routes(router);
  HttpOptions http{.host = config.host,
                   .port = config.port,
                   .io_threads = config.io_threads,
                   .max_body_bytes = config.max_body_bytes};
  http.on_response = [&metrics](int status) { metrics.on_response(status); };
  http.on_connections = [&metrics](int change) { metrics.on_connections(change); };
  Result<std::unique_ptr<HttpServer>> server = HttpServer::start(std::move(http), router);
  if (!server) return complain(server.error(), 1);
  log_info("listening", "url={} ranks={} endpoint={}", (*server)->url(), config.world_size, (*engine)->rank_endpoint());

  for (bool announced = false;;) {
    pollfd fds[2] = {{signals.fd(), POLLIN, 0}, {ready.fd(), POLLIN, 0}};
    poll(fds, 2, -1);
    if (ready.take() && !announced) {
      announced = true;
      std::printf("ready %s\n", (*server)->url().c_str());
      std::fflush(stdout);
    }
    if (const int signal_number = signals.take()) {
      log_info("draining", "signal={} limit_s={}", signal_number, config.drain_timeout.count());
      const int second = drain(signals, api, **server, **engine, config.drain_timeout);
      log_info("ended", "second_signal={}", second);
      return second == 0 ? 0 : 128 + second;
    }
  }
}

int run(int argc, char** argv) {
  const Result<CoordinatorConfig> config =
      parse_coordinator_config(argc, argv, [](const char* name) -> const char* { return std::getenv(name); });
  if (!config) return complain(config.error(), 2);
  if (config->help) {
    std::fputs(coordinator_help(), stdout);
    return 0;
  }
  init_logging("coordinator", config->log_level);
  StopSignals signals;
  if (config->die_with_parent && !die_with_parent()) return 1;
  try {
    return serve(*config, signals);
  } catch (const std::exception& e) {
    return complain({Errc::kInternal, e.what(), ""}, 1);
  }
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) { return helios::run(argc, argv); }
