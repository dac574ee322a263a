#include "deploy/launch/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"

extern char** environ;

namespace helios {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A rank must finish within a second of SIGTERM; the coordinator may take as long as its requests do, within reason.
constexpr milliseconds kWorkerGrace{1000};
constexpr seconds kDrainLimit{300};
constexpr seconds kCoordinatorGrace{5};  // after a failure there is little to drain
constexpr seconds kHealthyTime{60};
constexpr milliseconds kFirstDelay{500};
constexpr milliseconds kLongestDelay{30000};
// The coordinator's own limit for a rank that says nothing is shorter, so it has turned readiness off by then.
constexpr seconds kStoppedLimit{3};
constexpr int kMaxFailuresBeforeReady = 5;

// Exit codes by which a worker says that another start would end the same way.
bool is_final(int exit_code) { return exit_code == 1 || exit_code == 2; }

milliseconds delay_after(int num_failures) {
  if (num_failures <= 1) return milliseconds(0);
  return std::min(kLongestDelay, kFirstDelay * (1 << std::min(num_failures - 2, 10)));
}

std::vector<std::string> environment_without(std::string_view name) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    if (!(text.starts_with(name) && text.substr(name.size()).starts_with('='))) all.emplace_back(text);
  }
  return all;
}

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&set, number);
  return set;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads: not a reason to stop serving
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

void Supervisor::block_signals() {
  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

Supervisor::Supervisor(const LaunchConfig& config, std::string bin_dir, std::string endpoint)
    : config_(config), bin_dir_(std::move(bin_dir)), endpoint_(std::move(endpoint)), workers_(config.num_local) {
  const sigset_t set = watched_signals();
  signal_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  HELIOS_CHECK(signal_fd_ >= 0, std::strerror(errno));
}

Supervisor::~Supervisor() {
  ::close(signal_fd_);
  if (output_fd_ >= 0) ::close(output_fd_);
}

int Supervisor::run() {
  if (config_.has_coordinator()) start_coordinator();
  if (!ending_) start_workers();
  while (coordinator_.running() || any_worker_runs() || restart_at_) {
    wait_for_event();
    read_signals();
    reap_children();
    read_coordinator_output();
    check_deadlines();
  }
  return exit_code_;
}

void Supervisor::start_coordinator() {
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return fail_start({Errc::kInternal, std::strerror(errno), ""});
  ::fcntl(output[0], F_SETFL, O_NONBLOCK);
  ChildSpec spec{coordinator_command(config_, bin_dir_, endpoint_), environment_without("HELIOS_API_KEY"), output[1]};
  if (config_.api_key) spec.environment.push_back("HELIOS_API_KEY=" + *config_.api_key);
  Result<ChildProcess> started = ChildProcess::start(spec);
  ::close(output[1]);
  output_fd_ = output[0];
  if (!started) return fail_start(started.error());
  coordinator_ = std::move(*started);
  log_info("coordinator_started", "pid={}", coordinator_.pid());
}

void Supervisor::start_workers() {
  set_failed_ = false;
  set_started_ = Clock::now();
  for (int i = 0; i < config_.num_local; ++i) {
    ChildSpec spec{worker_command(config_, bin_dir_, endpoint_, i), environment_without("HELIOS_API_KEY")};
    for (const char* name : {"HELIOS_LOCAL_RANK", "HELIOS_LOCAL_SIZE"}) {
      std::erase_if(spec.environment,
                    [&](const std::string& entry) { return entry.starts_with(std::string(name) + "="); });
    }
    spec.environment.push_back("HELIOS_LOCAL_RANK=" + std::to_string(i));
    spec.environment.push_back("HELIOS_LOCAL_SIZE=" + std::to_string(config_.num_local));
    Result<ChildProcess> started = ChildProcess::start(spec);
    if (!started) return fail_start(started.error());
    workers_[i] = Worker{std::move(*started), std::nullopt};
    log_info("worker_started", "rank={} pid={}", global_rank(i), workers_[i].process.pid());
  }
}

void Supervisor::wait_for_event() {
  int timeout_ms = -1;
  if (const std::optional<Time> deadline = next_deadline()) {
    const auto left = std::chrono::ceil<milliseconds>(*deadline - Clock::now());
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000));
  }
  pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {output_fd_, POLLIN, 0}};
  ::poll(fds, output_fd_ >= 0 ? 2 : 1, timeout_ms);
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) on_stop_request(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::read_coordinator_output() {
  if (output_fd_ < 0) return;
  char buffer[4096];
  ssize_t count;
  while ((count = ::read(output_fd_, buffer, sizeof buffer)) > 0) {
    output_buffer_.append(buffer, static_cast<size_t>(count));
    for (size_t end; (end = output_buffer_.find('\n')) != std::string::npos; output_buffer_.erase(0, end + 1)) {
      forward_line(output_buffer_.substr(0, end));
    }
    if (output_buffer_.size() > 65536) forward_line(std::exchange(output_buffer_, ""));
  }
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
    if (!output_buffer_.empty()) forward_line(std::exchange(output_buffer_, ""));
    ::close(std::exchange(output_fd_, -1));
  }
}

// Scripts read exactly one line from our stdout; whatever else the coordinator may print belongs to the log.
void Supervisor::forward_line(const std::string& line) {
  const bool is_ready_line = line.starts_with("ready ") && !was_ready_;
  write_all(is_ready_line ? STDOUT_FILENO : STDERR_FILENO, line + "\n");
  if (is_ready_line) was_ready_ = true;
}

void Supervisor::reap_children() {
  int status = 0;
  if (coordinator_.running() && ::waitpid(coordinator_.pid(), &status, WNOHANG) == coordinator_.pid()) {
    coordinator_.signal(SIGKILL);  // what it may have left in its group
    coordinator_.mark_ended();
    on_coordinator_exit(status);
  }
  for (int i = 0; i < config_.num_local; ++i) {
    Worker& worker = workers_[i];
    while (worker.process.running() &&
           ::waitpid(worker.process.pid(), &status, WNOHANG | WUNTRACED | WCONTINUED) == worker.process.pid()) {
      if (WIFSTOPPED(status)) {
        worker.stopped_since = Clock::now();
      } else if (WIFCONTINUED(status)) {
        worker.stopped_since.reset();
      } else {
        worker.process.signal(SIGKILL);
        worker.process.mark_ended();
        worker.stopped_since.reset();
        on_worker_exit(i, status);
      }
    }
  }
  if (set_failed_ && !any_worker_runs() && !restart_at_) {
    kill_workers_at_.reset();
    if (!ending_ && !stopping_) restart_at_ = Clock::now() + restart_delay_;
  }
}

void Supervisor::on_stop_request(int signal) {
  if (stopping_) {
    log_warning("killed", "signal={} reason=\"asked twice\"", ::strsignal(signal));
    exit_code_ = 128 + signal;
    return kill_everything();
  }
  log_info("stopping", "signal=\"{}\"", ::strsignal(signal));
  stopping_ = true;
  restart_at_.reset();
  if (ending_) return;
  if (coordinator_.running()) {
    coordinator_.signal(SIGTERM);
    kill_all_at_ = Clock::now() + kDrainLimit;
  } else {
    end_everything(0, "");
  }
}

void Supervisor::on_coordinator_exit(int wait_status) {
  read_coordinator_output();
  kill_all_at_.reset();
  if (ending_) return;
  const bool asked = stopping_ && (exit_code_of(wait_status) == 0 || exit_code_of(wait_status) == 128 + SIGTERM);
  if (!asked) log_error("coordinator_ended", "how=\"{}\"", describe_exit(wait_status));
  end_everything(asked ? 0 : exit_code_of(wait_status), "");
}

void Supervisor::on_worker_exit(int local_rank, int wait_status) {
  const int code = exit_code_of(wait_status);
  if (ending_ || set_failed_ || (stopping_ && code == 0)) {
    log_debug("worker_ended", "rank={} how=\"{}\"", global_rank(local_rank), describe_exit(wait_status));
    return;
  }
  log_warning("worker_ended", "rank={} how=\"{}\"", global_rank(local_rank), describe_exit(wait_status));
  if (stopping_) return;  // the coordinator loses the rank, fails its requests and so ends
  // Other nodes than 0 see no ready line: a minute of life is their sign that the set can serve.
  if (Clock::now() - set_started_ >= kHealthyTime) {
    num_failures_ = 0;
    if (!config_.has_coordinator()) was_ready_ = true;
  }
  ++num_failures_;
  if (!config_.has_coordinator() && code == 0) return end_everything(0, "a rank was drained");
  if (!was_ready_ && is_final(code)) {
    return end_everything(code,
                          fmt::format("rank {} could not start: its last log lines say why", global_rank(local_rank)));
  }
  if (!was_ready_ && num_failures_ >= kMaxFailuresBeforeReady) {
    return end_everything(1, fmt::format("the ranks failed {} times before they were ready", num_failures_));
  }
  restart_workers_later(describe_exit(wait_status));
  // A rank that was drained: most likely its coordinator is about to end too.
  if (code == 0) restart_delay_ = std::max(restart_delay_, kWorkerGrace);
}

void Supervisor::restart_workers_later(const std::string& reason) {
  restart_delay_ = delay_after(num_failures_);
  set_failed_ = true;
  log_info("restarting_ranks", "reason=\"{}\" delay_ms={} failures={}", reason, restart_delay_.count(), num_failures_);
  end_workers(kWorkerGrace);
}

void Supervisor::check_deadlines() {
  const Time now = Clock::now();
  if (kill_workers_at_ && now >= *kill_workers_at_) {
    kill_workers_at_.reset();
    for (Worker& worker : workers_) worker.process.signal(SIGKILL);
  }
  if (kill_all_at_ && now >= *kill_all_at_) {
    log_error("killed", "reason=\"the coordinator did not end in time\"");
    if (exit_code_ == 0) exit_code_ = 1;
    kill_everything();
  }
  for (int i = 0; i < config_.num_local; ++i) {
    const Worker& worker = workers_[i];
    if (!worker.stopped_since || now < *worker.stopped_since + kStoppedLimit) continue;
    log_warning("worker_hangs", "rank={} pid={} reason=\"stopped by a signal\"", global_rank(i), worker.process.pid());
    worker.process.signal(SIGKILL);  // its exit is handled like any other
  }
  if (restart_at_ && now >= *restart_at_) {
    restart_at_.reset();
    start_workers();
  }
}

std::optional<Supervisor::Time> Supervisor::next_deadline() const {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(kill_workers_at_);
  consider(kill_all_at_);
  consider(restart_at_);
  for (const Worker& worker : workers_) {
    if (worker.stopped_since) consider(*worker.stopped_since + kStoppedLimit);
  }
  return next;
}

void Supervisor::end_workers(milliseconds grace) {
  if (!any_worker_runs()) return;
  for (Worker& worker : workers_) worker.process.signal(SIGTERM);
  if (!kill_workers_at_) kill_workers_at_ = Clock::now() + grace;
}

void Supervisor::end_everything(int exit_code, const std::string& reason) {
  if (!reason.empty()) log_at(exit_code == 0 ? LogLevel::kInfo : LogLevel::kError, "ending", "reason=\"{}\"", reason);
  ending_ = true;
  exit_code_ = exit_code;
  restart_at_.reset();
  end_workers(kWorkerGrace);
  if (coordinator_.running()) {
    coordinator_.signal(SIGTERM);
    kill_all_at_ = Clock::now() + kCoordinatorGrace;
  }
}

void Supervisor::kill_everything() {
  ending_ = true;
  restart_at_.reset();
  kill_all_at_.reset();
  coordinator_.signal(SIGKILL);
  for (Worker& worker : workers_) worker.process.signal(SIGKILL);
}

void Supervisor::fail_start(const Error& error) { end_everything(1, error.message); }

bool Supervisor::any_worker_runs() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.process.running(); });
}

}  // namespace helios
