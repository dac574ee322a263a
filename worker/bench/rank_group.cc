#include "worker/bench/rank_group.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace helios {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(300);  // for the rank that caused it all to be reaped

/// Empty while the process lives, or if it ended in order.
std::string unhappy_end(pid_t pid, int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("pid {} was killed by signal {} ({})", pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("pid {} ended with exit code {} before it was done", pid, WEXITSTATUS(status));
}

void write_message(int pipe, const RankMessage& message) {
  if (::write(pipe, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) std::_Exit(1);
}

}  // namespace

Gate::Gate() {
  if (::pipe(ends_) != 0) throw RankGroupError(fmt::format("pipe: {}", strerror(errno)));
}

Gate::~Gate() {
  ::close(ends_[0]);
  ::close(ends_[1]);
}

char Gate::wait() const {
  char ticket = 0;
  ssize_t bytes;
  do {
    bytes = ::read(ends_[0], &ticket, 1);
  } while (bytes < 0 && errno == EINTR);
  if (bytes != 1) std::_Exit(1);
  return ticket;
}

void Gate::open(int ranks, char word) const {
  const std::string tickets(static_cast<size_t>(ranks), word);  // far less than a pipe holds
  if (::write(ends_[1], tickets.data(), tickets.size()) != static_cast<ssize_t>(tickets.size())) {
    throw RankGroupError(fmt::format("pipe: {}", strerror(errno)));
  }
}

RankGroup::RankGroup(int ranks, const std::function<void(int, const Say&)>& body)
    : members_(static_cast<size_t>(ranks)) {
  std::fflush(nullptr);  // or every rank would flush the parent's buffers again
  for (int rank = 0; rank < ranks; ++rank) start(rank, body);
}

RankGroup::~RankGroup() {
  for (Member& member : members_) {
    if (member.pid > 0) {
      ::kill(member.pid, SIGKILL);
      ::waitpid(member.pid, nullptr, 0);
    }
    if (member.pipe >= 0) ::close(member.pipe);
  }
}

void RankGroup::start(int rank, const std::function<void(int, const Say&)>& body) {
  Member& member = members_[static_cast<size_t>(rank)];
  int ends[2];
  if (::pipe(ends) != 0) throw RankGroupError(fmt::format("pipe: {}", strerror(errno)));
  const pid_t parent = ::getpid();
  member.pid = ::fork();
  if (member.pid < 0) throw RankGroupError(fmt::format("fork: {}", strerror(errno)));
  if (member.pid > 0) {
    ::close(ends[1]);
    member.pipe = ends[0];
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);
  ::close(ends[0]);
  for (const Member& other : members_) {
    if (other.pipe >= 0) ::close(other.pipe);
  }
  int code = 0;
  try {
    body(rank, [&](const RankMessage& message) { write_message(ends[1], message); });
  } catch (const std::exception& error) {
    RankMessage message{.kind = RankMessage::kFailed};
    fmt::format_to_n(message.text, sizeof message.text - 1, "{}", error.what());
    write_message(ends[1], message);
    code = 1;
  }
  std::fflush(nullptr);
  std::_Exit(code);  // the parent's objects are not this process's to destroy
}

bool RankGroup::read_message(int rank, RankMessage* message) {
  const int pipe = members_[static_cast<size_t>(rank)].pipe;
  ssize_t bytes;
  do {
    bytes = ::read(pipe, message, sizeof *message);
  } while (bytes < 0 && errno == EINTR);
  message->text[sizeof message->text - 1] = 0;
  return bytes == static_cast<ssize_t>(sizeof *message);
}

bool RankGroup::next(int* rank, RankMessage* message) {
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<int> ranks;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (members_[r].pipe < 0) continue;
      waiting.push_back({members_[r].pipe, POLLIN, 0});
      ranks.push_back(static_cast<int>(r));
    }
    if (waiting.empty()) return false;
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) {
      throw RankGroupError(fmt::format("poll: {}", strerror(errno)));
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      Member& member = members_[static_cast<size_t>(ranks[i])];
      *rank = ranks[i];
      if (read_message(*rank, message)) {
        if (message->kind == RankMessage::kFailed) fail(*rank, message->text);
        if (message->kind == RankMessage::kDone) member.done = true;
        return true;
      }
      if (!member.done) fail(*rank, {});
      ::close(std::exchange(member.pipe, -1));
    }
  }
}

/// A rank that fails because a peer is gone is not the one to name: whoever was killed is, or ended without a word.
void RankGroup::fail(int rank, const std::string& own_words) {
  const auto limit = std::chrono::steady_clock::now() + kGrace;
  do {
    std::string ended;  // the first without a word, unless one that ended by then was killed
    for (size_t r = 0; r < members_.size(); ++r) {
      int status = 0;
      if (members_[r].pid <= 0 || ::waitpid(members_[r].pid, &status, WNOHANG) != members_[r].pid) continue;
      const std::string end = fmt::format("rank {}: {}", r, unhappy_end(std::exchange(members_[r].pid, -1), status));
      if (WIFSIGNALED(status)) throw RankGroupError(end);
      if (!members_[r].done && own_words.empty() && ended.empty()) ended = end;
    }
    if (!ended.empty()) throw RankGroupError(ended);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < limit);
  throw RankGroupError(fmt::format("rank {}: {}", rank, own_words.empty() ? "its pipe closed" : own_words));
}

}  // namespace helios
