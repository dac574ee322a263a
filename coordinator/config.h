// The coordinator's flags, checked and with their defaults filled in. Thread: main, before the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/launch/launch_env.h"
#include "common/launch/speculative_config.h"
#include "common/net/cluster_key.h"

namespace helios {

struct CoordinatorConfig {
  std::string model_dir;
  std::string served_model_name;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: the kernel picks
  int world_size = 1;
  std::string rank_endpoint;
  std::optional<ClusterKey> cluster_key;
  std::string collective = "auto";
  std::string chat_template;              // a file, in place of the model's own; empty: the model's
  std::string reasoning_parser = "auto";  // a name of coordinator/parser's, or auto: what the chat template says
  std::string tool_call_parser = "auto";
  bool reasoning_content = false;  // chat's reasoning under its older name too
  bool prefix_cache = true;
  SpeculativeConfig speculative;       // num_tokens 0: off
  bool prompt_tokens_details = false;  // usage says how many prompt tokens were cached
  size_t max_waiting = 1024;
  size_t max_body_bytes = 16 * 1024 * 1024;
  std::string api_key;  // empty: open
  std::chrono::milliseconds heartbeat_timeout{2000};
  std::chrono::seconds drain_timeout{20};
  int io_threads = 2;
  bool die_with_parent = false;
  LogLevel log_level = LogLevel::kInfo;
  bool help = false;  // --help was given; the rest is unset
};

/// Errors: kInvalidArgument, one line that names the flag, what was found and what was expected.
Result<CoordinatorConfig> parse_coordinator_config(int argc, const char* const* argv, const GetEnv& getenv);

/// Fits a screen.
const char* coordinator_help();

}  // namespace helios
