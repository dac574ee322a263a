// helios-worker's flags, read and checked into one struct. Thread: main, before any other.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/launch/cpu_binding.h"
#include "common/launch/launch_env.h"
#include "common/net/cluster_key.h"
#include "worker/replay/executor.h"

namespace helios {

struct WorkerConfig {
  CoreConfig core;  // num_threads is resolved: at least 1
  std::string device = "cpu";

  std::string coordinator;  // a valid endpoint
  std::optional<ClusterKey> cluster_key;
  Rank rank;
  int world_size = 1;
  int local_rank = 0;        // among the ranks of this host: which GPU
  std::string place_source;  // what rank and world size were taken from
  CpuBinding cpus;           // where the process runs; core.thread_cpus repeats them where each thread has its own
  std::chrono::milliseconds collective_timeout{60000};

  std::string status_host = "127.0.0.1";
  int status_port = 0;  // 0: the kernel picks; -1: off

  bool die_with_parent = false;
  LogLevel log_level = LogLevel::kInfo;
};

struct WorkerArguments {
  bool help = false;  // nothing else is set then
  WorkerConfig config;
};

/// Errors: kInvalidArgument, one line that names the flag or variable, what was found and what is expected.
Result<WorkerArguments> parse_worker_arguments(int argc, const char* const* argv, const GetEnv& getenv);

/// What --help prints: every flag, on one screen.
std::string worker_help();

}  // namespace helios
