// Several elements in one load or store: a warp moves 512 bytes at once where lanes take 16 each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/simt.h"

namespace helios {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Chunk {
  T at[kCount];
};

/// `p` is aligned to the chunk.
template <int kCount, class T>
__device__ inline Chunk<T, kCount> load_chunk(const T* p) {
  return *reinterpret_cast<const Chunk<T, kCount>*>(p);
}
template <int kCount, class T>
__device__ inline void store_chunk(T* p, const Chunk<T, kCount>& chunk) {
  *reinterpret_cast<Chunk<T, kCount>*>(p) = chunk;
}

/// Host: whether rows of `stride` elements from `p` on can be read in chunks.
template <int kCount, class T>
bool in_chunks(const T* p, int64_t stride) {
  return stride % kCount == 0 && reinterpret_cast<uintptr_t>(p) % (sizeof(T) * kCount) == 0;
}

}  // namespace helios
