// Ranks as threads: a communicator over shared vectors, and a runner that gives each rank its own thread.
//
// For tests of code that takes a Communicator. The real transports have their own tests.
#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/collective/communicator.h"

namespace helios::testing {

class InProcessGroup {
 public:
  explicit InProcessGroup(int world) : world_(world), parts_(world) {}

  void exchange(int rank, std::span<const std::byte> in, std::byte* out, size_t rank_stride) {
    parts_[rank].assign(in.begin(), in.end());
    wait();  // everybody has written
    for (int r = 0; r < world_; ++r) std::memcpy(out + r * rank_stride, parts_[r].data(), in.size());
    wait();  // everybody has read
  }

  void wait() {
    std::unique_lock lock(mutex_);
    if (!reason_.empty()) throw CollectiveError(reason_);
    const uint64_t round = round_;
    if (++arrived_ == world_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || !reason_.empty(); });
    if (round_ == round) throw CollectiveError(reason_);
  }

  void abort(const std::string& reason) {
    std::lock_guard lock(mutex_);
    reason_ = reason.empty() ? "aborted" : reason;
    changed_.notify_all();
  }

  int world() const { return world_; }

 private:
  const int world_;
  std::vector<std::vector<std::byte>> parts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  std::string reason_;
};

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(InProcessGroup& group, int rank) : group_(group), rank_(rank) {}
  Rank rank() const override { return Rank(rank_); }
  int world_size() const override { return group_.world(); }
  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override {
    group_.exchange(rank_, in, out, rank_stride);
  }
  void barrier() override { group_.wait(); }
  void abort(const std::string& reason) noexcept override { group_.abort(reason); }

 private:
  InProcessGroup& group_;
  const int rank_;
};

/// Runs body(communicator) on `world` threads; rethrows the first exception after all have ended.
inline void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  InProcessGroup group(world);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(world);
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      InProcessCommunicator communicator(group, r);
      try {
        body(communicator);
      } catch (...) {
        errors[r] = std::current_exception();
        group.abort("a rank of the test failed");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace helios::testing
