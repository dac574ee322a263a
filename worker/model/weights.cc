#include "worker/model/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace helios {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

/// Scales of a matrix, as files spell the shape; one for all is [1] or [], and one a row may lack its last extent.
std::vector<int64_t> scale_shape(const MatrixScheme& scheme, const std::vector<int64_t>& weight) {
  const auto blocks = [](int64_t extent, int64_t block) { return block == 0 ? 1 : (extent + block - 1) / block; };
  if (scheme.block_rows == 0) return {1};
  return {blocks(weight[0], scheme.block_rows), blocks(weight[1], scheme.block_columns)};
}

std::string layer_prefix(int layer) { return fmt::format("model.layers.{}.", layer); }

/// Every tensor of the model, by name.
Shapes expected_tensors(const ModelConfig& c) {
  Shapes out;
  const int64_t q = int64_t{c.num_heads} * c.head_dim, kv = int64_t{c.num_kv_heads} * c.head_dim;
  out["model.embed_tokens.weight"] = {c.vocab_size, c.hidden};
  out["model.norm.weight"] = {c.hidden};
  if (!c.tied_embeddings) out["lm_head.weight"] = {c.vocab_size, c.hidden};
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string p = layer_prefix(i);
    const auto linear = [&](const std::string& name, int64_t rows, int64_t columns, bool bias) {
      out[p + name + ".weight"] = {rows, columns};
      if (bias) out[p + name + ".bias"] = {rows};
    };
    out[p + "input_layernorm.weight"] = {c.hidden};
    out[p + "post_attention_layernorm.weight"] = {c.hidden};
    if (c.qk_norm) {
      out[p + "self_attn.q_norm.weight"] = {c.head_dim};
      out[p + "self_attn.k_norm.weight"] = {c.head_dim};
    }
    linear("self_attn.q_proj", q, c.hidden, c.qkv_bias);
    linear("self_attn.k_proj", kv, c.hidden, c.qkv_bias);
    linear("self_attn.v_proj", kv, c.hidden, c.qkv_bias);
    linear("self_attn.o_proj", c.hidden, q, c.o_bias);
    linear("mlp.gate_proj", c.inner, c.hidden, c.mlp_bias);
    linear("mlp.up_proj", c.inner, c.hidden, c.mlp_bias);
    linear("mlp.down_proj", c.hidden, c.inner, c.mlp_bias);
  }
  for (const auto& [module, scheme] : c.quantised) {
    const auto weight = out.find(module + ".weight");
    if (weight != out.end()) out[module + scheme.scale] = scale_shape(scheme, weight->second);
  }
  return out;
}

/// What old exports carry although it follows from the configuration, or is never read: activations are not quantised.
bool is_redundant(const std::string& name, const MappedTensor& tensor, const ModelConfig& c) {
  for (const std::string_view kind : {".input_scale", ".input_zero_point"}) {
    if (name.ends_with(kind) && c.quantised.contains(name.substr(0, name.size() - kind.size()))) return true;
  }
  if (c.tied_embeddings && name == "lm_head.weight") return tensor.dtype != "I8" && tensor.dtype != "F8_E4M3";
  return name.ends_with(".rotary_emb.inv_freq");
}

void check_tensor_names(const Checkpoint& checkpoint, const ModelConfig& c, const Shapes& expected) {
  for (const auto& [name, shape] : expected) {
    if (!checkpoint.tensors().contains(name)) {
      throw LoadError("tensor " + name + ": expected " + shape_text(shape) + ", found none");
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!expected.contains(name) && !is_redundant(name, tensor, c)) {
      throw LoadError(tensor.file + ": tensor " + name + " " + shape_text(tensor.shape) + ": not a tensor of a " +
                      c.model_type + " model with this config.json");
    }
  }
}

/// Rows [begin, end) of one checkpoint matrix.
struct Slice {
  std::string name;
  Range rows;
};

/// Weights on a backend. Uploads go through one piece of pinned memory.
class BackendStore final : public WeightStore {
 public:
  explicit BackendStore(Backend& backend) : backend_(backend) {}
  ThreadPool& pool() override { return backend_.host_pool(); }
  Memory allocate(size_t bytes) override { return backend_.device_memory(bytes); }
  void upload(void* to, const void* from, size_t bytes) override {
    if (!stream_) {
      stream_ = backend_.make_stream("weights");
      staging_ = backend_.pinned_memory(kStagingBytes);
    }
    for (size_t done = 0; done < bytes; done += kStagingBytes) {
      const size_t piece = std::min(bytes - done, kStagingBytes);
      std::memcpy(staging_.data(), static_cast<const std::byte*>(from) + done, piece);
      stream_->copy(static_cast<std::byte*>(to) + done, staging_.data(), piece);
      stream_->synchronize();
    }
  }

 private:
  static constexpr size_t kStagingBytes = size_t{16} << 20;
  Backend& backend_;
  Memory staging_;
  std::unique_ptr<Stream> stream_;
};

class Loader {
 public:
  Loader(Checkpoint& checkpoint, const ModelConfig& config, DType round_to, Backend& backend)
      : checkpoint_(checkpoint),
        config_(config),
        expected_(expected_tensors(config)),
        round_to_(round_to),
        store_(backend) {
    check_tensor_names(checkpoint, config, expected_);
  }

  const std::vector<int64_t>& shape(const std::string& name) const { return expected_.at(name); }

  EmbeddingTable embedding(const std::string& name) {
    const std::vector<int64_t>& extents = shape(name);
    const TensorView t = checkpoint_.floats(name, extents);
    check_fits(name, 0, {.data = t.data, .dtype = t.dtype, .num_rows = extents[0], .row_stride = extents[1],
                         .source = &checkpoint_}, {0, extents[1]});
    EmbeddingTable table = EmbeddingTable::prepare(t.data, t.dtype, extents[0] * extents[1], store_, &checkpoint_);
    bytes_ += table.bytes();
    return table;
  }

  /// Points `to` at the vector, once upload_vectors() has put it into device memory; `to` stays where it is until then.
  void vector(const float*& to, const std::vector<Slice>& slices) {
    constexpr size_t kAlignment = 64 / sizeof(float);
    vectors_.resize((vectors_.size() + kAlignment - 1) / kAlignment * kAlignment);
    targets_.emplace_back(&to, vectors_.size());
    for (const Slice& slice : slices) {
      const TensorView t = checkpoint_.floats(slice.name, shape(slice.name));
      for (int64_t i = slice.rows.begin; i < slice.rows.end; ++i) vectors_.push_back(load_element(t.data, t.dtype, i));
    }
  }
  void vector(const float*& to, const std::string& name) { vector(to, {{name, {0, shape(name)[0]}}}); }

  Memory upload_vectors() {
    Memory memory = store_.allocate(vectors_.size() * sizeof(float));
    store_.upload(memory.data(), vectors_.data(), memory.bytes());
    for (const auto& [to, at] : targets_) *to = memory.as<float>() + at;
    bytes_ += static_cast<int64_t>(memory.bytes());
    return memory;
  }

  /// Stacks the slices and takes `columns` of each. Nothing is packed when either is empty. Quantised slices stay as
  /// they are where all are alike.
  PackedMatrix matrix(const std::vector<Slice>& slices, Range columns, const std::vector<int64_t>& segments,
                      int64_t longest_segment = 0) {
    std::vector<WeightRows> parts;
    std::vector<std::vector<float>> scales;  // of each part
    for (const Slice& slice : slices) parts.push_back(rows_of(slice, columns, scales.emplace_back()));
    const DType stored = stored_as(parts);
    for (size_t i = 0; i < slices.size() && !is_eight_bit(stored); ++i) {
      check_fits(slices[i].name, slices[i].rows.begin, parts[i], columns);
    }
    int64_t rows = 0;
    for (const WeightRows& part : parts) rows += part.num_rows;
    PackedMatrix out;
    if (rows > 0 && columns.size() > 0) {
      out = PackedMatrix::pack(parts, columns.begin, columns.end, segments, stored, store_, longest_segment);
    }
    for (const Slice& slice : slices) checkpoint_.release(slice.name);
    bytes_ += out.bytes();
    return out;
  }

  int64_t bytes() const { return bytes_; }

 private:
  /// What a matrix of these parts is stored as: what they all are, where that may stay.
  DType stored_as(const std::vector<WeightRows>& parts) const {
    const DType first = parts[0].dtype;
    const bool alike = std::all_of(parts.begin(), parts.end(), [&](const WeightRows& part) {
      return part.dtype == first && part.scale_columns == parts[0].scale_columns;
    });
    if (alike && is_eight_bit(first)) return first;
    if (round_to_ != DType::kFloat32) return round_to_;
    return alike ? first : DType::kFloat32;
  }

  WeightRows rows_of(const Slice& slice, Range columns, std::vector<float>& scales) {
    const std::vector<int64_t>& extents = shape(slice.name);
    const std::string module = slice.name.substr(0, slice.name.size() - std::string_view(".weight").size());
    const auto scheme = config_.quantised.find(module);
    const bool quantised = scheme != config_.quantised.end();
    const TensorView t = quantised ? checkpoint_.eight_bits(slice.name, extents, scheme->second.dtype)
                                   : checkpoint_.floats(slice.name, extents);
    const int64_t stride = extents[1];
    WeightRows out{.data = static_cast<const std::byte*>(t.data) +
                           slice.rows.begin * stride * static_cast<int64_t>(dtype_bytes(t.dtype)),
                   .dtype = t.dtype,
                   .num_rows = slice.rows.size(),
                   .row_stride = stride,
                   .source = &checkpoint_};
    if (quantised) {
      add_scales(module, scheme->second, slice.rows, out, scales);
      check_codes(slice, out, columns);
    }
    return out;
  }

  /// Points `out` at the scales of its rows, each checked.
  void add_scales(const std::string& module, const MatrixScheme& scheme, Range rows, WeightRows& out,
                  std::vector<float>& scales) {
    const std::string name = module + scheme.scale;
    const MappedTensor& tensor = checkpoint_.tensors().at(name);
    if (!PackedMatrix::holds_eight_bits()) {
      throw LoadError(tensor.file + ": tensor " + name + ": quantised weights are served with --device cpu only");
    }
    std::vector<int64_t> extents = shape(name);
    const int64_t blocks = extents.size() == 2 ? extents[1] : 1;
    if (blocks == 1 && tensor.shape.size() + 1 == extents.size()) extents.pop_back();
    const TensorView t = checkpoint_.floats(name, extents);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t row = scheme.block_rows == 0 ? 0 : r / scheme.block_rows;
      for (int64_t b = 0; b < blocks; ++b) {
        scales.push_back(load_element(t.data, t.dtype, row * blocks + b));
        if (!(scales.back() >= kMinScale && scales.back() <= kMaxScale)) {
          throw LoadError(fmt::format("{}: tensor {}: expected scales from {} to {}, found {} at [{}, {}]",
                                      tensor.file, name, kMinScale, kMaxScale, scales.back(), row, b));
        }
      }
    }
    out.scales = scales.data();
    out.scale_stride = blocks;
    out.scale_columns = blocks == 1 ? out.row_stride : scheme.block_columns;
    checkpoint_.release(name);
  }

  /// The first of the rows of which `is_bad(r, elements)` holds, or -1; on the pool. `elements` is a copy.
  template <class IsBad>
  int64_t first_bad_row(const WeightRows& rows, const IsBad& is_bad) {
    constexpr int64_t kRows = 64;  // at a time, copied as pack() copies them
    const int64_t row_bytes = rows.row_stride * static_cast<int64_t>(dtype_bytes(rows.dtype));
    std::atomic<int64_t> bad = rows.num_rows;
    store_.pool().parallel_for((rows.num_rows + kRows - 1) / kRows, 1, [&](int64_t begin, int64_t end) {
      std::vector<std::byte> copied;
      for (int64_t first = begin * kRows; first < std::min(end * kRows, rows.num_rows); first += kRows) {
        const int64_t count = std::min(kRows, rows.num_rows - first);
        copied.resize(static_cast<size_t>(count * row_bytes));
        checkpoint_.copy(static_cast<const std::byte*>(rows.data) + first * row_bytes, copied.size(), copied.data());
        for (int64_t r = 0; r < count; ++r) {
          if (!is_bad(first + r, copied.data() + r * row_bytes)) continue;
          for (int64_t known = bad; first + r < known && !bad.compare_exchange_weak(known, first + r);) {}
        }
      }
    });
    return bad == rows.num_rows ? -1 : bad.load();
  }

  /// E4M3 has two codes that are no number.
  void check_codes(const Slice& slice, const WeightRows& rows, Range columns) {
    if (rows.dtype != DType::kFloat8E4M3) return;
    const int64_t bad = first_bad_row(rows, [&](int64_t, const std::byte* row) {
      int64_t found = 0;
      for (int64_t c = columns.begin; c < columns.end; ++c) found += e4m3_is_nan(static_cast<uint8_t>(row[c]));
      return found != 0;
    });
    if (bad < 0) return;
    throw LoadError(fmt::format("{}: tensor {}: NaN in row {}", checkpoint_.tensors().at(slice.name).file, slice.name,
                                slice.rows.begin + bad));
  }

  /// F16 ends at 65504: what rounding to it would make infinite is refused. `first_row` of the tensor is rows' first.
  void check_fits(const std::string& name, int64_t first_row, const WeightRows& rows, Range columns) {
    if (round_to_ != DType::kFloat16 || rows.dtype == DType::kFloat16) return;
    const auto value = [&rows](int64_t r, const void* row, int64_t c) {
      const float stored = load_element(row, rows.dtype, c);
      return rows.scales ? stored * rows.scales[r * rows.scale_stride + c / rows.scale_columns] : stored;
    };
    const auto too_large = [](float x) { return std::fabs(x) >= 65520.0f && std::isfinite(x); };
    const int64_t bad = first_bad_row(rows, [&](int64_t r, const std::byte* row) {
      int64_t found = 0;
      for (int64_t c = columns.begin; c < columns.end; ++c) found += too_large(value(r, row, c));
      return found != 0;
    });
    if (bad < 0) return;
    const auto* row = static_cast<const std::byte*>(rows.data) +
                      bad * rows.row_stride * static_cast<int64_t>(dtype_bytes(rows.dtype));
    int64_t c = columns.begin;
    while (!too_large(value(bad, row, c))) ++c;
    throw LoadError(fmt::format("{}: --dtype float16: tensor {}: {} at [{}, {}] does not fit F16, which ends at 65504",
                                checkpoint_.tensors().at(name).file, name, value(bad, row, c), first_row + bad, c));
  }

  Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const Shapes expected_;
  const DType round_to_;
  BackendStore store_;
  std::vector<float> vectors_;
  std::vector<std::pair<const float**, size_t>> targets_;
  int64_t bytes_ = 0;
};

void load_layer(Loader& loader, const ModelConfig& c, const RankShape& s, int layer, LayerWeights& w) {
  const std::string p = layer_prefix(layer);
  const Range all_hidden{0, c.hidden};
  const std::vector<int64_t> one_segment{0, c.hidden};
  const Range q{s.q_heads.begin * c.head_dim, s.q_heads.end * c.head_dim};
  const Range kv{s.kv_heads.begin * c.head_dim, s.kv_heads.end * c.head_dim};
  const auto slices = [&](const char* kind) {
    return std::vector<Slice>{
        {p + "self_attn.q_proj" + kind, q}, {p + "self_attn.k_proj" + kind, kv}, {p + "self_attn.v_proj" + kind, kv}};
  };
  const auto mlp_slices = [&](const char* kind) {
    return std::vector<Slice>{{p + "mlp.gate_proj" + kind, s.inner}, {p + "mlp.up_proj" + kind, s.inner}};
  };
  loader.vector(w.input_norm, p + "input_layernorm.weight");
  loader.vector(w.post_norm, p + "post_attention_layernorm.weight");
  if (c.qk_norm) {
    loader.vector(w.q_norm, p + "self_attn.q_norm.weight");
    loader.vector(w.k_norm, p + "self_attn.k_norm.weight");
  }
  w.qkv = loader.matrix(slices(".weight"), all_hidden, one_segment);
  if (c.qkv_bias) loader.vector(w.qkv_bias, slices(".bias"));
  w.o = loader.matrix({{p + "self_attn.o_proj.weight", all_hidden}}, q, s.o_segments, s.longest_o_segment);
  if (c.o_bias) loader.vector(w.o_bias, p + "self_attn.o_proj.bias");
  w.gate_up = loader.matrix(mlp_slices(".weight"), all_hidden, one_segment);
  if (c.mlp_bias) loader.vector(w.gate_up_bias, mlp_slices(".bias"));
  w.down = loader.matrix({{p + "mlp.down_proj.weight", all_hidden}}, s.inner, s.down_segments, s.longest_down_segment);
  if (c.mlp_bias) loader.vector(w.down_bias, p + "mlp.down_proj.bias");
}

}  // namespace

ModelWeights load_weights(Checkpoint& checkpoint, const ModelConfig& config, const RankShape& shape, DType round_to,
                          Backend& backend, const std::function<void(double)>& progress) {
  Loader loader(checkpoint, config, round_to, backend);
  ModelWeights out;
  const std::string embedding = "model.embed_tokens.weight";
  out.embedding = loader.embedding(embedding);
  out.layers.resize(static_cast<size_t>(config.num_layers));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (progress) progress(static_cast<double>(layer) / (config.num_layers + 1));
    load_layer(loader, config, shape, layer, out.layers[static_cast<size_t>(layer)]);
  }
  loader.vector(out.final_norm, "model.norm.weight");
  out.lm_head = loader.matrix({{config.tied_embeddings ? embedding : "lm_head.weight", shape.vocab}},
                              {0, config.hidden}, {0, config.hidden});
  out.vectors = loader.upload_vectors();
  out.bytes = loader.bytes();
  if (progress) progress(1.0);
  return out;
}

}  // namespace helios
