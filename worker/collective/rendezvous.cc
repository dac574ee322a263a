#include "worker/collective/rendezvous.h"

#include <fmt/format.h>

#include "worker/collective/gloo_communicator.h"
#include "worker/collective/shm_communicator.h"

namespace helios {

std::unique_ptr<Communicator> make_communicator(const CommunicatorConfig& config) {
  if (config.world_size < 1 || config.rank.value < 0 || config.rank.value >= config.world_size) {
    throw CollectiveError(fmt::format("rank {} is not in [0, {})", config.rank.value, config.world_size));
  }
  if (config.world_size == 1) return std::make_unique<SingleRankCommunicator>();
  if (config.collective == "shm") {
    return ShmCommunicator::join(config.group_key, config.rank, config.world_size, config.timeout);
  }
  if (config.collective == "gloo") return join_gloo(config);
  throw CollectiveError(fmt::format("unknown collective \"{}\": expected shm or gloo", config.collective));
}

}  // namespace helios
