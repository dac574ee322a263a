// generation_config.json over config.json, each optional field range-checked.
#include "coordinator/tokenizer/generation_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "coordinator/tokenizer/tokenizer_json.h"

namespace helios {
namespace {

namespace json = boost::json;

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr size_t kMaxEosIds = 256;

Error corrupt(const std::string& path, std::string_view key, std::string_view expected) {
  return {Errc::kCorruptFile, fmt::format("{}: {} is not {}", path, key, expected)};
}

struct File {
  std::string path;
  json::object object;  // empty when there is no such file
};

Result<File> read_object(std::string path) {
  Result<std::string> text = read_text_file(path, kMaxConfigBytes);
  if (!text.ok()) {
    if (text.error().code == Errc::kNotFound) return File{std::move(path), {}};
    return text.error();
  }
  json::error_code error;
  json::value value = json::parse(*text, error);
  if (error) return Error{Errc::kCorruptFile, fmt::format("{}: not valid JSON: {}", path, error.message())};
  if (!value.is_object()) return Error{Errc::kCorruptFile, fmt::format("{}: not a JSON object", path)};
  return File{std::move(path), std::move(value.get_object())};
}

const json::value* find(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && !value->is_null() ? value : nullptr;
}

bool append_id(const json::value& value, std::vector<TokenId>* ids) {
  const int64_t* id = value.if_int64();
  if (!id || *id < 0 || *id > INT32_MAX) return false;
  const auto token = static_cast<TokenId>(*id);
  if (std::find(ids->begin(), ids->end(), token) == ids->end()) ids->push_back(token);
  return true;
}

/// An id or a list of ids. False when absent.
Result<bool> read_eos(const File& file, std::vector<TokenId>* ids) {
  const json::value* value = find(file.object, "eos_token_id");
  if (!value) return false;
  if (append_id(*value, ids)) return true;
  const json::array* list = value->if_array();
  if (!list || list->size() > kMaxEosIds)
    return corrupt(file.path, "eos_token_id", "a token id or a short list of them");
  for (const json::value& item : *list) {
    if (!append_id(item, ids)) return corrupt(file.path, "eos_token_id", "a list of token ids");
  }
  return true;
}

/// Such an id could never come, and every request would name it.
Status check_eos(const File& config, const std::string& path, const std::vector<TokenId>& ids) {
  const json::value* value = find(config.object, "vocab_size");
  const int64_t* vocab_size = value ? value->if_int64() : nullptr;
  if (!vocab_size) return Ok{};  // the ranks say what is wrong with it
  for (const TokenId id : ids) {
    if (id >= *vocab_size)
      return corrupt(path, "eos_token_id", fmt::format("below config.json's vocab_size {}: {}", *vocab_size, id));
  }
  return Ok{};
}

/// Leaves `out` alone when absent.
Status read_float(const File& file, std::string_view key, float low, float high, std::optional<float>* out) {
  const json::value* value = find(file.object, key);
  if (!value) return Ok{};
  const double number = value->is_number() ? value->to_number<double>() : NAN;
  if (!(number >= low && number <= high))
    return corrupt(file.path, key, fmt::format("a number from {} to {}", low, high));
  *out = static_cast<float>(number);
  return Ok{};
}

Status read_sampling(const File& file, GenerationDefaults* defaults) {
  if (Status s = read_float(file, "temperature", 0, 100, &defaults->temperature); !s.ok()) return s;
  if (Status s = read_float(file, "top_p", 0, 1, &defaults->top_p); !s.ok()) return s;
  if (Status s = read_float(file, "min_p", 0, 1, &defaults->min_p); !s.ok()) return s;
  constexpr float kSmallest = std::numeric_limits<float>::min();
  if (Status s = read_float(file, "repetition_penalty", kSmallest, 1000, &defaults->repetition_penalty); !s.ok())
    return s;
  if (const json::value* value = find(file.object, "top_k")) {
    const int64_t* top_k = value->if_int64();
    if (!top_k || *top_k < -1 || *top_k > INT32_MAX) return corrupt(file.path, "top_k", "an integer, -1 or more");
    defaults->top_k = static_cast<int32_t>(*top_k);
  }
  return Ok{};
}

Status read_context_length(const File& file, GenerationDefaults* defaults) {
  const json::value* value = find(file.object, "max_position_embeddings");
  if (!value) return Ok{};
  const int64_t* length = value->if_int64();
  if (!length || *length < 1 || *length > INT32_MAX)
    return corrupt(file.path, "max_position_embeddings", "a positive integer");
  defaults->max_position_embeddings = static_cast<int32_t>(*length);
  return Ok{};
}

}  // namespace

Result<GenerationDefaults> load_generation_defaults(const std::string& model_dir) {
  Result<File> config = read_object(model_dir + "/config.json");
  if (!config.ok()) return config.error();
  Result<File> generation = read_object(model_dir + "/generation_config.json");
  if (!generation.ok()) return generation.error();

  GenerationDefaults defaults;
  Result<bool> has_eos = read_eos(*generation, &defaults.eos_ids);
  const bool by_config = has_eos.ok() && !*has_eos;
  if (by_config) has_eos = read_eos(*config, &defaults.eos_ids);
  if (!has_eos.ok()) return has_eos.error();
  if (Status s = check_eos(*config, by_config ? config->path : generation->path, defaults.eos_ids); !s.ok())
    return s.error();
  if (Status s = read_context_length(*config, &defaults); !s.ok()) return s.error();
  // Old checkpoints keep sampling values in config.json.
  if (Status s = read_sampling(*config, &defaults); !s.ok()) return s.error();
  if (Status s = read_sampling(*generation, &defaults); !s.ok()) return s.error();
  return defaults;
}

}  // namespace helios
