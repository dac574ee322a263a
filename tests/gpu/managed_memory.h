// Runs kernel tests whose arguments are ordinary vectors and locals on a real GPU: everything that the program
// allocates, and the stack of the thread that runs the tests, lies in memory that both sides reach.
//
// Launches are waited for one by one (CUDA_LAUNCH_BLOCKING), as the tests expect. For a program of tests alone.
#pragma once

#include <functional>
#include <string>

namespace helios::testing {

/// Before anything of CUDA is called. Returns what is missing on this machine, or nothing; then allocations are shared.
std::string share_memory_with_gpu();

/// Calls `body` on a thread whose locals are shared too.
void run_on_shared_stack(const std::function<void()>& body);

}  // namespace helios::testing
