// The emulated device keeps a GPU's promises: captured once, replayed with the arguments of then, memory out of reach.
#include "tests/support/simt/simt_backend.h"

#include <gtest/gtest.h>

#include "kernels/base/simt.h"
#include "tests/support/in_process_ranks.h"

namespace helios::testing {
namespace {

__global__ void add_kernel(int32_t* words, const int32_t* count, int32_t by) {
  const auto i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < *count) words[i] += by;
}

void launch_add(int32_t* words, const int32_t* count, int32_t by, const Launcher& on) {
  simt::launch(add_kernel, dim3(2), dim3(32), 0, static_cast<simt::Stream>(on.stream()), words, count, by);
}

/// Words of device memory and their host copy.
struct Words {
  explicit Words(Device& owner, size_t num_words)
      : device(owner),
        memory(owner.backend->device_memory(num_words * sizeof(int32_t))),
        pinned(owner.backend->pinned_memory(num_words * sizeof(int32_t))) {}
  int32_t* data() const { return memory.as<int32_t>(); }
  void upload(std::vector<int32_t> words) {
    std::copy(words.begin(), words.end(), pinned.as<int32_t>());
    device.compute->copy(memory.data(), pinned.data(), memory.bytes());
    device.compute->synchronize();
  }
  std::vector<int32_t> download() {
    device.compute->copy(pinned.data(), memory.data(), memory.bytes());
    device.compute->synchronize();
    return {pinned.as<int32_t>(), pinned.as<int32_t>() + memory.bytes() / sizeof(int32_t)};
  }
  Device& device;
  Memory memory, pinned;
};

TEST(SimtBackend, AGraphIsCapturedOnceWithItsArgumentsAndReadsItsCountAtReplay) {
  Device device = simt_device();
  Words words(device, 4), count(device, 1);
  int32_t by = 10, calls = 0;
  device.compute->begin_capture();
  device.compute->launch([&](const Launcher& on) {
    ++calls;
    launch_add(words.data(), count.data(), by, on);
  });
  const std::unique_ptr<Graph> graph = device.compute->end_capture();
  EXPECT_EQ(calls, 1) << "at capture";
  EXPECT_EQ(graph->num_launches(), 1);
  EXPECT_EQ(words.download(), (std::vector<int32_t>{0, 0, 0, 0})) << "device memory begins zeroed, nothing has run";
  by = 99;
  for (const int32_t rows : {3, 1}) {
    count.upload({rows});
    device.compute->replay(*graph);
  }
  EXPECT_EQ(words.download(), (std::vector<int32_t>{20, 10, 10, 0}));
  EXPECT_EQ(calls, 1) << "a replay runs what was launched, not the lambda";
}

// Host code that reads device memory dies where it does so, and dies of that: what it says first is the last it says.
TEST(SimtBackendDeathTest, TheHostCannotTouchDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use = [](bool reads) {
    Device device = simt_device();
    Words words(device, 4);
    words.upload({1, 2, 3, 4});
    const int32_t sum = reads ? words.data()[0] : words.download()[0];
    std::exit(sum == 1 ? 0 : 1);
  };
  EXPECT_EXIT(use(false), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(use(true), "");
}

// On a GPU the kernel could not follow such a pointer, and would say so only when it runs.
TEST(SimtBackendDeathTest, AKernelsArgumentMayNotPointIntoHostMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's shadow lies where two counts side by side would point";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use = [](bool host) {
    Device device = simt_device();
    Words words(device, 4);
    const std::vector<int32_t> count{3};
    device.compute->begin_capture();
    device.compute->launch(
        [&](const Launcher& on) { launch_add(words.data(), host ? count.data() : words.data(), 1, on); });
    (void)device.compute->end_capture();
    std::exit(0);
  };
  EXPECT_EXIT(use(false), ::testing::ExitedWithCode(0), "");
  EXPECT_DEATH(use(true), "points into host memory");
}

// As NCCL does: the count lies where only kernels can read it.
TEST(SimtBackend, ACapturedExchangeSendsTheRowsOfAFullStep) {
  InProcessGroup group(2);
  std::vector<std::vector<int32_t>> gathered(2);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      InProcessCommunicator inner(group, r);
      Device device = simt_device();
      const auto communicator = make_simt_communicator(inner, *device.compute);
      Words own(device, 3), all(device, 6), count(device, 1);
      device.compute->begin_capture();
      device.compute->launch([&](const Launcher&) {
        communicator->all_gather_rows(own.data(), all.data(), sizeof(int32_t), count.data(), 3);
      });
      const std::unique_ptr<Graph> graph = device.compute->end_capture();
      own.upload({10 * r, 10 * r + 1, 10 * r + 2});
      count.upload({1});
      device.compute->replay(*graph);
      gathered[static_cast<size_t>(r)] = all.download();
    });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& words : gathered) EXPECT_EQ(words, (std::vector<int32_t>{0, 1, 2, 10, 11, 12}));
}

TEST(SimtBackend, ACopyOnAnotherStreamWaitsForItsEvent) {
  Device device = simt_device();
  Words words(device, 2), count(device, 1);
  count.upload({2});
  device.compute->begin_capture();
  device.compute->launch([&](const Launcher& on) { launch_add(words.data(), count.data(), 5, on); });
  const std::unique_ptr<Graph> graph = device.compute->end_capture();
  const std::unique_ptr<Stream> copies = device.backend->make_stream("copies");
  const std::unique_ptr<Event> produced = device.backend->make_event();
  Memory home = device.backend->pinned_memory(2 * sizeof(int32_t));
  device.compute->replay(*graph);
  device.compute->record(*produced);
  copies->wait(*produced);
  copies->copy_rows(home.data(), 4, words.data(), 4, 4, 2);
  copies->synchronize();
  EXPECT_EQ(home.as<int32_t>()[0], 5);
  EXPECT_EQ(home.as<int32_t>()[1], 5);
}

}  // namespace
}  // namespace helios::testing
