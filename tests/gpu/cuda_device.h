// The GPU as a test's device. One rank gets the worker's own backend. Several ranks of one process share the GPU
// without NCCL: their graphs are cut at each exchange into graphs of their own, and the parts go through host memory
// between them.
//
// What several ranks show is the kernels' and the products' arithmetic at every tensor-parallel degree (X1). Streams
// and events are the CPU backend's then, and each piece of work is waited for, so nothing waits on the GPU for a peer.
#pragma once

#include <memory>

#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"

namespace helios::testing {

Device cuda_device(int world);

/// Exchanges of a step, captured on a device made for this world; with `adds_rows` sums too, in ascending order of
/// ranks. Borrows both.
std::unique_ptr<Communicator> cuda_exchanges(Communicator& group, Device& device, bool adds_rows);

}  // namespace helios::testing
