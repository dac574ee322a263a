#include "worker/catalog/manifest_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <sstream>

#include <fmt/format.h>
#include <boost/json.hpp>

namespace helios {
namespace {

namespace json = boost::json;

constexpr std::streamsize kMaxManifestBytes = 16 << 20;
constexpr std::array kDtypes{BufferDtype::kInt32, BufferDtype::kInt64, BufferDtype::kFloat32, BufferDtype::kBFloat16,
                             BufferDtype::kFloat16};

/// Thrown and caught in this file: what is wrong, without the path.
struct Malformed {
  std::string what;
};

/// One object's fields, each to be taken once.
class Fields {
 public:
  Fields(const json::value& value, std::string where) : where_(std::move(where)) {
    if (!value.is_object()) throw Malformed{fmt::format("{}: expected an object", where_)};
    object_ = &value.get_object();
  }
  std::string name(std::string_view key) const {
    return where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
  }
  const json::value& take(std::string_view key) {
    const json::value* value = object_->if_contains(key);
    if (!value) throw Malformed{fmt::format("{}: expected, found none", name(key))};
    taken_.push_back(key);
    return *value;
  }
  template <class T>
  T integer(std::string_view key) {
    return to_integer<T>(take(key), name(key));
  }
  std::string text(std::string_view key) {
    const json::value& value = take(key);
    if (!value.is_string()) throw Malformed{fmt::format("{}: expected a string", name(key))};
    return std::string(value.get_string());
  }
  const json::array& list(std::string_view key) {
    const json::value& value = take(key);
    if (!value.is_array()) throw Malformed{fmt::format("{}: expected a list", name(key))};
    return value.get_array();
  }
  void end() const {
    for (const auto& field : *object_) {
      if (std::find(taken_.begin(), taken_.end(), std::string_view(field.key())) == taken_.end())
        throw Malformed{fmt::format("{}: unknown field", name(field.key()))};
    }
  }

  template <class T>
  static T to_integer(const json::value& value, const std::string& where) {
    if (!value.is_int64() || value.get_int64() < std::numeric_limits<T>::min() ||
        value.get_int64() > std::numeric_limits<T>::max()) {
      throw Malformed{
          fmt::format("{}: expected an integer of {} bytes, found {}", where, sizeof(T), json::serialize(value))};
    }
    return static_cast<T>(value.get_int64());
  }

 private:
  const json::object* object_ = nullptr;
  std::string where_;
  std::vector<std::string_view> taken_;
};

BufferDeclaration read_buffer(const json::value& value, size_t index) {
  Fields fields(value, fmt::format("buffers[{}]", index));
  BufferDeclaration out{.name = fields.text("name")};
  const std::string dtype = fields.text("dtype");
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](BufferDtype d) { return to_string(d) == dtype; });
  if (found == kDtypes.end()) throw Malformed{fmt::format("buffer {}: unknown dtype {}", out.name, dtype)};
  out.dtype = *found;
  for (const json::value& extent : fields.list("shape")) {
    out.shape.push_back(Fields::to_integer<int64_t>(extent, fmt::format("buffer {}: shape", out.name)));
  }
  fields.end();
  return out;
}

GraphDeclaration read_graph(const json::value& value, size_t index) {
  const std::string where = fmt::format("graphs[{}]", index);
  Fields fields(value, where);
  const auto number = fields.integer<int32_t>("operation");
  const std::optional<Operation> operation = operation_from_number(number);
  if (!operation) throw Malformed{fmt::format("{}.operation: no operation has the number {}", where, number)};
  GraphDeclaration out{.operation = *operation, .row_capacity = fields.integer<int32_t>("row_capacity")};
  for (const json::value& binding : fields.list("bindings")) {
    out.bindings.push_back(static_cast<ValueSource>(Fields::to_integer<int32_t>(binding, where + ".bindings")));
  }
  for (const json::value& output : fields.list("outputs")) {
    if (!output.is_string()) throw Malformed{fmt::format("{}.outputs: expected strings", where)};
    out.outputs.emplace_back(output.get_string());
  }
  fields.end();
  return out;
}

CoreManifest read_manifest(const json::value& value) {
  Fields fields(value, "");
  CoreManifest out{.model_type = fields.text("model_type"),
                   .device = fields.text("device"),
                   .dtype = fields.text("dtype"),
                   .kv_cache_dtype = fields.text("kv_cache_dtype"),
                   .vocab_size = fields.integer<int64_t>("vocab_size"),
                   .max_model_len = fields.integer<int32_t>("max_model_len"),
                   .slot_capacity = fields.integer<int32_t>("slot_capacity"),
                   .token_capacity = fields.integer<int32_t>("token_capacity"),
                   .prefill_chunk = fields.integer<int32_t>("prefill_chunk"),
                   .kv_block_size = fields.integer<int32_t>("kv_block_size"),
                   .kv_num_blocks = fields.integer<int32_t>("kv_num_blocks"),
                   .host_num_blocks = fields.integer<int32_t>("host_num_blocks")};
  for (const json::value& buffer : fields.list("buffers")) {
    out.buffers.push_back(read_buffer(buffer, out.buffers.size()));
  }
  for (const json::value& graph : fields.list("graphs")) out.graphs.push_back(read_graph(graph, out.graphs.size()));
  fields.end();
  return out;
}

}  // namespace

Result<CoreManifest> read_manifest_file(const std::string& path) try {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Errc::kNotFound, fmt::format("{}: cannot be opened", path)};
  file.seekg(0, std::ios::end);
  if (file.tellg() > kMaxManifestBytes)
    return Error{Errc::kCorruptFile, fmt::format("{}: expected at most {} bytes", path, kMaxManifestBytes)};
  file.seekg(0);
  std::ostringstream text;
  text << file.rdbuf();
  boost::system::error_code error;
  const json::value value = json::parse(text.str(), error);
  if (error) return Error{Errc::kCorruptFile, fmt::format("{}: not JSON: {}", path, error.message())};
  CoreManifest manifest = read_manifest(value);
  if (const auto capabilities = derive_capabilities(manifest); !capabilities) {
    return Error{capabilities.error().code, fmt::format("{}: {}", path, capabilities.error().message)};
  }
  return manifest;
} catch (const Malformed& e) {
  return Error{Errc::kCorruptFile, fmt::format("{}: {}", path, e.what)};
}

std::string manifest_json(const CoreManifest& m) {
  json::array buffers, graphs;
  for (const BufferDeclaration& b : m.buffers) {
    json::array shape(b.shape.begin(), b.shape.end());
    buffers.push_back({{"name", b.name}, {"dtype", to_string(b.dtype)}, {"shape", std::move(shape)}});
  }
  for (const GraphDeclaration& g : m.graphs) {
    json::array bindings, outputs(g.outputs.begin(), g.outputs.end());
    for (const ValueSource source : g.bindings) bindings.push_back(static_cast<int32_t>(source));
    graphs.push_back({{"operation", static_cast<int32_t>(g.operation)},
                      {"row_capacity", g.row_capacity},
                      {"bindings", std::move(bindings)},
                      {"outputs", std::move(outputs)}});
  }
  const json::value out{{"model_type", m.model_type},
                        {"device", m.device},
                        {"dtype", m.dtype},
                        {"kv_cache_dtype", m.kv_cache_dtype},
                        {"vocab_size", m.vocab_size},
                        {"max_model_len", m.max_model_len},
                        {"slot_capacity", m.slot_capacity},
                        {"token_capacity", m.token_capacity},
                        {"prefill_chunk", m.prefill_chunk},
                        {"kv_block_size", m.kv_block_size},
                        {"kv_num_blocks", m.kv_num_blocks},
                        {"host_num_blocks", m.host_num_blocks},
                        {"buffers", std::move(buffers)},
                        {"graphs", std::move(graphs)}};
  return json::serialize(out);
}

}  // namespace helios
