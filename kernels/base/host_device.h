// HELIOS_HD marks what host code and GPU kernels share, and rounded_*() the FP64 steps that no compiler may fuse.
//
// nvcc contracts a multiply and an add unless told not to, GCC where the target has the instruction: what must have the
// same bits on every device says so here, or writes std::fma.
#pragma once

#if defined(__CUDACC__)
#define HELIOS_HD __host__ __device__
#else
#define HELIOS_HD
#endif

namespace helios {

HELIOS_HD inline double rounded_product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
HELIOS_HD inline double rounded_sum(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
HELIOS_HD inline float rounded_product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
HELIOS_HD inline float rounded_sum(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

}  // namespace helios
