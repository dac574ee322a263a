// Names this kernel and pid namespace: two processes with the same key can watch each other by pid.
//
// The host name would not do: containers on one host share a kernel but not pids, and names repeat across hosts.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace helios {

/// "<kernel boot id>/<pid namespace>", for example "6f1c...-...-.../pid:[4026531836]". What cannot be read is left
/// empty, and an incomplete key equals no other process's: see is_complete_host_key.
inline std::string host_key() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  char target[64] = {};
  const ssize_t n = ::readlink("/proc/self/ns/pid", target, sizeof target - 1);
  return boot_id + "/" + std::string(target, n > 0 ? static_cast<size_t>(n) : 0);
}

/// False when either half is missing: such a key proves nothing about where the other process runs.
inline bool is_complete_host_key(const std::string& key) {
  const size_t slash = key.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < key.size();
}

}  // namespace helios
