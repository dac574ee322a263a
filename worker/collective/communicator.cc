#include "worker/collective/communicator.h"

#include <cstring>

#include "common/base/check.h"

namespace helios {

void SingleRankCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  HELIOS_CHECK(in.size() == out.size(), in.size(), out.size());
  if (!in.empty() && in.data() != out.data()) std::memcpy(out.data(), in.data(), in.size());
}

}  // namespace helios
