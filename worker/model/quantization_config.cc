#include "worker/model/quantization_config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "kernels/transformer/matmul.h"
#include "worker/model/json_fields.h"

namespace helios {
namespace {

namespace json = boost::json;
using Fields = JsonFields;

constexpr uint32_t kMatchLimit = 100'000;  // steps of one pattern over one name
constexpr size_t kMaxPatterns = 1 << 16;

/// Every matrix that products read, by module.
std::vector<std::string> modules(int num_layers) {
  std::vector<std::string> out;
  for (int i = 0; i < num_layers; ++i) {
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      out.push_back(fmt::format("model.layers.{}.{}", i, name));
    }
  }
  out.push_back("lm_head");
  return out;
}

/// What is not known could change the numbers.
void refuse_unknown(const Fields& f, const json::object& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object) {
    if (std::find(known.begin(), known.end(), std::string_view(key)) == known.end()) {
      f.fail(fmt::format("{}: not supported, found {}", Fields::print(json::value(key)), Fields::print(value)));
    }
  }
}

/// Whether it is there and says something: neither null nor {} nor false.
void refuse_given(const Fields& f, const char* key) {
  const json::value* v = f.find(key);
  if (!v || (v->is_object() && v->get_object().empty()) || (v->is_bool() && !v->get_bool())) return;
  f.fail(fmt::format("{}: not supported, found {}", key, Fields::print(*v)));
}

std::string one_of(const Fields& f, const char* key, std::initializer_list<std::string_view> allowed,
                   std::string otherwise) {
  std::string value = f.string_or(key, std::move(otherwise));
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  f.fail(fmt::format("{}: expected {}, found {}", key, fmt::join(allowed, " or "),
                     Fields::print(json::value(value))));
}

std::vector<std::string> strings(const Fields& f, const char* key) {
  std::vector<std::string> out;
  const json::value* list = f.find(key);
  if (!list) return out;
  if (!list->is_array() || list->get_array().size() > kMaxPatterns) {
    f.fail(fmt::format("{}: expected a list of names, found {}", key, Fields::print(*list)));
  }
  for (const json::value& entry : list->get_array()) {
    if (!entry.is_string()) f.fail(fmt::format("{}: expected a name, found {}", key, Fields::print(entry)));
    out.emplace_back(entry.get_string());
  }
  return out;
}

/// A module name, or behind "re:" a regular expression that matches from a name's begin, as Python's re.match().
class NamePattern {
 public:
  NamePattern(const Fields& f, const char* key, const std::string& text) : text_(text) {
    if (!text.starts_with("re:")) return;
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data() + 3), text.size() - 3, PCRE2_ANCHORED, &error,
                              &at, nullptr));
    if (!code_) f.fail(fmt::format("{}: no regular expression: {}", key, Fields::print(json::value(text))));
    data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    limits_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(limits_.get(), kMatchLimit);
    pcre2_set_depth_limit(limits_.get(), kMatchLimit);
  }
  bool is_expression() const { return code_ != nullptr; }
  const std::string& text() const { return text_; }
  /// An expression that runs into its limit matches nothing.
  bool matches(const std::string& name) const {
    if (!code_) return name == text_;
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data_.get(),
                       limits_.get()) >= 0;
  }

 private:
  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  };
  std::string text_;
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> limits_;
};

std::vector<NamePattern> patterns(const Fields& f, const char* key) {
  std::vector<NamePattern> out;
  for (const std::string& text : strings(f, key)) out.emplace_back(f, key, text);
  return out;
}

/// [rows, columns], or the older "128x128".
std::pair<int64_t, int64_t> block_extents(const Fields& f, const char* key) {
  const json::value* v = f.find(key);
  int64_t rows = 0, columns = 0;
  if (v && v->is_array() && v->get_array().size() == 2 && v->get_array()[0].is_int64() &&
      v->get_array()[1].is_int64()) {
    rows = v->get_array()[0].get_int64(), columns = v->get_array()[1].get_int64();
  } else if (v && v->is_string()) {
    const std::string_view text(v->get_string().data(), v->get_string().size());
    const size_t x = text.find('x');
    if (x != std::string_view::npos) {
      std::from_chars(text.data(), text.data() + x, rows);
      std::from_chars(text.data() + x + 1, text.data() + text.size(), columns);
    }
  }
  if (rows < 1 || columns < 1 || columns > kMaxScaleColumns) {
    f.fail(fmt::format("{}: expected two extents from 1, of columns to {}, found {}", key, kMaxScaleColumns,
                       v ? Fields::print(*v) : "none"));
  }
  return {rows, columns};
}

/// QuantizationArgs of compressed-tensors, for weights.
MatrixScheme parse_weights(const Fields& f, const json::object& object) {
  refuse_unknown(f, object,
                 {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic", "actorder",
                  "scale_dtype", "zp_dtype", "observer", "observer_kwargs"});
  if (const int64_t bits = f.integer_or("num_bits", 1, 64, 8); bits != 8) {
    f.fail(fmt::format("num_bits: expected 8, found {}", bits));
  }
  MatrixScheme scheme;
  scheme.dtype = one_of(f, "type", {"int", "float"}, "int") == "int" ? DType::kInt8 : DType::kFloat8E4M3;
  if (!f.boolean_or("symmetric", true)) f.fail("symmetric: expected true, found false");
  if (f.boolean_or("dynamic", false)) f.fail("dynamic: expected false, found true");
  if (const json::value* order = f.find("actorder"); order && !order->is_bool()) {
    one_of(f, "actorder", {"weight", "static"}, "");  // changes how the weights were found, not how they lie
  } else if (order) {
    refuse_given(f, "actorder");
  }
  const int64_t group = f.integer_or("group_size", -1, kMaxScaleColumns, 0);
  const char* otherwise = group > 0 ? "group" : group < 0 ? "channel" : "tensor";
  const std::string strategy = one_of(f, "strategy", {"tensor", "channel", "group", "block"}, otherwise);
  if (strategy == "channel") scheme.block_rows = 1;
  if (strategy == "group") {
    scheme.block_rows = 1, scheme.block_columns = f.integer("group_size", 1, kMaxScaleColumns);
  }
  if (strategy == "block") std::tie(scheme.block_rows, scheme.block_columns) = block_extents(f, "block_structure");
  return scheme;
}

/// One of config_groups: what it is for, and how that is stored.
struct Group {
  std::vector<NamePattern> targets;
  MatrixScheme scheme;

  /// A name is more to the point than an expression, and that than the class of all matrices; 0: not meant.
  int fits(const std::string& module) const {
    int best = 0;
    for (const NamePattern& t : targets) {
      if (t.text() == "Linear") best = std::max(best, 1);
      if (t.matches(module)) best = std::max(best, t.is_expression() ? 2 : 3);
    }
    return best;
  }
};

void check_format(const Fields& f) {
  one_of(f, "format", {"float-quantized", "int-quantized", "naive-quantized"}, "none");
}

Group parse_group(const Fields& f, const json::object& object) {
  refuse_unknown(f, object, {"targets", "weights", "input_activations", "output_activations", "format"});
  refuse_given(f, "output_activations");
  if (f.find("format")) check_format(f);
  const json::object* weights = f.object_or_null("weights");
  if (!weights) f.fail("weights: expected an object, found none");
  return {patterns(f, "targets"), parse_weights({*weights, f.where() + ": weights"}, *weights)};
}

QuantisedMatrices parse_compressed_tensors(const Fields& f, const json::object& object, int num_layers) {
  refuse_unknown(f, object,
                 {"quant_method", "format", "config_groups", "ignore", "quantization_status", "kv_cache_scheme",
                  "global_compression_ratio", "sparsity_config", "transform_config", "version", "run_compressed"});
  check_format(f);
  one_of(f, "quantization_status", {"compressed"}, "compressed");
  refuse_given(f, "kv_cache_scheme");
  refuse_given(f, "transform_config");
  if (const json::object* sparsity = f.object_or_null("sparsity_config"); sparsity && !sparsity->empty()) {
    one_of({*sparsity, f.where() + ": sparsity_config"}, "format", {"dense"}, "none");
  }
  const json::object* groups = f.object_or_null("config_groups");
  if (!groups || groups->empty()) f.fail("config_groups: expected an object of groups, found none");
  const std::vector<NamePattern> ignored = patterns(f, "ignore");
  QuantisedMatrices out;
  std::map<std::string, int> fit;
  for (const auto& [name, value] : *groups) {
    const std::string where = f.where() + ": config_groups: " + Fields::print(json::value(name));
    if (!value.is_object()) throw LoadError(where + ": expected an object, found " + Fields::print(value));
    const Group group = parse_group({value.get_object(), where}, value.get_object());
    bool any = false;
    for (const std::string& module : modules(num_layers)) {
      const int fits = group.fits(module);
      any = any || fits > 0;
      if (fits <= fit[module]) continue;
      fit[module] = fits;
      if (std::any_of(ignored.begin(), ignored.end(), [&](const auto& p) { return p.matches(module); })) continue;
      out[module] = group.scheme;
    }
    if (!any) throw LoadError(where + ": targets: none of this model's matrices is among them");
  }
  return out;
}

/// Whether `module` is `name`, lies within it, or ends with it.
bool is_part_of(std::string_view module, std::string_view name) {
  if (name.empty() || module.size() < name.size()) return false;
  if (module == name) return true;
  return (module.starts_with(name) && module[name.size()] == '.') ||
         (module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

/// Qwen's, DeepSeek's and AutoFP8's own: every matrix of the layers, never the head.
QuantisedMatrices parse_fp8(const Fields& f, const json::object& object, int num_layers) {
  refuse_unknown(f, object,
                 {"quant_method", "fmt", "activation_scheme", "weight_block_size", "modules_to_not_convert",
                  "ignored_layers", "scale_fmt"});
  one_of(f, "fmt", {"e4m3"}, "e4m3");
  one_of(f, "activation_scheme", {"dynamic", "static"}, "dynamic");
  MatrixScheme scheme{.dtype = DType::kFloat8E4M3};
  if (f.find("weight_block_size")) {
    std::tie(scheme.block_rows, scheme.block_columns) = block_extents(f, "weight_block_size");
    scheme.scale = ".weight_scale_inv";  // it multiplies, whatever its name
  }
  std::vector<std::string> left_out = strings(f, "modules_to_not_convert");
  for (std::string& name : strings(f, "ignored_layers")) left_out.push_back(std::move(name));
  left_out.emplace_back("lm_head");
  QuantisedMatrices out;
  for (const std::string& module : modules(num_layers)) {
    if (std::none_of(left_out.begin(), left_out.end(), [&](const auto& name) { return is_part_of(module, name); })) {
      out[module] = scheme;
    }
  }
  return out;
}

}  // namespace

QuantisedMatrices parse_quantization(const json::object& config, const std::string& where, int num_layers) {
  const Fields f(config, where);
  const std::string method = one_of(f, "quant_method", {"compressed-tensors", "fp8"}, "none");
  return method == "fp8" ? parse_fp8(f, config, num_layers) : parse_compressed_tensors(f, config, num_layers);
}

}  // namespace helios
