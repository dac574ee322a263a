#include "coordinator/protocol/identity.h"

#include <chrono>
#include <random>

#include <fmt/format.h>

namespace helios {

uint64_t random_bits() {
  thread_local std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::string random_hex() { return fmt::format("{:016x}{:016x}", random_bits(), random_bits()); }

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string system_fingerprint(const std::string& name, int world_size, const std::string& configuration) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : configuration) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return fmt::format("{}-{}-tp{}-{:08x}", name, kServerVersion, world_size, hash);
}

}  // namespace helios
