// The CPUs that the kernel lets a thread run on, as numbers. Any number of CPUs; thread: any.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace helios {

/// Where the calling thread may run, ascending: what taskset, a container's cpuset or an MPI launcher left of the
/// machine. Never empty: {0} should the kernel not say.
std::vector<int> allowed_cpus();

/// From now on the calling thread, and threads that it starts, run on `cpus` alone; at least one. Returns 0 or the
/// errno: EINVAL when none of them may be used.
int bind_this_thread(std::span<const int> cpus);

/// "0-3,8" for ascending numbers, as the kernel and taskset write it; others keep their order.
std::string print_cpu_list(std::span<const int> cpus);

}  // namespace helios
