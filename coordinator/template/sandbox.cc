#include "coordinator/template/sandbox.h"

#include <algorithm>
#include <cstring>

namespace helios::jinja {

namespace {
constexpr size_t kFirstBlockBytes = 16u << 10;
constexpr size_t kLargestBlockBytes = 1u << 20;
}  // namespace

void fail(std::string message) { throw Fault{Errc::kMismatch, std::move(message)}; }

void Sandbox::out_of_steps() const {
  throw Fault{Errc::kTooLarge, "the template takes more than " + std::to_string(limits_.max_steps) + " steps"};
}

void Sandbox::out_of_memory() const {
  throw Fault{Errc::kTooLarge,
              "the template needs more than " + std::to_string(limits_.max_memory_bytes) + " bytes of memory"};
}

void Sandbox::too_deep() {
  --depth_;  // the Nested that called us is not constructed, so it will not leave
  throw Fault{Errc::kTooLarge, "nested more than " + std::to_string(limits_.max_depth) + " deep"};
}

void* Sandbox::allocate_block(size_t bytes) {
  const size_t left = limits_.max_memory_bytes - std::min(limits_.max_memory_bytes, reserved_);
  if (bytes > left) out_of_memory();
  const size_t usual = std::min(kLargestBlockBytes, std::max(kFirstBlockBytes, reserved_));
  if (bytes >= usual / 2) {  // a block of its own: the rest of the current one stays in use
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
    reserved_ += bytes;
    return blocks_.back().get();
  }
  const size_t block = std::min(usual, left);
  blocks_.push_back(std::make_unique_for_overwrite<char[]>(block));
  reserved_ += block;
  next_ = blocks_.back().get() + bytes;
  end_ = blocks_.back().get() + block;
  return blocks_.back().get();
}

std::string_view Sandbox::copy(std::string_view text) {
  if (text.empty()) return {};
  char* out = static_cast<char*>(allocate(text.size()));
  std::memcpy(out, text.data(), text.size());
  return {out, text.size()};
}

}  // namespace helios::jinja
