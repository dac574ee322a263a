// The device interface over the CUDA runtime. CUDA handles stay behind it; kernels get the stream by native_stream().
#pragma once

#include <cuda_runtime.h>

#include <source_location>

#include "worker/backend/backend.h"

namespace helios::cuda {

/// Throws DeviceError naming what was tried, the error, and where: an error may belong to work launched earlier, and
/// once the device is broken every call reports it.
void check(cudaError_t status, const char* what, std::source_location place = std::source_location::current());

std::unique_ptr<Backend> make_backend(int device, int host_threads);

/// `stream` comes from this backend.
cudaStream_t native_stream(Stream& stream);

}  // namespace helios::cuda
