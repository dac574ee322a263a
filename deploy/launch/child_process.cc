#include "deploy/launch/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace helios {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// Between fork and exec: only async-signal-safe calls. Returns only when something failed, with errno set.
void become(const ChildSpec& spec, char* const* arguments, char* const* environment, pid_t launcher) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (::getppid() != launcher) ::_exit(1);  // it ended before the line above
  ::setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(spec.stdout_fd, 1) < 0) return;
  if (null > 2) ::close(null);
  ::execve(arguments[0], arguments, environment);
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const ChildSpec& spec) {
  const std::vector<char*> arguments = pointers(spec.command);
  const std::vector<char*> environment = pointers(spec.environment);
  int failure[2];  // closed by a successful exec; otherwise carries errno
  if (::pipe2(failure, O_CLOEXEC) != 0)
    return Error{Errc::kInternal, fmt::format("pipe: {}", std::strerror(errno)), ""};
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    become(spec, arguments.data(), environment.data(), launcher);
    const int error = errno;
    (void)!::write(failure[1], &error, sizeof error);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(failure[1]);
  int error = 0;
  const bool failed = pid < 0 || ::read(failure[0], &error, sizeof error) == sizeof error;
  ::close(failure[0]);
  if (!failed) return ChildProcess(pid);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  return Error{Errc::kInternal,
               fmt::format("cannot start {}: {}", spec.command.front(), std::strerror(pid < 0 ? fork_error : error)),
               ""};
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && ::kill(-pid_, number) != 0) ::kill(pid_, number);
}

std::string describe_exit(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  return fmt::format("signal {} ({})", WTERMSIG(wait_status), ::strsignal(WTERMSIG(wait_status)));
}

int exit_code_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace helios
