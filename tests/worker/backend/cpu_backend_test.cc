// The CPU device keeps a GPU's promises: order within a stream, none between streams without an event, errors that
// reach whoever waits.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "worker/backend/backend.h"

namespace helios {
namespace {

/// A graph whose only launch waits until the gate opens.
class Gate {
 public:
  explicit Gate(Stream& stream) {
    stream.begin_capture();
    stream.launch([this](const Launcher&) { opened_.get_future().wait(); });
    graph_ = stream.end_capture();
  }
  const Graph& graph() const { return *graph_; }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
  std::unique_ptr<Graph> graph_;
};

std::unique_ptr<Graph> capture(Stream& stream, std::function<void()> call) {
  stream.begin_capture();
  stream.launch([call = std::move(call)](const Launcher&) { call(); });
  return stream.end_capture();
}

TEST(CpuBackend, MemoryIsZeroedAndAligned) {
  auto backend = make_cpu_backend();
  const Memory memory = backend->device_memory(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0u);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(memory.as<uint8_t>()[i], 0);
  EXPECT_EQ(backend->device_memory(0).data(), nullptr);
  EXPECT_GT(backend->free_memory(), 0);
}

TEST(CpuBackend, AnImpossibleAllocationIsADeviceError) {
  auto backend = make_cpu_backend();
  EXPECT_THROW((void)backend->device_memory(size_t{1} << 62), DeviceError);
}

TEST(CpuBackend, WorkOnAStreamRunsInOrderBesideTheCaller) {
  auto backend = make_cpu_backend();
  auto stream = backend->make_stream("test");
  Gate gate(*stream);
  int value = 0, seen = -1;
  const auto set = capture(*stream, [&] { value = 7; });
  const auto read = capture(*stream, [&] { seen = value; });
  stream->replay(gate.graph());
  stream->replay(*set);
  stream->replay(*read);
  auto done = backend->make_event();
  stream->record(*done);
  EXPECT_FALSE(done->query()) << "enqueuing does not wait for the device";
  gate.open();
  done->synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(CpuBackend, CapturedLaunchesRunOnlyWhenReplayed) {
  auto backend = make_cpu_backend();
  auto stream = backend->make_stream("test");
  int runs = 0;
  const auto graph = capture(*stream, [&] { ++runs; });
  stream->synchronize();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(graph->num_launches(), 1);
  stream->replay(*graph);
  stream->replay(*graph);
  stream->synchronize();
  EXPECT_EQ(runs, 2);
}

// Streams are not ordered by themselves: without the wait, the copy happens before the gated producer.
TEST(CpuBackend, AMissingWaitCopiesStaleData) {
  auto backend = make_cpu_backend();
  auto compute = backend->make_stream("compute"), copies = backend->make_stream("copy");
  auto produced = backend->make_event();
  std::atomic<int> source{1};
  int early = 0, late = 0;
  Gate gate(*compute);
  const auto produce = capture(*compute, [&] { source = 2; });
  const auto copy_early = capture(*copies, [&] { early = source; });
  const auto copy_late = capture(*copies, [&] { late = source; });
  compute->replay(gate.graph());
  compute->replay(*produce);
  compute->record(*produced);
  copies->replay(*copy_early);
  copies->synchronize();
  EXPECT_EQ(early, 1);
  copies->wait(*produced);
  copies->replay(*copy_late);
  gate.open();
  copies->synchronize();
  EXPECT_EQ(late, 2);
}

TEST(CpuBackend, RowsAreCopiedByTheirPitches) {
  auto backend = make_cpu_backend();
  auto stream = backend->make_stream("test");
  const char from[] = "ab..cd..ef..";
  char to[10] = "---------";
  stream->copy_rows(to, 3, from, 4, 2, 3);
  stream->synchronize();
  EXPECT_STREQ(to, "ab-cd-ef-");
}

TEST(CpuBackend, AFailureReachesEveryLaterWaitAndStopsTheStream) {
  auto backend = make_cpu_backend();
  auto compute = backend->make_stream("compute"), copies = backend->make_stream("copy");
  auto before = backend->make_event(), after = backend->make_event(), transferred = backend->make_event();
  int later_runs = 0;
  const auto fails = capture(*compute, [] { throw std::runtime_error("the peer died"); });
  const auto later = capture(*compute, [&] { ++later_runs; });
  compute->record(*before);
  compute->replay(*fails);
  compute->replay(*later);
  compute->record(*after);
  copies->wait(*after);
  copies->record(*transferred);
  EXPECT_NO_THROW(before->synchronize());
  EXPECT_THROW(after->synchronize(), std::runtime_error);
  EXPECT_THROW(transferred->synchronize(), std::runtime_error) << "a failure crosses streams with the event";
  EXPECT_THROW(compute->synchronize(), std::runtime_error);
  EXPECT_EQ(later_runs, 0);
}

TEST(CpuBackend, AFullQueueMakesTheCallerWait) {
  auto backend = make_cpu_backend();
  auto stream = backend->make_stream("test");
  Gate gate(*stream);
  std::atomic<int> runs{0};
  const auto count = capture(*stream, [&] { ++runs; });
  stream->replay(gate.graph());
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.open();
  });
  for (int i = 0; i < 2000; ++i) stream->replay(*count);
  stream->synchronize();
  opener.join();
  EXPECT_EQ(runs, 2000);
}

TEST(CpuBackend, AnEventCanBeRecordedAgain) {
  auto backend = make_cpu_backend();
  auto stream = backend->make_stream("test");
  auto event = backend->make_event();
  EXPECT_TRUE(event->query()) << "never recorded: nothing to wait for";
  event->synchronize();
  for (int i = 0; i < 100; ++i) {
    stream->record(*event);
    event->synchronize();
    EXPECT_TRUE(event->query());
  }
}

}  // namespace
}  // namespace helios
