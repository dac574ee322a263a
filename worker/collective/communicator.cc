#include "worker/collective/communicator.h"

#include <cstring>

#include "common/base/check.h"

namespace helios {

void Communicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  HELIOS_CHECK(out.size() == in.size() * static_cast<size_t>(world_size()), in.size(), out.size(), world_size());
  gather(in, out.data(), in.size());
}

void Communicator::all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t* num_rows,
                                   int64_t max_rows) {
  HELIOS_CHECK(*num_rows >= 0 && *num_rows <= max_rows, *num_rows, max_rows);
  if (*num_rows == 0) return;  // on every rank alike
  gather({static_cast<const std::byte*>(in), static_cast<size_t>(*num_rows) * row_bytes}, static_cast<std::byte*>(out),
         static_cast<size_t>(max_rows) * row_bytes);
}

void Communicator::add_rows(const float*, float*, size_t, int64_t) {
  throw CollectiveError("this group gathers partial sums and adds none");
}

void SingleRankCommunicator::gather(std::span<const std::byte> in, std::byte* out, size_t) {
  if (!in.empty() && in.data() != out) std::memcpy(out, in.data(), in.size());
}

}  // namespace helios
