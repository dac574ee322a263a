#include "worker/backend/backend.h"

#include <cstring>

namespace helios {

Memory device_copy(Backend& backend, const void* data, size_t bytes) {
  if (bytes == 0) return {};
  Memory staging = backend.pinned_memory(bytes);
  std::memcpy(staging.data(), data, bytes);
  Memory table = backend.device_memory(bytes);
  const std::unique_ptr<Stream> stream = backend.make_stream("upload");
  stream->copy(table.data(), staging.data(), bytes);
  stream->synchronize();
  return table;
}

}  // namespace helios
