// Makes the communicator that the coordinator's welcome names.
//
// Shared memory needs only the group key; Gloo exchanges its addresses through the two hooks, which the control
// connection serves, so no transport needs a server of its own. Thread: rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "worker/collective/communicator.h"

namespace helios {

struct CommunicatorConfig {
  std::string collective;  // "shm" or "gloo"; not looked at when world_size is 1
  std::string group_key;   // unique for each incarnation of the group
  Rank rank;
  int world_size = 1;
  std::string host_name;                    // gloo: a name or address of this host that the other ranks can reach
  std::chrono::milliseconds timeout{5000};  // for joining and for every later wait

  /// gloo: publish a value for the group; read one, waiting until it exists. Values are printable ASCII. Called from
  /// the thread that makes the communicator, only while it is made. May throw; the error becomes a CollectiveError.
  std::function<void(const std::string& key, const std::string& value)> store_set;
  std::function<std::string(const std::string& key)> store_get;
};

/// Returns when every rank of the group has joined. Throws CollectiveError.
std::unique_ptr<Communicator> make_communicator(const CommunicatorConfig& config);

}  // namespace helios
