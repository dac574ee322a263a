// helios-launch: one command that serves a model with a coordinator and the ranks of this host.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/launch/launch_env.h"
#include "common/net/cluster_key.h"
#include "deploy/launch/launch_config.h"
#include "deploy/launch/supervisor.h"

namespace {

using helios::Error;
using helios::LaunchConfig;
using helios::Result;

int complain(const Error& error, int exit_code) {
  std::fprintf(stderr, "helios-launch: %s%s\n", error.message.c_str(), exit_code == 2 ? " (see --help)" : "");
  return exit_code;
}

std::string find_bin_dir() {
  if (const char* given = std::getenv("HELIOS_BIN_DIR"); given && *given) return given;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

// Where the ranks of one host meet their coordinator: a socket that only this user can reach. Removed with the object.
class PrivateDirectory {
 public:
  static Result<std::string> make() {
    const char* base = std::getenv("TMPDIR");
    // A socket's path has at most 107 characters.
    std::string path = (base && *base && std::strlen(base) < 80 ? std::string(base) : "/tmp") + "/helios-XXXXXX";
    if (!::mkdtemp(path.data())) {
      return Error{helios::Errc::kInternal, fmt::format("cannot make {}: {}", path, std::strerror(errno)), ""};
    }
    return path;
  }
  explicit PrivateDirectory(std::string path) : path_(std::move(path)) {}
  ~PrivateDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;

 private:
  const std::string path_;
};

// The key is on our own command line for as long as it takes to read it.
void hide_api_key(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    char* value = nullptr;
    if (word == "--api-key" && i + 1 < argc) value = argv[i + 1];
    if (word.starts_with("--api-key=")) value = argv[i] + std::strlen("--api-key=");
    if (value) std::memset(value, 'x', std::strlen(value));
  }
}

int launch(LaunchConfig config) {
  helios::init_logging("launch", config.log_level);
  if (!std::filesystem::is_directory(config.model)) {
    return complain({helios::Errc::kNotFound, fmt::format("--model {}: no such directory", config.model), ""}, 1);
  }
  if (config.chat_template && !std::filesystem::is_regular_file(*config.chat_template)) {
    return complain(
        {helios::Errc::kNotFound, fmt::format("--chat-template {}: no such file", *config.chat_template), ""}, 1);
  }
  const char* key = std::getenv("HELIOS_API_KEY");
  if (!config.api_key && key && *key) config.api_key = key;

  std::string directory, endpoint;
  if (config.master) {
    Result<std::string> bound = config.has_coordinator() ? helios::bind_endpoint(*config.master) : *config.master;
    if (!bound) return complain(bound.error(), 1);
    endpoint = *bound;
  } else {
    Result<std::string> made = PrivateDirectory::make();
    if (!made) return complain(made.error(), 1);
    directory = *made;
    endpoint = "ipc://" + directory + "/ranks";
  }
  if (const auto cluster_key = helios::cluster_key_for(endpoint, std::getenv(helios::kClusterKeyVariable));
      !cluster_key) {
    return complain(cluster_key.error(), 2);
  }
  const PrivateDirectory cleanup(directory);
  helios::Supervisor supervisor(config, find_bin_dir(), endpoint);
  return supervisor.run();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--new-cluster-key"}) {
    std::puts(helios::new_cluster_key().c_str());
    return 0;
  }
  hide_api_key(argc, argv);
  Result<std::optional<LaunchConfig>> config = helios::parse_launch_config(arguments);
  if (!config) return complain(config.error(), 2);
  if (!*config) {
    std::fputs(helios::launch_help(), stdout);
    return 0;
  }
  helios::Supervisor::block_signals();
  return launch(std::move(**config));
}
