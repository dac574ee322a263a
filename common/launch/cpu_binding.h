// Which CPUs the ranks of a host run on: anywhere, each its share of the machine, or the operator's lists.
//
// A share is a contiguous block of the allowed CPUs in the order of NUMA nodes, and all shares together are all of
// them: two servers on one host then lie over each other evenly, where taking just as many CPUs as there are threads
// would put both on the same few and leave the rest idle. Within its block a thread is held to one CPU only when there
// is one for each and no more. Nothing here widens what the process was given. Thread: any; reads /sys, else pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace helios {

struct HostCpu {
  int cpu = 0;   // the kernel's number
  int node = 0;  // NUMA node
  int core = 0;  // physical core: the lowest number among the hyperthreads that share it
};

/// Where each of `cpus` is. What `sys` does not say is one node, and a core for each CPU.
std::vector<HostCpu> host_cpus(std::span<const int> cpus, const std::string& sys = "/sys");

/// Lists of CPU numbers such as "0-3,8" in the order written; "|" separates one rank's list from the next's.
/// Errors: kInvalidArgument, one line: not a list, a number twice.
Result<std::vector<std::vector<int>>> parse_cpu_lists(const std::string& text);

/// The CPUs of each of `ranks` ranks, in the order in which threads should take them: physical cores before their
/// second hyperthreads. Every CPU of `host` belongs to one rank. Fewer CPUs than ranks: some are empty.
std::vector<std::vector<int>> share_cpus(std::vector<HostCpu> host, int ranks);

/// Where one rank runs.
struct CpuBinding {
  std::vector<int> cpus;     // empty: wherever the process may
  bool each_thread = false;  // compute thread i on cpus[i], and on no other
  std::string why_unbound;   // when `auto` binds nothing: one phrase
};

/// `how`: "none", "auto" or lists. A single list is this rank's own; of several, the one numbered `local_rank` is.
/// `threads`: the rank's compute threads; 0: as many as its list has CPUs, not for auto.
/// `host` is what the process may use. Errors: kInvalidArgument, one line without the flag's name: no list for this
/// rank, a CPU outside `host`, fewer CPUs than threads.
Result<CpuBinding> bind_rank(const std::string& how, int local_rank, int local_ranks, int threads,
                             const std::vector<HostCpu>& host);

}  // namespace helios
