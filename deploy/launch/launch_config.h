// The command line of helios-launch, checked, and the command lines that follow from it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/result.h"

namespace helios {

/// A flag and its value, to be passed on as given: a flag that the user left out is left to the callee's default.
using Flags = std::vector<std::pair<std::string, std::string>>;

struct LaunchConfig {
  std::string model;
  int num_local = 1;  // ranks that this host runs
  int num_nodes = 1;
  int node_rank = 0;
  int threads_per_rank = 1;           // 0: as many as each rank's list has CPUs
  std::vector<std::string> cpu_bind;  // of each local rank: auto or its list; empty: none
  std::optional<std::string> master;   // tcp://ADDR:PORT when there are several nodes
  std::optional<std::string> chat_template;
  std::optional<std::string> api_key;  // never on a command line of ours, where everyone can read it
  LogLevel log_level = LogLevel::kInfo;
  Flags coordinator_flags;
  Flags worker_flags;

  int world_size() const { return num_local * num_nodes; }
  bool has_coordinator() const { return node_rank == 0; }
};

/// Arguments without the program's name. Unset when they ask for help.
/// Errors: kInvalidArgument (unknown, malformed or contradictory flags; exit code 2), one line each.
Result<std::optional<LaunchConfig>> parse_launch_config(const std::vector<std::string>& arguments);

/// What --help prints; fits a screen.
const char* launch_help();

/// Full command lines, the program's path first. `endpoint` is where ranks meet the coordinator.
std::vector<std::string> coordinator_command(const LaunchConfig& config, const std::string& bin_dir,
                                             const std::string& endpoint);
std::vector<std::string> worker_command(const LaunchConfig& config, const std::string& bin_dir,
                                        const std::string& endpoint, int local_rank);

}  // namespace helios
