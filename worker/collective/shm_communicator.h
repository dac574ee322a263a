// All-gather between the ranks of one host through shared memory: a few microseconds where a socket takes hundreds.
//
// An exchange costs one arrival: each rank copies its part into one of its two slots, counts itself in, waits until the
// count is complete, and copies the others' parts out. A slot is written again two exchanges later, when every rank has
// arrived at the exchange in between and so has finished reading: no second round is needed.
// Thread: rank, except abort().
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/collective/communicator.h"
#include "worker/collective/shm_segment.h"

namespace helios {

class ShmCommunicator final : public Communicator {
 public:
  /// Returns when every rank of the group has attached. Ranks are processes of one host or threads. `timeout` bounds
  /// this and every later wait for a peer. Throws CollectiveError.
  static std::unique_ptr<ShmCommunicator> join(const std::string& group_key, Rank rank, int world_size,
                                               std::chrono::milliseconds timeout);
  /// For ranks that are threads of one process and share one mapping.
  ShmCommunicator(std::shared_ptr<ShmSegment> segment, Rank rank, std::chrono::milliseconds timeout);
  ~ShmCommunicator() override;
  ShmCommunicator(const ShmCommunicator&) = delete;
  ShmCommunicator& operator=(const ShmCommunicator&) = delete;

  Rank rank() const override { return rank_; }
  int world_size() const override { return segment_->world_size(); }
  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override;
  void barrier() override;
  /// Also wakes the peers, in whatever process; they throw with the same reason.
  void abort(const std::string& reason) noexcept override;

 private:
  void check_not_broken() const;
  void arrive(uint64_t payload_bytes);
  void wait_for_peers();
  void sleep_for_peers(uint64_t complete);
  void check_peers(uint64_t exchange);
  void check_same_payload(int peer, uint64_t payload_bytes);
  bool is_complete(uint64_t complete, uint64_t* seen) const;
  std::string missing_ranks() const;
  [[noreturn]] void throw_broken() const;
  [[noreturn]] void break_group(const std::string& reason);

  const std::shared_ptr<ShmSegment> segment_;
  const Rank rank_;
  const std::chrono::milliseconds timeout_;
  PeerProcess self_;
  uint64_t exchange_ = 0;        // the current or last one
  int waits_without_yield_ = 0;  // the next so many: a yield gave the core away
};

}  // namespace helios
