// Seeded kernel defects. `defects_test NAME` runs one of them; it prints "undetected" if nothing stopped or exposed it.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>
#include "kernels/base/simt.h"

__global__ void missing_barrier(int* out) {  // neighbour read without __syncthreads()
  __shared__ int s[64];
  s[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
  out[threadIdx.x] = s[(threadIdx.x + 1) % 64];
}
__global__ void missing_barrier_dyn(int* out) {
  SIMT_DYN_SHARED(int, s);
  s[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
  out[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void shared_overrun(int* out, int n) {
  __shared__ int s[64];
  int* p = s;  // hides the array bound from UBSan, as a real pointer would
  for (int i = threadIdx.x; i < n; i += 64) p[i] = i;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
__global__ void dynamic_overrun(int* out, int n) {
  SIMT_DYN_SHARED(int, s);
  for (int i = threadIdx.x; i < n; i += 64) s[i] = i;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
__global__ void global_overrun(int* out) { out[threadIdx.x + 1] = 1; }
__global__ void divergent_barrier(int* out) {
  if (threadIdx.x < 32) __syncthreads();
  else if (threadIdx.x < 64)
    __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void exited_lane(int* out) {
  if (threadIdx.x % 32 == 5) return;
  out[threadIdx.x] = __shfl_xor_sync(~0u, static_cast<int>(threadIdx.x), 1);
}
__global__ void wrong_mask(int* out) {
  int v = 0;
  if (threadIdx.x % 32 < 16) v = __shfl_sync(0x0000ffffu, static_cast<int>(threadIdx.x), 20);
  out[threadIdx.x] = v;
}
__global__ void uninitialised(float* out) {
  SIMT_DYN_SHARED(float, s);
  if (threadIdx.x) s[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = s[threadIdx.x];
}
__global__ void signed_overflow(int* out, int big) { out[threadIdx.x] = big * 4 + static_cast<int>(threadIdx.x); }
__global__ void plain_counter(int* out) { out[0] += 1; }  // needs atomicAdd
__global__ void deep_stack(int* out, int n) {
  volatile char a[512 << 10];
  for (int i = 0; i < n; i += 4096) a[n - 1 - i] = 1;
  out[threadIdx.x] = a[n / 2];
}
__global__ void grid_barrier(int* arrive, int* out) {  // correct code, needs a cooperative launch
  if (threadIdx.x == 0) {
    atomicAdd(arrive, 1);
    while (atomicAdd(arrive, 0) < static_cast<int>(gridDim.x)) simt::pause();
  }
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

int main(int argc, char** argv) {
  std::string name = argc > 1 ? argv[1] : "";
  if (argc > 2) simt::options.order = argv[2][0] == 'r' ? simt::Order::reverse : simt::Order::shuffle;
  std::vector<int> out(64, 0);
  std::vector<float> f(64, 0);
  bool exposed = false;
  auto run = [&](auto kernel, size_t shared, auto... a) { simt::launch(kernel, dim3(1), dim3(64), shared, nullptr, a...); };
  if (name == "missing_barrier") {
    run(missing_barrier, 0, out.data());
    for (int i = 0; i < 64; ++i) exposed |= out[i] != (i + 1) % 64 + 1;
  } else if (name == "missing_barrier_dyn") {
    run(missing_barrier_dyn, 256, out.data());
    for (int i = 0; i < 64; ++i) exposed |= out[i] != 64 - i;
  } else if (name == "shared_overrun") run(shared_overrun, 0, out.data(), 65);
  else if (name == "dynamic_overrun") run(dynamic_overrun, 256, out.data(), 65);
  else if (name == "global_overrun") run(global_overrun, 0, out.data());
  else if (name == "divergent_barrier") run(divergent_barrier, 0, out.data());
  else if (name == "exited_lane") run(exited_lane, 0, out.data());
  else if (name == "wrong_mask") run(wrong_mask, 0, out.data());
  else if (name == "uninitialised") run(uninitialised, 256, f.data()), exposed = f[0] != f[0];
  else if (name == "signed_overflow") run(signed_overflow, 0, out.data(), 1 << 30);
  else if (name == "plain_counter") run(plain_counter, 0, out.data()), exposed = out[0] != 64;
  else if (name == "deep_stack") run(deep_stack, 0, out.data(), 512 << 10);
  else if (name == "grid_barrier") {
    int arrive = 0;
    std::vector<int> o(8 * 32);
    simt::launch_cooperative(grid_barrier, dim3(8), dim3(32), 0, nullptr, &arrive, o.data());
    std::printf(arrive == 8 ? "correct code passed\n" : "BAD\n");
    return arrive != 8;
  } else return std::printf("unknown name\n"), 2;
  std::printf(exposed ? "wrong result (exposed)\n" : "undetected\n");
  return exposed;
}
