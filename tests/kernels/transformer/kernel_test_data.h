// Random inputs, outputs with guard words, and comparisons for kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/base/memory.h"

namespace helios::testing {

/// The emulated device runs a thread of a GPU at a time and takes no thread pool: fewer cases say as much.
#if defined(HELIOS_EMULATED_DEVICE)
inline constexpr bool kEmulatedDevice = true;
#else
inline constexpr bool kEmulatedDevice = false;
#endif
/// All of `cases`, or the first `emulated` of them on the emulated device: put the telling ones first.
template <class T>
std::vector<T> cases_for_device(std::vector<T> cases, size_t emulated) {
  if (kEmulatedDevice && cases.size() > emulated) cases.resize(emulated);
  return cases;
}

/// A count as kernels get it: from memory. At most 4096.
inline const int32_t* count_of(int64_t count) {
  static const std::vector<int32_t> counts = [] {
    std::vector<int32_t> all(4097);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    return all;
  }();
  return &counts.at(static_cast<size_t>(count));
}

/// Weights in host memory, with a guard behind every allocation.
class HostStore final : public WeightStore {
 public:
  explicit HostStore(ThreadPool& pool) : pool_(pool) {}
  ThreadPool& pool() override { return pool_; }
  Memory allocate(size_t bytes) override {
    if (bytes == 0) return {};
    void* data = ::operator new(bytes + 64, kAlignment);
    std::memset(data, 0, bytes);
    std::memset(static_cast<std::byte*>(data) + bytes, kGuard, 64);
    return Memory(data, bytes, [](void* p, size_t size) {
      for (size_t i = 0; i < 64; ++i)
        EXPECT_EQ(static_cast<unsigned char*>(p)[size + i], kGuard) << "written past the end";
      ::operator delete(p, kAlignment);
    });
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  static constexpr std::align_val_t kAlignment{64};
  ThreadPool& pool_;
};

inline std::vector<float> random_floats(int64_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

inline std::vector<float> random_bf16_floats(int64_t count, uint32_t seed, float scale = 1.0f) {
  std::vector<float> values = random_floats(count, seed, scale);
  for (float& value : values) value = round_to_bf16(value);
  return values;
}

inline std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) bits[i] = float_to_bf16(values[i]);
  return bits;
}

/// `count` floats between guard words, which the destructor checks.
class GuardedFloats {
 public:
  explicit GuardedFloats(int64_t count, float fill = -77.0f) : data_(count + 2 * kGuards, std::bit_cast<float>(kMark)) {
    std::fill(data_.begin() + kGuards, data_.end() - kGuards, fill);
  }
  ~GuardedFloats() {
    for (int i = 0; i < kGuards; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(data_[i]), kMark) << "written before the start";
      EXPECT_EQ(std::bit_cast<uint32_t>(data_[data_.size() - 1 - i]), kMark) << "written past the end";
    }
  }
  GuardedFloats(const GuardedFloats&) = delete;

  float* data() { return data_.data() + kGuards; }
  float operator[](int64_t i) const { return data_[kGuards + i]; }
  std::vector<float> values() const { return {data_.begin() + kGuards, data_.end() - kGuards}; }

 private:
  static constexpr int kGuards = 64;
  static constexpr uint32_t kMark = 0x7fabcdefu;  // a NaN that no kernel makes
  std::vector<float> data_;
};

inline std::vector<uint32_t> bits_of(const float* values, int64_t count) {
  std::vector<uint32_t> bits(count);
  for (int64_t i = 0; i < count; ++i) bits[i] = std::bit_cast<uint32_t>(values[i]);
  return bits;
}

}  // namespace helios::testing
