// How often this test program has called operator new: shows that a prepared step allocates nothing (R23).
//
// Link count_allocations.cc into the test; it replaces the global operators, in its own file so that the compiler does
// not see through them.
#pragma once

#include <cstdint>

namespace helios::testing {

int64_t count_allocations();

}  // namespace helios::testing
