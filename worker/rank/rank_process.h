// One rank from its welcome to its exit code: join the group, prepare the core, serve, leave. Thread: rank (main's).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "common/contract/control.h"
#include "worker/collective/communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/rank/coordinator_link.h"
#include "worker/rank/rank_vitals.h"
#include "worker/replay/executor.h"

namespace helios {

/// Loads and prepares this rank's core. Throws LoadError, DeviceError, CollectiveError.
using PrepareCore =
    std::function<PreparedCore(Communicator& communicator, const std::function<void(double)>& progress)>;

/// Serves one incarnation. `hello` is what the link says of this rank; `collective_timeout` bounds joining the group
/// and every wait in it. Returns the process's exit code (drain.h); what went wrong has been logged and told.
int serve_rank(const Hello& hello, std::chrono::milliseconds collective_timeout, const PrepareCore& prepare,
               CoordinatorLink& link, RankVitals& vitals);

}  // namespace helios
