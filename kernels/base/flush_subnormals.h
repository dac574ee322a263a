// Subnormal FP32 numbers are zeros to this thread, operands and results, while one of these lives. Does nothing on
// processors other than x86-64.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace helios {

#if defined(__x86_64__)

class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;  // bits of MXCSR
  unsigned before_;
};

#else

class FlushSubnormals {
 public:
  FlushSubnormals() {}
  FlushSubnormals(const FlushSubnormals&) = delete;
};

#endif

}  // namespace helios
