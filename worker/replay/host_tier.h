// The tier behind the KV cache: pinned host memory for blocks that the cache gave away, until they come back.
//
// Which block goes where is the coordinator's business, the same on every rank; each keeps its own heads' part. The
// copies of a submission run in order on a stream of their own, out before in, beside the step before: no lane of a
// step in flight touches a block that they name. The submission's own step waits for them. Bytes are copied and never
// computed with, so nobody can tell a block that came back from one that stayed (X1). Thread: rank.
#pragma once

#include <cstdint>
#include <memory>

#include "common/contract/submission.h"
#include "worker/backend/backend.h"
#include "worker/model/kv_cache.h"

namespace helios {

class HostTier {
 public:
  /// `num_blocks` > 0 blocks of the cache's size, allocated now and never again. Throws DeviceError.
  HostTier(const KvCache& cache, int32_t num_blocks, Backend& backend);

  /// Enqueues a checked submission's copies and makes `compute` wait for them; nothing when there are none.
  void enqueue(const Submission& submission, Stream& compute);

  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes()); }
  int64_t blocks_out() const { return blocks_out_; }  // copied so far
  int64_t blocks_in() const { return blocks_in_; }

 private:
  void copy(void* to, size_t to_pitch, const void* from, size_t from_pitch);

  const KvBlockPieces pieces_;
  Memory memory_;  // [num_blocks, pieces, piece_bytes]
  std::unique_ptr<Event> copied_;
  int64_t blocks_out_ = 0, blocks_in_ = 0;
  std::unique_ptr<Stream> stream_;  // last: its thread uses everything above
};

}  // namespace helios
