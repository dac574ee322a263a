// What packing needs to know of the matmul kernels of the instruction set in use.
#pragma once

#include <cstdint>

namespace helios {

/// Columns of a panel: two float vectors.
int64_t matmul_panel_width();

}  // namespace helios
