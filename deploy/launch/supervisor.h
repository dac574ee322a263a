// Starts the coordinator and this host's ranks, keeps the set of ranks alive, and ends everything.
//
// Ranks live and die together: one that ends leaves the others in an exchange that cannot finish, so the whole set is
// ended and started again, while the coordinator stays up and answers. Thread: main, the only one.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "deploy/launch/child_process.h"
#include "deploy/launch/launch_config.h"

namespace helios {

class Supervisor {
 public:
  /// `bin_dir` holds the two programs; `endpoint` is where ranks meet the coordinator.
  Supervisor(const LaunchConfig& config, std::string bin_dir, std::string endpoint);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Returns the launcher's exit code when no child is left. Call once.
  int run();

  /// Blocks the signals that run() reads, SIGPIPE too. In main, before anything else.
  static void block_signals();

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Worker {
    ChildProcess process;
    std::optional<Time> stopped_since;
  };

  void start_coordinator();
  void start_workers();
  void wait_for_event();
  void read_signals();
  void read_coordinator_output();
  void forward_line(const std::string& line);
  void reap_children();
  void on_stop_request(int signal);
  void on_coordinator_exit(int wait_status);
  void on_worker_exit(int local_rank, int wait_status);
  void check_deadlines();
  void restart_workers_later(const std::string& reason);
  void end_workers(std::chrono::milliseconds grace);
  void end_everything(int exit_code, const std::string& reason);
  void kill_everything();
  void fail_start(const Error& error);
  bool any_worker_runs() const;
  int global_rank(int local_rank) const { return config_.node_rank * config_.num_local + local_rank; }
  std::optional<Time> next_deadline() const;

  const LaunchConfig config_;
  const std::string bin_dir_;
  const std::string endpoint_;

  int signal_fd_ = -1;
  int output_fd_ = -1;         // the coordinator's stdout
  std::string output_buffer_;  // an unfinished line of it

  ChildProcess coordinator_;
  std::vector<Worker> workers_;

  bool was_ready_ = false;  // the set has served: from now on a rank that ends is restarted, whatever its exit code
  bool stopping_ = false;   // somebody asked us to stop: the coordinator drains
  bool ending_ = false;     // no restarts: the last children are being ended
  int exit_code_ = 0;
  int num_failures_ = 0;  // of the set, since its last healthy minute
  Time set_started_;
  bool set_failed_ = false;              // the rest of the set is being ended
  std::optional<Time> restart_at_;       // set when all of the set are gone
  std::optional<Time> kill_workers_at_;  // they have had SIGTERM
  std::optional<Time> kill_all_at_;      // the coordinator has had SIGTERM
  std::chrono::milliseconds restart_delay_{0};
};

}  // namespace helios
