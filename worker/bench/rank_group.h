// Forks the rank processes and listens to them: every rank has a pipe to the parent and dies with it.
//
// The parent notices a rank's end at once (its pipe closes), names it and ends the others, so that a lost rank ends the
// run and never hangs it. Thread: main, single-threaded when the ranks are forked.
#pragma once

#include <sys/types.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace helios {

/// A rank failed or ended early. One line that says which and how.
class RankGroupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Small enough to be written to a pipe in one piece.
struct RankMessage {
  enum Kind : int32_t { kReady, kTimed, kFailed, kDone };
  Kind kind = kReady;
  int32_t work = 0;           // kTimed: index in the plan
  double value = 0;           // kReady: bytes of the rank's weights; kTimed: seconds; kDone: bytes, most ever resident
  double kv_cache_bytes = 0;  // kReady
  double element_bytes = 0;   // kReady: of the cache
  double words = 0;           // kTimed: 32-bit words that the rank sent
  double sampler_words = 0;
  char text[480] = {};  // kFailed: one line
};

/// Where ranks sleep until the parent lets all of them on, with a word on what comes next. Made before the fork.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  char wait() const;  // in a rank: the word
  /// In the parent, when all `ranks` wait.
  void open(int ranks, char word) const;

 private:
  int ends_[2] = {-1, -1};
};

class RankGroup {
 public:
  using Say = std::function<void(const RankMessage&)>;

  /// `body(rank, say)` runs in each forked process; what it throws is reported as the rank's failure. It must say
  /// kDone before it returns.
  RankGroup(int ranks, const std::function<void(int rank, const Say& say)>& body);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// Waits for the next message of any rank; false when all have said kDone and ended. Throws RankGroupError.
  bool next(int* rank, RankMessage* message);

  pid_t pid(int rank) const { return members_[static_cast<size_t>(rank)].pid; }

 private:
  struct Member {
    pid_t pid = -1;
    int pipe = -1;
    bool done = false;
  };
  void start(int rank, const std::function<void(int rank, const Say& say)>& body);
  bool read_message(int rank, RankMessage* message);
  [[noreturn]] void fail(int rank, const std::string& own_words);

  std::vector<Member> members_;
};

}  // namespace helios
