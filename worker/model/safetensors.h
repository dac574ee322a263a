// Reads safetensors files by memory map: one file, or model.safetensors.index.json with its shards.
//
// Headers are hostile until checked: lengths, offsets, overlaps, holes, products, duplicate names. Tensor bytes are not
// touched here; whoever packs a tensor reads just the rows it needs and gives the pages back with release().
// Thread: any, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/byte_source.h"
#include "kernels/base/dtype.h"
#include "worker/model/load_error.h"

namespace helios {

/// A tensor in a mapped file.
struct MappedTensor {
  std::string file;            // for messages
  std::string dtype;           // as the file says it: "BF16"
  std::vector<int64_t> shape;  // every extent >= 0; the product fits
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

std::string shape_text(const std::vector<int64_t>& shape);
/// A name from a hostile file, fit for one log line.
std::string printable(std::string_view text);

/// A tensor usable as a matrix input: `data` is aligned to the element.
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
};

class Checkpoint : public ByteSource {
 public:
  /// Opens model.safetensors, or the shards that model.safetensors.index.json names. Throws LoadError.
  static Checkpoint open(const std::string& model_dir);
  ~Checkpoint() override;
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) = delete;

  const std::map<std::string, MappedTensor>& tensors() const { return tensors_; }

  /// The tensor, which must be F32, BF16 or F16 and have exactly this shape. Throws LoadError.
  TensorView floats(const std::string& name, const std::vector<int64_t>& shape);

  /// The same for a quantised matrix: `dtype` is 8 bits. Throws LoadError.
  TensorView eight_bits(const std::string& name, const std::vector<int64_t>& shape, DType dtype);

  /// Reads from the file, so that no page of it is mapped; or from memory, where `from` is in no file.
  void copy(const void* from, size_t bytes, void* to) const override;
  /// Gives the tensor's pages back; they are read again from the file when touched.
  void release(const std::string& name);

 private:
  struct Mapping {
    void* data = nullptr;
    size_t bytes = 0;
    int file = -1;  // open; -1: none
  };
  Checkpoint() = default;
  const MappedTensor& tensor(const std::string& name, const std::vector<int64_t>& shape) const;
  void add_file(const std::string& path, const std::map<std::string, std::string>* weight_map, const std::string& file);

  std::vector<Mapping> mappings_;
  std::map<std::string, MappedTensor> tensors_;
  std::vector<AlignedBuffer> realigned_;  // copies of tensors that their file puts at odd addresses
};

/// The header of one safetensors file, checked. `file_bytes` is the whole file's size; offsets are from the file's
/// begin.
struct HeaderEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;
};
/// `path` is for messages. Throws LoadError.
std::vector<HeaderEntry> parse_safetensors_header(const std::byte* data, size_t file_bytes, const std::string& path);

}  // namespace helios
