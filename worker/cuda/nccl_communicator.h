// All-gather over NCCL, ordered on one stream and capturable. Part of the CUDA module.
//
// Spans are device memory. all_gather() enqueues and returns; whoever waits for the stream's event sees the result. The
// communicator is non-blocking: every wait of its own polls for an asynchronous error and has a time limit, and aborts
// before it throws. check_group() asks for one that befell the exchanges of replayed graphs, and aborts nothing.
// abort() makes the device's kernels leave and returns; the library's own end of it waits for the graphs that captured
// the communicator, on a thread of its own. Destroy those graphs before the communicator.
// Thread: rank, except abort().
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"

namespace helios::cuda {

inline constexpr size_t kNcclGroupIdBytes = 128;

/// `adds_rows`: partial sums are added by NCCL, in its own order (Communicator::adds_rows). Made by rank 0 and given to
/// every rank of the group. Throws CollectiveError.
std::string make_nccl_group_id();
std::unique_ptr<Communicator> make_nccl_communicator(const std::string& group_id, Rank rank, int world_size,
                                                     Stream& stream, std::chrono::milliseconds timeout,
                                                     bool adds_rows = false);

}  // namespace helios::cuda
