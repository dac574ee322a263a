// What a checkpoint does once its files are mapped; safetensors.cc reads their headers.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/model/safetensors.h"

namespace helios {

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? c : '?';
  if (text.size() > 80) out += "...";
  return out;
}

Checkpoint::Checkpoint(Checkpoint&& other) noexcept
    : mappings_(std::exchange(other.mappings_, {})),
      tensors_(std::move(other.tensors_)),
      realigned_(std::move(other.realigned_)) {}

Checkpoint::~Checkpoint() {
  for (const Mapping& m : mappings_) {
    munmap(m.data, m.bytes);
    if (m.file >= 0) close(m.file);
  }
}

/// The tensor, which must have exactly this shape. Throws LoadError.
const MappedTensor& Checkpoint::tensor(const std::string& name, const std::vector<int64_t>& shape) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) throw LoadError("tensor " + name + ": expected " + shape_text(shape) + ", found none");
  const MappedTensor& t = it->second;
  if (t.shape != shape) {
    throw LoadError(t.file + ": tensor " + name + ": expected " + shape_text(shape) + ", found " + shape_text(t.shape));
  }
  return t;
}

TensorView Checkpoint::eight_bits(const std::string& name, const std::vector<int64_t>& shape, DType dtype) {
  const MappedTensor& t = tensor(name, shape);
  const std::string_view expected = dtype == DType::kInt8 ? "I8" : "F8_E4M3";
  if (t.dtype != expected) {
    throw LoadError(t.file + ": tensor " + name + ": quantization_config makes it " + std::string(expected) +
                    ", found " + printable(t.dtype));
  }
  return {.data = t.data, .dtype = dtype, .shape = shape};
}

TensorView Checkpoint::floats(const std::string& name, const std::vector<int64_t>& shape) {
  const MappedTensor& t = tensor(name, shape);
  TensorView view{.data = t.data, .shape = shape};
  if (t.dtype == "F32") {
    view.dtype = DType::kFloat32;
  } else if (t.dtype == "BF16") {
    view.dtype = DType::kBFloat16;
  } else if (t.dtype == "F16") {
    view.dtype = DType::kFloat16;
  } else {
    throw LoadError(t.file + ": tensor " + name + ": expected F32, BF16 or F16, found " + printable(t.dtype));
  }
  if (reinterpret_cast<uintptr_t>(t.data) % dtype_bytes(view.dtype) != 0) {
    realigned_.emplace_back(static_cast<size_t>(t.bytes));
    std::memcpy(realigned_.back().data(), t.data, static_cast<size_t>(t.bytes));
    view.data = realigned_.back().data();
  }
  return view;
}

void Checkpoint::copy(const void* from, size_t bytes, void* to) const {
  const auto* at = static_cast<const std::byte*>(from);
  auto* out = static_cast<std::byte*>(to);
  for (const Mapping& m : mappings_) {
    const auto* begin = static_cast<const std::byte*>(m.data);
    if (m.file < 0 || at < begin || at + bytes > begin + m.bytes) continue;
    while (bytes > 0) {
      const ssize_t count = pread(m.file, out, bytes, at - begin);
      if (count <= 0) break;  // then the mapping says what is wrong
      at += count, out += count, bytes -= static_cast<size_t>(count);
    }
    break;
  }
  if (bytes > 0) std::memcpy(out, at, bytes);
}

void Checkpoint::release(const std::string& name) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end() || it->second.bytes == 0) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(it->second.data) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(it->second.data) + static_cast<uintptr_t>(it->second.bytes);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace helios
