// matmul() on the emulated device, where no library multiplies: a plain kernel over the device's own weight layout, one
// thread an output, in the CPU's order of summation, so that a whole forward pass on the emulator can be compared bit
// by bit.
#include "common/base/check.h"
#include "kernels/base/simt.h"
#include "kernels/transformer/matmul_rows.h"

namespace helios {
namespace {

constexpr int kThreads = 128;

__global__ void matmul_kernel(MatmulArgs a, RowsView w) {
  const int64_t row = blockIdx.x, column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (a.first_row + row >= *a.num_rows || column >= w.n) return;
  float level[kRowsMaxSegments];
  for (int s = 0; s < w.num_segments; ++s) {
    const int64_t begin = w.segments[s], length = w.segments[s + 1] - begin;
    const float* x = a.x + row * a.x_stride + begin;
    const int64_t base = s * w.segment_elements() + column * w.segment_k;
    float sum = 0.0f;
    for (int64_t i = 0; i < length; ++i) sum = std::fma(x[i], load_element(w.data, w.dtype, base + i), sum);
    level[s] = sum;
  }
  for (int width = w.num_segments; width > 1; width /= 2) {
    for (int s = 0; s < width / 2; ++s) level[s] = level[2 * s] + level[2 * s + 1];
  }
  a.out[row * a.out_stride + column] = a.bias ? level[0] + a.bias[column] : level[0];
}

}  // namespace

std::shared_ptr<void> make_matmul_handle() { return nullptr; }

int64_t matmul_scratch_bytes(const PackedMatrix&, int64_t, int) { return 0; }

void matmul(const MatmulArgs& args, void*, const Launcher& on) {
  if (args.max_rows == 0 || args.w->n() == 0) return;
  const RowsView w = MatmulRows::view(*args.w);
  MatmulArgs on_device = args;
  on_device.w = nullptr;  // the matrix's object is the host's; the kernel has its view
  simt::launch(matmul_kernel,
               dim3(static_cast<unsigned>(args.max_rows), static_cast<unsigned>((w.n + kThreads - 1) / kThreads)),
               dim3(kThreads), 0, on.stream(), on_device, w);
}

}  // namespace helios
