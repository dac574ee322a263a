#include "worker/model/model_config.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <boost/json.hpp>

#include "worker/model/json_fields.h"
#include "worker/model/quantization_config.h"

namespace helios {
namespace {

namespace json = boost::json;
using Fields = JsonFields;

constexpr uintmax_t kMaxConfigBytes = 4 << 20;
constexpr int64_t kMaxExtent = 1 << 26;  // keeps every product of two extents and a size inside int64

std::string model_type_of(const Fields& f) {
  const json::value* list = f.find("architectures");
  if (!list || !list->is_array() || list->get_array().size() != 1 || !list->get_array()[0].is_string()) {
    f.fail("architectures: expected one class name, found " + (list ? Fields::print(*list) : "none"));
  }
  const std::string name(list->get_array()[0].get_string());
  for (const auto& [architecture, type] : {std::pair{"LlamaForCausalLM", "llama"},
                                           {"MistralForCausalLM", "mistral"},
                                           {"Qwen2ForCausalLM", "qwen2"},
                                           {"Qwen3ForCausalLM", "qwen3"}}) {
    if (name != architecture) continue;
    const std::string stated = f.string_or("model_type", type);
    if (stated != type) f.fail(fmt::format("model_type: expected {} for {}, found {}", type, name, stated));
    return type;
  }
  f.fail("architectures: expected LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM, found " +
         Fields::print(*list));
}

/// Fields of relatives of the four classes that change the numbers.
void refuse_foreign_fields(const Fields& f) {
  for (const char* key : {"compression_config",
                          "attn_logit_softcapping",
                          "final_logit_softcapping",
                          "logits_scaling",
                          "logit_scale",
                          "embedding_multiplier",
                          "residual_multiplier",
                          "attention_multiplier",
                          "query_pre_attn_scalar",
                          "num_experts",
                          "num_local_experts",
                          "n_routed_experts",
                          "clip_qkv",
                          "attention_sinks",
                          "no_rope_layers",
                          "no_rope_layer_interval",
                          "attention_chunk_size",
                          "use_mrope",
                          "vision_config",
                          "text_config"}) {
    const json::value* v = f.find(key);
    if (v && !(v->is_bool() && !v->get_bool()))
      f.fail(fmt::format("{}: not supported, found {}", key, Fields::print(*v)));
  }
  const double rotary = f.number_or("partial_rotary_factor", 1.0);
  if (rotary != 1.0) f.fail(fmt::format("partial_rotary_factor: expected 1, found {}", rotary));
  const std::string activation = f.string_or("hidden_act", "silu");
  if (activation != "silu") f.fail("hidden_act: expected silu, found " + activation);
}

RopeConfig parse_rope(const Fields& f) {
  RopeConfig rope;
  rope.theta = f.number_or("rope_theta", 10000.0);
  const json::object* newer = f.object_or_null("rope_parameters");
  const json::object* older = f.object_or_null("rope_scaling");
  const json::object* object = newer ? newer : older;
  if (!object) return rope;
  const Fields r(*object, f.where() + (newer ? ": rope_parameters" : ": rope_scaling"));
  for (const auto& [key, value] : *object) {
    if (value.is_object()) r.fail(fmt::format("{}: settings by layer type are not supported", std::string(key)));
  }
  rope.theta = r.number_or("rope_theta", rope.theta);
  if (r.number_or("partial_rotary_factor", 1.0) != 1.0) r.fail("partial_rotary_factor: expected 1");
  const std::string kind = r.string_or("rope_type", r.string_or("type", "default"));
  if (kind == "default") return rope;
  if (kind != "linear" && kind != "llama3") r.fail("rope_type: expected default, linear or llama3, found " + kind);
  rope.factor = r.number("factor");
  if (kind == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return rope;
  }
  rope.scaling = RopeScaling::kLlama3;
  rope.low_freq_factor = r.number("low_freq_factor");
  rope.high_freq_factor = r.number("high_freq_factor");
  rope.original_max_positions = r.number("original_max_position_embeddings");
  if (rope.high_freq_factor <= rope.low_freq_factor) r.fail("high_freq_factor: expected more than low_freq_factor");
  return rope;
}

/// Mistral slides in every layer. Qwen slides only with use_sliding_window, in the layers that layer_types names or,
/// when there is no such list, from max_window_layers on. Llama has no window.
std::vector<int32_t> parse_windows(const Fields& f, const ModelConfig& config) {
  std::vector<int32_t> windows(static_cast<size_t>(config.num_layers), 0);
  const json::value* kinds = f.find("layer_types");
  if (kinds && (!kinds->is_array() || kinds->get_array().size() != windows.size())) {
    f.fail(fmt::format("layer_types: expected {} entries, found {}", windows.size(), Fields::print(*kinds)));
  }
  const bool qwen = config.model_type == "qwen2" || config.model_type == "qwen3";
  const bool uses = f.find("sliding_window") && (!qwen || f.boolean_or("use_sliding_window", false));
  if (uses && config.model_type == "llama") f.fail("sliding_window: not supported for LlamaForCausalLM");
  const auto window = static_cast<int32_t>(uses ? f.integer("sliding_window", 1, INT32_MAX) : 0);
  const int64_t first = qwen ? f.integer_or("max_window_layers", 0, INT32_MAX, config.num_layers) : 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    bool slides = static_cast<int64_t>(i) >= first;
    if (kinds) {
      const json::value& kind = kinds->get_array()[i];
      const std::string name = kind.is_string() ? std::string(kind.get_string()) : Fields::print(kind);
      if (name != "full_attention" && name != "sliding_attention") {
        f.fail("layer_types: expected full_attention or sliding_attention, found " + name);
      }
      slides = name == "sliding_attention";
      if (slides && window == 0) f.fail("layer_types: sliding_attention without a sliding window");
    }
    if (slides) windows[i] = window;
  }
  return windows;
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  json::error_code ec;
  const json::value document = json::parse(text, ec);
  if (ec) throw LoadError(path + ": not JSON: " + ec.message());
  if (!document.is_object()) throw LoadError(path + ": expected an object, found " + Fields::print(document));
  const Fields f(document.get_object(), path);

  ModelConfig c;
  c.model_type = model_type_of(f);
  refuse_foreign_fields(f);
  c.hidden = f.integer("hidden_size", 1, kMaxExtent);
  c.inner = f.integer("intermediate_size", 1, kMaxExtent);
  c.vocab_size = f.integer("vocab_size", 1, kMaxExtent);
  c.num_layers = static_cast<int>(f.integer("num_hidden_layers", 1, 4096));
  c.num_heads = static_cast<int>(f.integer("num_attention_heads", 1, 1 << 16));
  c.num_kv_heads = static_cast<int>(f.integer_or("num_key_value_heads", 1, 1 << 16, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0) {
    f.fail(fmt::format("num_attention_heads: expected a multiple of num_key_value_heads {}, found {}", c.num_kv_heads,
                       c.num_heads));
  }
  if (!f.find("head_dim") && c.hidden % c.num_heads != 0) {
    f.fail(fmt::format("hidden_size: expected a multiple of {} heads, found {}", c.num_heads, c.hidden));
  }
  c.head_dim = static_cast<int>(f.integer_or("head_dim", 1, 1 << 14, c.hidden / c.num_heads));
  if (c.head_dim % 2 != 0) f.fail(fmt::format("head_dim: expected an even number, found {}", c.head_dim));
  c.max_positions = static_cast<int>(f.integer("max_position_embeddings", 1, 1 << 26));
  c.rms_eps = static_cast<float>(f.number_or("rms_norm_eps", 1e-6));
  c.rope = parse_rope(f);
  c.tied_embeddings = f.boolean_or("tie_word_embeddings", false);
  c.qk_norm = c.model_type == "qwen3";
  const bool attention_bias = f.boolean_or("attention_bias", false);
  if (attention_bias && c.model_type == "mistral") f.fail("attention_bias: not supported for MistralForCausalLM");
  c.qkv_bias = attention_bias || c.model_type == "qwen2";
  c.o_bias = attention_bias && c.model_type != "qwen2";
  c.mlp_bias = f.boolean_or("mlp_bias", false);
  if (c.mlp_bias && c.model_type != "llama") f.fail("mlp_bias: not supported for " + c.model_type);
  c.windows = parse_windows(f, c);
  if (const json::object* quantization = f.object_or_null("quantization_config")) {
    c.quantised = parse_quantization(*quantization, path + ": quantization_config", c.num_layers);
  }
  return c;
}

ModelConfig read_model_config(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  std::error_code error;
  if (!std::filesystem::is_directory(model_dir, error)) throw LoadError(model_dir + ": not a directory");
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) throw LoadError(path + ": " + error.message());
  if (bytes > kMaxConfigBytes)
    throw LoadError(fmt::format("{}: expected at most {} bytes, found {}", path, kMaxConfigBytes, bytes));
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw LoadError(path + ": cannot be read");
  return parse_model_config(text.str(), path);
}

}  // namespace helios
