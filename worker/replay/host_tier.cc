#include "worker/replay/host_tier.h"

namespace helios {

HostTier::HostTier(const KvCache& cache, int32_t num_blocks, Backend& backend)
    : pieces_(cache.pieces()),
      memory_(backend.pinned_memory(static_cast<size_t>(num_blocks) * pieces_.block_bytes())),
      copied_(backend.make_event()),
      stream_(backend.make_stream("host-tier")) {}

/// One block: a piece for each layer's keys and values.
void HostTier::copy(void* to, size_t to_pitch, const void* from, size_t from_pitch) {
  constexpr size_t kMaxPitch = (size_t{1} << 31) - 1;  // of a GPU's strided copy
  if (to_pitch <= kMaxPitch && from_pitch <= kMaxPitch) {
    return stream_->copy_rows(to, to_pitch, from, from_pitch, pieces_.bytes, pieces_.count);
  }
  for (size_t i = 0; i < pieces_.count; ++i) {
    stream_->copy(static_cast<std::byte*>(to) + i * to_pitch, static_cast<const std::byte*>(from) + i * from_pitch,
                  pieces_.bytes);
  }
}

void HostTier::enqueue(const Submission& s, Stream& compute) {
  blocks_out_ += static_cast<int64_t>(s.blocks_out.size());
  blocks_in_ += static_cast<int64_t>(s.blocks_in.size());
  if (s.blocks_out.empty() && s.blocks_in.empty()) return;
  if (pieces_.bytes == 0) return;  // a rank without heads keeps nothing
  const auto host = [&](const BlockCopy& c) {
    return memory_.as<std::byte>() + static_cast<size_t>(c.host_block) * pieces_.block_bytes();
  };
  const auto device = [&](const BlockCopy& c) { return pieces_.first + static_cast<size_t>(c.block) * pieces_.bytes; };
  for (const BlockCopy& c : s.blocks_out) copy(host(c), pieces_.bytes, device(c), pieces_.pitch);
  for (const BlockCopy& c : s.blocks_in) copy(device(c), pieces_.pitch, host(c), pieces_.bytes);
  stream_->record(*copied_);
  compute.wait(*copied_);
}

}  // namespace helios
