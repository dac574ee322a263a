// helios-worker: one process, one rank. Builds every part and wires them; what each does is in worker/rank.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "common/base/cpu_affinity.h"
#include "common/base/host_key.h"
#include "common/base/log.h"
#include "worker/cuda/cuda_module.h"
#include "worker/config.h"
#include "worker/rank/coordinator_link.h"
#include "worker/rank/drain.h"
#include "worker/rank/rank_process.h"
#include "worker/rank/status_pages.h"
#include "worker/rank/status_server.h"

namespace helios {
namespace {

/// How cores are prepared on the configured device. Errors: kUnsupported, kUnavailable, kMismatch: this process cannot
/// compute on it.
Result<PrepareCore> core_maker(const WorkerConfig& config) {
  if (config.device == "cpu") {
    return PrepareCore([&config](Communicator& communicator, const std::function<void(double)>& progress) {
      return PreparedCore{
          .executor = Executor::prepare(config.core, cpu_device(config.core), communicator, progress)};
    });
  }
  const Result<const CudaModule*> module = load_cuda_module();
  if (!module.ok()) return module.error();
  const Result<int> devices = (*module)->probe();
  if (!devices.ok()) return devices.error();
  if (config.local_rank >= *devices) {
    return Error{Errc::kUnavailable,
                 fmt::format("rank {} is number {} of this host and takes the device of that number, but it sees {}; "
                             "where each rank sees a device of its own, give --local-rank 0",
                             config.rank.value, config.local_rank, *devices)};
  }
  return PrepareCore([&config, cuda = *module](Communicator& hosts, const std::function<void(double)>& progress) {
    return cuda->prepare(config.core, config.local_rank, hosts, config.collective_timeout, progress);
  });
}

std::string status_url(const WorkerConfig& config, const Hello& hello, uint16_t port) {
  const bool any = config.status_host == "0.0.0.0" || config.status_host == "::";
  const std::string& host = any ? hello.host_name : config.status_host;
  const bool ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", ipv6 ? "[" : "", host, ipv6 ? "]" : "", port);
}

uint64_t random_life() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

/// Where this rank's threads run, for its first log line.
std::string cpus_text(const WorkerConfig& config) {
  if (config.cpus.cpus.empty()) return print_cpu_list(allowed_cpus()) + ", unbound";
  return print_cpu_list(config.cpus.cpus) + (config.cpus.each_thread ? ", a thread each" : ", shared by the threads");
}

int run(const WorkerConfig& config) {
  if (config.die_with_parent && !die_with_parent()) return kExitDrained;
  // Before any other thread is started: they inherit it.
  if (const int error = config.cpus.cpus.empty() ? 0 : bind_this_thread(config.cpus.cpus); error != 0) {
    fmt::print(stderr, "helios-worker: --cpu-bind: CPUs {}: {}\n", print_cpu_list(config.cpus.cpus),
               std::strerror(error));
    return kExitCannotServe;
  }
  const Result<PrepareCore> prepare = core_maker(config);
  if (!prepare.ok()) {
    fmt::print(stderr, "helios-worker: --device {}: {}\n", config.device, prepare.error().message);
    return kExitCannotServe;
  }
  const Result<std::string> address = local_address_towards(config.coordinator);
  if (!address.ok()) {
    fmt::print(stderr, "helios-worker: --coordinator: {}\n", address.error().message);
    return kExitRestart;  // a name server that answers later, a network that is not up yet
  }

  WakeEvent wake;
  TerminationSignals signals(wake, config.die_with_parent);
  RankVitals vitals;
  const StatusPages pages(config.rank, vitals);
  Hello hello{.rank = config.rank,
              .world_size = config.world_size,
              .life = random_life(),
              .pid = ::getpid(),
              .host_key = host_key(),
              .host_name = *address,
              .device = config.device};
  std::unique_ptr<StatusServer> status;
  if (config.status_port >= 0) {
    auto started = StatusServer::start(config.status_host, static_cast<uint16_t>(config.status_port),
                                       [&pages](std::string_view path) { return pages.page(path); });
    if (!started.ok()) {
      fmt::print(stderr, "helios-worker: --status-host {} --status-port {}: {}\n", config.status_host,
                 config.status_port, started.error().message);
      return kExitCannotServe;
    }
    status = *std::move(started);
    hello.status_url = status_url(config, hello, status->port());
  }
  log_info("worker_starts",
           "rank={} world_size={} from=\"{}\" coordinator={} pid={} device={} threads={} cpus=\"{}\" status_url={}",
           config.rank.value, config.world_size, config.place_source, config.coordinator, hello.pid, config.device,
           config.core.num_threads, cpus_text(config), hello.status_url.empty() ? "off" : hello.status_url);
  if (!config.cpus.why_unbound.empty()) {
    log_warning("rank_unbound", "rank={} cpu_bind=auto why=\"{}\"", config.rank.value, config.cpus.why_unbound);
  }

  CoordinatorLink link({.endpoint = config.coordinator,
                        .key = config.cluster_key,
                        .hello = hello,
                        .termination_requested = TerminationSignals::requested,
                        .end_process = [](int exit_code) { ::_exit(exit_code); }},
                       vitals, wake);
  return serve_rank(hello, config.collective_timeout, *prepare, link, vitals);
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  const auto arguments = helios::parse_worker_arguments(argc, argv, [](const char* name) { return std::getenv(name); });
  if (!arguments.ok()) {
    fmt::print(stderr, "helios-worker: {} (see --help)\n", arguments.error().message);
    return helios::kExitUsage;
  }
  if (arguments->help) {
    std::fputs(helios::worker_help().c_str(), stdout);
    return 0;
  }
  helios::init_logging(fmt::format("worker-{}", arguments->config.rank.value), arguments->config.log_level);
  return helios::run(arguments->config);
}
