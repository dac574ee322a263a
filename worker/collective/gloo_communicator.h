// All-gather between ranks on different hosts, over Gloo's TCP transport.
//
// Gloo's own all-gather algorithms are not used: a full mesh of direct sends is one hop for the few ranks of a group,
// lets abort() interrupt a waiting rank, and names the rank that is missing.
#pragma once

#include <memory>

#include "worker/collective/communicator.h"
#include "worker/collective/rendezvous.h"

namespace helios {

/// Connects to every other rank of the group through config's store hooks. Throws CollectiveError.
///
/// The result's all_gather() gives every peer `timeout` for each exchange; a closed connection is noticed at once.
/// Ranks whose payload sizes differ never meet: that too ends at the limit. After any failure the group is gone. Its
/// destructor waits up to a second for the peers to be done with the last exchange, since closing a connection discards
/// what is still under way.
std::unique_ptr<Communicator> join_gloo(const CommunicatorConfig& config);

}  // namespace helios
