// The largest single allocation since the last reset: replaces this binary's operator new (in its own file, so that the
// compiler does not pair it with calls that it inlines).
#pragma once

#include <cstddef>

namespace helios::testing {
void forget_allocations();
size_t largest_allocation();
}  // namespace helios::testing
