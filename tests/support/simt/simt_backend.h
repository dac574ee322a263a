// A GPU without a GPU: a device whose graphs are captured once and replayed, whose kernels are the CUDA sources on the
// emulator, and whose memory the host cannot touch.
//
// launch() runs its lambda at capture alone; kernels and exchanges keep their arguments by value and run at replay, on
// the stream's thread. Device memory is mapped away except while a kernel, an exchange or a copy runs, so host code
// that reads or writes it dies where it does so, and under AddressSanitizer so does a kernel that leaves its buffer.
// A kernel argument that points into host memory is refused at capture (not under sanitizers). What this cannot show is
// timing, races between streams inside one kernel, and what the hardware does differently.
#pragma once

#include <memory>

#include "worker/backend/backend.h"
#include "worker/collective/communicator.h"

namespace helios::testing {

std::unique_ptr<Backend> make_simt_backend();
Device simt_device();

/// Exchanges of a step are captured on `compute` (a stream of the backend above) with the size of a full step, as
/// NCCL's are; everything else goes to `inner` at once. `adds_rows`: it adds partial sums too, in ascending order of
/// ranks. Borrows both.
std::unique_ptr<Communicator> make_simt_communicator(Communicator& inner, Stream& compute, bool adds_rows = false);

}  // namespace helios::testing
