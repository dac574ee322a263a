// The secret that the processes of one cluster share: with it ZeroMQ's CURVE encrypts their sockets and admits peers.
//
// It is the secret half of a CURVE key pair, 40 characters of Z85, in the environment variable HELIOS_CLUSTER_KEY. The
// coordinator serves with the pair; a rank expects it and presents it. The handshake never sends the public half in the
// clear and nobody prints it, so who does not hold the key can neither connect nor pose as the coordinator, and no list
// of permitted peers is needed. Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace helios {

inline constexpr const char* kClusterKeyVariable = "HELIOS_CLUSTER_KEY";

struct ClusterKey {
  std::string secret, public_half;  // Z85, 40 characters each
};

/// The key for a socket at `endpoint`; `text` is the variable's value, null when it is not set. No key when there is
/// none and every peer is on this host (ipc, loopback), or when it is "none".
/// Errors: kInvalidArgument: malformed, or missing where peers on other hosts can connect.
Result<std::optional<ClusterKey>> cluster_key_for(std::string_view endpoint, const char* text);

/// A fresh one, as it stands in the variable.
std::string new_cluster_key();

}  // namespace helios
