// Times exchanges between forked ranks: communicator_bench [shm|gloo] [world] [rounds] [cores] [max_bytes]
//
// Prints the median and the 99th percentile of rank 0, in microseconds, for a few payload sizes. `cores` limits the
// ranks to that many cores in turn; 0 leaves them unbound. `max_bytes` leaves larger payloads out.
#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "tests/worker/collective/transports.h"

namespace helios::testing {
namespace {

void bind_to_core(int index) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && seen++ == index) CPU_SET(cpu, &one);
  }
  if (CPU_COUNT(&one) > 0) ::sched_setaffinity(0, sizeof one, &one);
}

bool measure(const Group& group, int rank, int rounds, size_t max_bytes) {
  const auto communicator = group.join(rank);
  for (const size_t bytes :
       {size_t{0}, size_t{64}, size_t{1024}, size_t{4096}, size_t{65536}, size_t{1} << 20, size_t{8} << 20}) {
    if (bytes > max_bytes) break;
    std::vector<std::byte> in(bytes, std::byte(rank)), out(bytes * group.world());
    const int count = bytes > 65536 ? std::max(5, rounds / 100) : rounds;
    std::vector<double> times;
    for (int i = -count / 10; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      communicator->all_gather(in, out);
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      if (i >= 0) times.push_back(took.count());
    }
    std::sort(times.begin(), times.end());
    if (rank == 0) {
      std::printf("world %d  %8zu bytes a rank  p50 %9.2f us  p99 %9.2f us\n", group.world(), bytes,
                  times[times.size() / 2], times[times.size() * 99 / 100]);
    }
  }
  return true;
}

}  // namespace
}  // namespace helios::testing

int main(int argc, char** argv) {
  using namespace helios::testing;
  const std::string transport = argc > 1 ? argv[1] : "shm";
  const int world = argc > 2 ? std::atoi(argv[2]) : 2;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5000;
  const int cores = argc > 4 ? std::atoi(argv[4]) : 0;
  const size_t max_bytes = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : SIZE_MAX;
  const Group group(transport, world);
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&group, rank, rounds, cores, max_bytes] {
      if (cores > 0) bind_to_core(rank % cores);
      return measure(group, rank, rounds, max_bytes);
    });
  }
  int code = 0;
  for (RankProcess& rank : ranks) code |= rank.wait(milliseconds(300000));
  return code;
}
