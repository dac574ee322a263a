// What one render may use: memory, steps, depth. Everything that a render makes lives in its arena and dies with it.
//
// Templates come with models and their data from clients, so every loop, copy and recursion is paid for here; running
// out is an error of the render, never of the process. An arena instead of reference counts, because templates can
// build cycles (a namespace that holds itself) and chains a million links deep. Thread: the one that renders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace helios::jinja {

/// Bounds of one render. The defaults are far above what conversations need.
struct RenderLimits {
  size_t max_output_bytes = 32u << 20;
  size_t max_memory_bytes = 256u << 20;
  /// One step: an evaluated node, a visited item, or 64 bytes of text worked through.
  uint64_t max_steps = 40'000'000;
  /// Nested evaluations: expressions, statements and macro calls together.
  int max_depth = 1000;
};

/// Why a render or a parse ended; leaves the room as an Error. `line` 0: not known yet.
struct Fault {
  Errc code;
  std::string message;
  int line = 0;
};

/// The template and its data do not fit (Python's TypeError, UndefinedError and so on).
[[noreturn]] void fail(std::string message);

/// Text of string-like parts, joined.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (out.append(std::string_view(parts)), ...);
  return out;
}

class Sandbox {
 public:
  explicit Sandbox(const RenderLimits& limits) : limits_(limits) {}
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  const RenderLimits& limits() const { return limits_; }

  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) [[unlikely]]
      out_of_steps();
  }
  /// Pays for looking at `bytes` of text.
  void scan(size_t bytes) { step(1 + bytes / 64); }
  uint64_t steps() const { return steps_; }
  size_t memory_bytes() const { return reserved_; }

  /// Uninitialised, aligned to 8 bytes.
  void* allocate(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > static_cast<size_t>(end_ - next_)) [[unlikely]]
      return allocate_block(bytes);
    char* out = next_;
    next_ += bytes;
    return out;
  }
  template <class T, class... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    return new (allocate(sizeof(T))) T{std::forward<Args>(args)...};
  }
  template <class T>
  T* make_array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    if (count > limits_.max_memory_bytes / sizeof(T)) out_of_memory();
    return static_cast<T*>(allocate(count * sizeof(T)));
  }
  std::string_view copy(std::string_view text);
  /// Grows the latest allocation, which ends at `end`, by `bytes` in place; false when something else lies there.
  bool extend(const char* end, size_t bytes) {
    if (end != next_ || bytes > static_cast<size_t>(end_ - next_) || bytes % 8 != 0) return false;
    next_ += bytes;
    return true;
  }

  void enter() {
    if (++depth_ > limits_.max_depth) [[unlikely]]
      too_deep();
  }
  void leave() { --depth_; }

 private:
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void out_of_memory() const;
  [[noreturn]] void too_deep();
  void* allocate_block(size_t bytes);

  RenderLimits limits_;
  uint64_t steps_ = 0;
  int depth_ = 0;
  char* next_ = nullptr;
  char* end_ = nullptr;
  size_t reserved_ = 0;
  std::vector<std::unique_ptr<char[]>> blocks_;
};

/// One level of nesting, for as long as it lives.
class Nested {
 public:
  explicit Nested(Sandbox& box) : box_(box) { box_.enter(); }
  ~Nested() { box_.leave(); }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Sandbox& box_;
};

}  // namespace helios::jinja
