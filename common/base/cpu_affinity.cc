#include "common/base/cpu_affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <fmt/format.h>

namespace helios {
namespace {

constexpr size_t kMostCpus = 1 << 16;

struct FreeMask {
  void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
};
using Mask = std::unique_ptr<cpu_set_t, FreeMask>;

Mask empty_mask(size_t cpus) {
  Mask mask(CPU_ALLOC(cpus));
  CPU_ZERO_S(CPU_ALLOC_SIZE(cpus), mask.get());
  return mask;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> allowed;
  for (size_t cpus = 1024; cpus <= kMostCpus; cpus *= 2) {  // EINVAL: the kernel's own masks are longer
    const Mask mask = empty_mask(cpus);
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (::sched_getaffinity(0, bytes, mask.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    for (size_t cpu = 0; cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask.get())) allowed.push_back(static_cast<int>(cpu));
    }
    break;
  }
  if (allowed.empty()) allowed.push_back(0);
  return allowed;
}

int bind_this_thread(std::span<const int> cpus) {
  if (cpus.empty()) return EINVAL;
  const auto count = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  if (count > kMostCpus) return EINVAL;
  const Mask mask = empty_mask(count);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), CPU_ALLOC_SIZE(count), mask.get());
  return ::sched_setaffinity(0, CPU_ALLOC_SIZE(count), mask.get()) == 0 ? 0 : errno;
}

std::string print_cpu_list(std::span<const int> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (last > i) text += fmt::format("-{}", cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace helios
