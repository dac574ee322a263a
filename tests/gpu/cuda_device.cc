#include "tests/gpu/cuda_device.h"

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/cuda/cuda_backend.h"

namespace helios::testing {
namespace {

constexpr int kHostThreads = 4;

/// Graphs of kernels, and what happens on the host between them.
class CutGraph final : public Graph {
 public:
  CutGraph(std::unique_ptr<Graph> calls, std::vector<std::unique_ptr<Graph>> pieces)
      : calls_(std::move(calls)), pieces_(std::move(pieces)) {
    for (const auto& piece : pieces_) num_launches_ += piece->num_launches();
    num_launches_ += static_cast<int>(pieces_.size()) - 1;  // exchanges
  }
  int num_launches() const override { return num_launches_; }
  const Graph& calls() const { return *calls_; }

 private:
  std::unique_ptr<Graph> calls_;
  std::vector<std::unique_ptr<Graph>> pieces_;
  int num_launches_ = 0;
};

/// The CPU's stream carries it all; the GPU's stream does each piece and is waited for.
class CutStream final : public Stream {
 public:
  CutStream(std::unique_ptr<Stream> order, std::unique_ptr<Stream> gpu)
      : gpu_(std::move(gpu)), order_(std::move(order)) {}

  void copy(void* to, const void* from, size_t bytes) override {
    enqueue([=, this] { gpu_->copy(to, from, bytes); });
  }
  void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                 size_t rows) override {
    enqueue([=, this] { gpu_->copy_rows(to, to_pitch, from, from_pitch, row_bytes, rows); });
  }
  void record(Event& event) override { order_->record(event); }
  void wait(Event& event) override { order_->wait(event); }

  void begin_capture() override { gpu_->begin_capture(); }
  void launch(std::function<void(const Launcher&)> call) override { gpu_->launch(std::move(call)); }
  std::unique_ptr<Graph> end_capture() override {
    end_piece();
    return std::make_unique<CutGraph>(ordered(std::exchange(calls_, {})), std::exchange(pieces_, {}));
  }
  void replay(const Graph& graph) override { order_->replay(static_cast<const CutGraph&>(graph).calls()); }
  void synchronize() override { order_->synchronize(); }

  /// Inside a capture: ends the kernels so far, and goes on behind `exchange`.
  void cut(std::function<void()> exchange) {
    end_piece();
    calls_.push_back(std::move(exchange));
    gpu_->begin_capture();
  }

 private:
  void end_piece() {
    pieces_.push_back(gpu_->end_capture());
    calls_.push_back([this, piece = pieces_.back().get()] { gpu_->replay(*piece); });
  }
  std::unique_ptr<Graph> ordered(const std::vector<std::function<void()>>& calls) {
    order_->begin_capture();
    for (const auto& call : calls) {
      order_->launch([this, call](const Launcher&) {
        call();
        gpu_->synchronize();
      });
    }
    return order_->end_capture();
  }
  void enqueue(std::function<void()> call) {
    once_.push_back(ordered({std::move(call)}));
    order_->replay(*once_.back());
  }

  std::vector<std::unique_ptr<Graph>> once_, pieces_;  // `once_` is kept for the stream's life: a test's
  std::vector<std::function<void()>> calls_;
  std::unique_ptr<Stream> gpu_;
  std::unique_ptr<Stream> order_;  // last: its thread runs what is above
};

class CutBackend final : public Backend {
 public:
  std::string_view name() const override { return gpu_->name(); }
  ThreadPool& host_pool() override { return gpu_->host_pool(); }
  Memory device_memory(size_t bytes) override { return gpu_->device_memory(bytes); }
  Memory pinned_memory(size_t bytes) override { return gpu_->pinned_memory(bytes); }
  int64_t free_memory() const override { return gpu_->free_memory(); }
  int64_t reserved_memory() const override { return gpu_->reserved_memory(); }
  std::unique_ptr<Stream> make_stream(std::string_view stream_name) override {
    return std::make_unique<CutStream>(order_->make_stream(stream_name), gpu_->make_stream(stream_name));
  }
  std::unique_ptr<Event> make_event() override { return order_->make_event(); }

 private:
  const std::unique_ptr<Backend> gpu_ = cuda::make_backend(0, 1), order_ = make_cpu_backend();
};

/// Between the ranks of a process through host memory.
class CutExchanges final : public Communicator {
 public:
  CutExchanges(Communicator& group, CutStream& compute, bool adds_rows)
      : group_(group), compute_(compute), adds_rows_(adds_rows) {}
  Rank rank() const override { return group_.rank(); }
  int world_size() const override { return group_.world_size(); }
  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override {
    compute_.synchronize();
    exchange(in.data(), out, in.size(), rank_stride);
  }
  void all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t*, int64_t max_rows) override {
    const size_t bytes = static_cast<size_t>(max_rows) * row_bytes;
    compute_.cut([this, in, out, bytes] { exchange(in, static_cast<std::byte*>(out), bytes, bytes); });
  }
  bool adds_rows() const override { return adds_rows_; }
  void add_rows(const float* in, float* out, size_t row_words, int64_t max_rows) override {
    compute_.cut([this, in, out, count = static_cast<size_t>(max_rows) * row_words] {
      std::vector<float> sum(count), all(count * static_cast<size_t>(group_.world_size()));
      cuda::check(cudaMemcpy(sum.data(), in, count * sizeof(float), cudaMemcpyDefault), "read this rank's part");
      group_.all_gather_words<float>(sum, all);
      for (size_t i = 0; i < count; ++i) {
        sum[i] = all[i];
        for (size_t at = count + i; at < all.size(); at += count) sum[i] += all[at];
      }
      cuda::check(cudaMemcpy(out, sum.data(), count * sizeof(float), cudaMemcpyDefault), "write the sum");
    });
  }
  void barrier() override { group_.barrier(); }
  void abort(const std::string& reason) noexcept override { group_.abort(reason); }

 private:
  void exchange(const void* in, std::byte* out, size_t bytes, size_t rank_stride) {
    const auto world = static_cast<size_t>(group_.world_size());
    std::vector<std::byte> own(bytes), all(bytes * world);
    cuda::check(cudaMemcpy(own.data(), in, bytes, cudaMemcpyDefault), "read this rank's part");
    group_.gather(own, all.data(), bytes);
    cuda::check(cudaMemcpy2D(out, rank_stride, all.data(), bytes, bytes, world, cudaMemcpyDefault), "write the parts");
    cuda::check(cudaDeviceSynchronize(), "exchange");
  }

  Communicator& group_;
  CutStream& compute_;
  const bool adds_rows_;
};

/// One rank's exchanges on the stream itself, as NCCL's of one rank: they can be captured.
class LoneExchanges final : public Communicator {
 public:
  explicit LoneExchanges(Stream& compute) : stream_(cuda::native_stream(compute)) {}
  Rank rank() const override { return Rank(0); }
  int world_size() const override { return 1; }
  void gather(std::span<const std::byte> in, std::byte* out, size_t) override {
    if (in.data() == out) return;
    cuda::check(cudaMemcpyAsync(out, in.data(), in.size(), cudaMemcpyDefault, stream_), "gather alone");
  }
  void all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t*, int64_t max_rows) override {
    const size_t bytes = static_cast<size_t>(max_rows) * row_bytes;
    gather({static_cast<const std::byte*>(in), bytes}, static_cast<std::byte*>(out), bytes);
  }
  void barrier() override {}
  void abort(const std::string&) noexcept override {}

 private:
  const cudaStream_t stream_;
};

}  // namespace

Device cuda_device(int world) {
  Device device;
  device.backend = world == 1 ? cuda::make_backend(0, kHostThreads) : std::make_unique<CutBackend>();
  device.compute = device.backend->make_stream("compute");
  return device;
}

std::unique_ptr<Communicator> cuda_exchanges(Communicator& group, Device& device, bool adds_rows) {
  if (group.world_size() == 1) return std::make_unique<LoneExchanges>(*device.compute);
  return std::make_unique<CutExchanges>(group, static_cast<CutStream&>(*device.compute), adds_rows);
}

}  // namespace helios::testing
