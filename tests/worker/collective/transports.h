// What the contract tests run over: each way to join a group, and ranks as threads or as forked processes.
#pragma once

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "worker/collective/rendezvous.h"
#include "worker/collective/shm_communicator.h"

namespace helios::testing {

using std::chrono::milliseconds;

inline std::string fresh_group_key() {
  static std::random_device device;
  return "test" + std::to_string(::getpid()) + "-" + std::to_string(device());
}

/// A key-value store in a directory: works between threads and between processes. Removed with the object, by the
/// process that made it.
class DirectoryStore {
 public:
  DirectoryStore() {
    std::string pattern = (std::filesystem::temp_directory_path() / "helios-store-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("cannot make a directory for the test's store");
    path_ = pattern;
  }
  ~DirectoryStore() {
    if (::getpid() == owner_) std::filesystem::remove_all(path_);
  }
  DirectoryStore(const DirectoryStore&) = delete;
  DirectoryStore& operator=(const DirectoryStore&) = delete;

  void set(const std::string& key, const std::string& value) const {
    const auto file = path_ / file_name(key);
    const auto draft = file.string() + ".draft";
    std::ofstream(draft) << value;
    std::filesystem::rename(draft, file);
  }
  std::string get(const std::string& key, milliseconds limit) const {
    const auto file = path_ / file_name(key);
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!std::filesystem::exists(file)) {
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no value for " + key);
      std::this_thread::sleep_for(milliseconds(1));
    }
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  static std::string file_name(std::string key) {
    for (char& c : key) {
      if (c == '/') c = '+';
    }
    return key;
  }
  std::filesystem::path path_;
  const pid_t owner_ = ::getpid();
};

/// One group to be joined by every rank, over one transport.
class Group {
 public:
  /// `transport`: shm, shm-one-mapping (threads only) or gloo.
  Group(std::string transport, int world, milliseconds timeout = milliseconds(20000))
      : transport_(std::move(transport)), world_(world), timeout_(timeout), key_(fresh_group_key()) {
    if (transport_ == "shm-one-mapping") {
      segment_ = ShmSegment::create(key_, world);
      segment_->remove_name();
    }
  }

  std::unique_ptr<Communicator> join(int rank) const {
    if (segment_) return std::make_unique<ShmCommunicator>(segment_, Rank(rank), timeout_);
    CommunicatorConfig config;
    config.collective = transport_;
    config.group_key = key_;
    config.rank = Rank(rank);
    config.world_size = world_;
    config.host_name = "127.0.0.1";
    config.timeout = timeout_;
    config.store_set = [this](const std::string& key, const std::string& value) { store_.set(key, value); };
    config.store_get = [this](const std::string& key) { return store_.get(key, timeout_); };
    return make_communicator(config);
  }

  int world() const { return world_; }
  milliseconds timeout() const { return timeout_; }
  const std::string& key() const { return key_; }

 private:
  const std::string transport_;
  const int world_;
  const milliseconds timeout_;
  const std::string key_;
  DirectoryStore store_;
  std::shared_ptr<ShmSegment> segment_;
};

/// Runs body(rank) on a thread a rank and rethrows the first exception after all have ended.
inline void run_threads(int world, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(world);
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// A forked rank. Its body's exceptions are printed and become exit code 1; a false result becomes 2.
class RankProcess {
 public:
  explicit RankProcess(const std::function<bool()>& body) {
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    int code = 1;
    try {
      code = body() ? 0 : 2;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank process %d: %s\n", static_cast<int>(::getpid()), error.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  RankProcess(RankProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ~RankProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  /// Exit code; 128 + number after a signal; -1 when it still runs at the limit.
  int wait(milliseconds limit = milliseconds(60000)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      if (std::chrono::steady_clock::now() > deadline) return -1;
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

 private:
  pid_t pid_ = 0;
};

/// True when calling `body` throws CollectiveError whose text contains `part`; prints what happened otherwise.
inline bool throws_collective_error(const std::function<void()>& body, const std::string& part = "") {
  try {
    body();
  } catch (const CollectiveError& error) {
    if (std::string(error.what()).find(part) != std::string::npos) return true;
    std::fprintf(stderr, "expected \"%s\" in: %s\n", part.c_str(), error.what());
    return false;
  }
  std::fprintf(stderr, "no CollectiveError\n");
  return false;
}

/// What `rank` gives in exchange `round`: a ramp of prime length, so that neither a neighbour's part, nor another
/// round's, nor a part at a wrong place looks like it.
inline std::vector<std::byte> pattern(int rank, uint64_t round, size_t bytes) {
  constexpr size_t kPeriod = 251;
  std::vector<std::byte> all(bytes);
  const size_t first = std::min(bytes, kPeriod);
  for (size_t i = 0; i < first; ++i) all[i] = static_cast<std::byte>(rank * 31 + round * 7 + i + 1);
  for (size_t done = first; done < bytes; done += std::min(done, bytes - done)) {
    std::memcpy(&all[done], &all[0], std::min(done, bytes - done));  // `done` stays a multiple of the period
  }
  return all;
}

/// One all-gather of `bytes` a rank; false, with a message, when a byte is not what its rank gave.
inline bool gather_and_check(Communicator& communicator, size_t bytes, uint64_t round, bool in_place) {
  const int world = communicator.world_size();
  const int rank = communicator.rank().value;
  std::vector<std::byte> out(bytes * world, std::byte{0xee});
  const std::vector<std::byte> given = pattern(rank, round, bytes);
  if (in_place) {
    std::copy(given.begin(), given.end(), out.begin() + static_cast<std::ptrdiff_t>(rank * bytes));
    communicator.all_gather(std::span<const std::byte>(out).subspan(rank * bytes, bytes), out);
  } else {
    communicator.all_gather(given, out);
  }
  for (int source = 0; source < world; ++source) {
    const std::vector<std::byte> expected = pattern(source, round, bytes);
    if (bytes == 0 || std::memcmp(&out[source * bytes], expected.data(), bytes) == 0) continue;
    std::fprintf(stderr, "rank %d, round %llu, %zu bytes: the part of rank %d is wrong\n", rank,
                 static_cast<unsigned long long>(round), bytes, source);
    return false;
  }
  return true;
}

}  // namespace helios::testing
