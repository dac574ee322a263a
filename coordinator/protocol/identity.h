// Random names of replies, and the facts about the served model that every reply repeats.
#pragma once

#include <cstdint>
#include <string>

namespace helios {

struct ServedModel {
  std::string name;         // what replies call it, whatever the caller wrote
  std::string root;         // the model directory
  int64_t created = 0;      // Unix seconds, when the server started
  std::string fingerprint;  // constant for a server's configuration
};

/// 64 random bits from the operating system.
uint64_t random_bits();
/// 32 hex digits.
std::string random_hex();
int64_t unix_seconds();
/// <name>-<version>-tp<world>-<hash of the arguments>.
std::string system_fingerprint(const std::string& name, int world_size, const std::string& configuration);

inline constexpr const char* kServerVersion = "0.1.0";

}  // namespace helios
