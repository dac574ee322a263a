#include "worker/model/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace helios {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

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
  return out;
}

/// What old exports carry although it follows from the configuration, or is never read.
bool is_redundant(const std::string& name, const ModelConfig& c) {
  return name.ends_with(".rotary_emb.inv_freq") || (c.tied_embeddings && name == "lm_head.weight");
}

void check_tensor_names(const Checkpoint& checkpoint, const ModelConfig& c, const Shapes& expected) {
  for (const auto& [name, shape] : expected) {
    if (!checkpoint.tensors().contains(name)) {
      throw LoadError("tensor " + name + ": expected " + shape_text(shape) + ", found none");
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!expected.contains(name) && !is_redundant(name, c)) {
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
  Loader(Checkpoint& checkpoint, const ModelConfig& config, bool bfloat16, Backend& backend)
      : checkpoint_(checkpoint), expected_(expected_tensors(config)), bfloat16_(bfloat16), store_(backend) {
    check_tensor_names(checkpoint, config, expected_);
  }

  const std::vector<int64_t>& shape(const std::string& name) const { return expected_.at(name); }

  EmbeddingTable embedding(const std::string& name) {
    const std::vector<int64_t>& extents = shape(name);
    const TensorView t = checkpoint_.floats(name, extents);
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

  /// Stacks the slices and takes `columns` of each. Nothing is packed when either is empty.
  PackedMatrix matrix(const std::vector<Slice>& slices, Range columns, const std::vector<int64_t>& segments) {
    std::vector<WeightRows> parts;
    DType stored = DType::kBFloat16;
    for (const Slice& slice : slices) {
      const TensorView t = checkpoint_.floats(slice.name, shape(slice.name));
      const int64_t stride = shape(slice.name)[1];
      parts.push_back({.data = static_cast<const std::byte*>(t.data) +
                               slice.rows.begin * stride * static_cast<int64_t>(dtype_bytes(t.dtype)),
                       .dtype = t.dtype,
                       .num_rows = slice.rows.size(),
                       .row_stride = stride,
                       .source = &checkpoint_});
      if (t.dtype != DType::kBFloat16 && !bfloat16_) stored = DType::kFloat32;
    }
    int64_t rows = 0;
    for (const WeightRows& part : parts) rows += part.num_rows;
    PackedMatrix out;
    if (rows > 0 && columns.size() > 0) {
      out = PackedMatrix::pack(parts, columns.begin, columns.end, segments, stored, store_);
    }
    for (const Slice& slice : slices) checkpoint_.release(slice.name);
    bytes_ += out.bytes();
    return out;
  }

  int64_t bytes() const { return bytes_; }

 private:
  Checkpoint& checkpoint_;
  const Shapes expected_;
  const bool bfloat16_;
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
  w.o = loader.matrix({{p + "self_attn.o_proj.weight", all_hidden}}, q, s.o_segments);
  if (c.o_bias) loader.vector(w.o_bias, p + "self_attn.o_proj.bias");
  w.gate_up = loader.matrix(mlp_slices(".weight"), all_hidden, one_segment);
  if (c.mlp_bias) loader.vector(w.gate_up_bias, mlp_slices(".bias"));
  w.down = loader.matrix({{p + "mlp.down_proj.weight", all_hidden}}, s.inner, s.down_segments);
  if (c.mlp_bias) loader.vector(w.down_bias, p + "mlp.down_proj.bias");
}

}  // namespace

ModelWeights load_weights(Checkpoint& checkpoint, const ModelConfig& config, const RankShape& shape, bool bfloat16,
                          Backend& backend, const std::function<void(double)>& progress) {
  Loader loader(checkpoint, config, bfloat16, backend);
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
