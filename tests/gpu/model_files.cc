// Reads a model directory where there is no Boost: the machine that only checks its GPU. Takes the place of
// worker/model's config and safetensors readers; files here are the check's own, so what it does not know it refuses,
// and it looks for no hostile ones.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "worker/model/model_config.h"
#include "worker/model/safetensors.h"

namespace helios {
namespace {

struct Json {
  bool truth = false, given = false;  // given: not null
  double number = 0.0;
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> fields;

  const Json& at(const std::string& key) const {
    static const Json none;
    const auto found = fields.find(key);
    return found == fields.end() ? none : found->second;
  }
  double number_or(double otherwise) const { return given ? number : otherwise; }
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Json value() {
    Json out{.given = true};
    switch (peek()) {
      case '{':
        list('}', [&] {
          const std::string key = string();
          expect(':');
          out.fields[key] = value();
        });
        return out;
      case '[':
        list(']', [&] { out.items.push_back(value()); });
        return out;
      case '"':
        out.text = string();
        return out;
      case 't':
      case 'f':
      case 'n': {
        const std::string word = run_of("abcdefghijklmnopqrstuvwxyz");
        out.truth = word == "true";
        out.given = word != "null";
        return out;
      }
      default:
        out.number = std::stod(run_of("+-.0123456789eE"));
        return out;
    }
  }

 private:
  char peek() {
    at_ = text_.find_first_not_of(" \t\r\n", at_);
    if (at_ >= text_.size()) throw LoadError("the model's JSON ends too soon");
    return text_[at_];
  }
  void expect(char c) {
    if (peek() != c) throw LoadError(std::string("the model's JSON: expected ") + c + ", found " + text_[at_]);
    ++at_;
  }
  template <class Item>
  void list(char end, Item item) {
    ++at_;
    while (peek() != end) {
      item();
      if (peek() != end) expect(',');
    }
    ++at_;
  }
  std::string string() {
    expect('"');
    const size_t begin = at_;
    at_ = text_.find('"', begin);
    if (at_ == std::string_view::npos) throw LoadError("the model's JSON ends within a string");
    return std::string(text_.substr(begin, at_++ - begin));
  }
  std::string run_of(const char* letters) {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_not_of(letters, begin), text_.size());
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& path) {
  const Json json = Reader(text).value();
  ModelConfig c;
  c.model_type = json.at("model_type").text;
  if (c.model_type != "qwen3" && c.model_type != "llama")
    throw LoadError(path + ": only qwen3 and llama are read here");
  if (json.at("rope_scaling").given || json.at("use_sliding_window").truth)
    throw LoadError(path + ": rope_scaling and windows are not read here");
  if (json.at("quantization_config").given) throw LoadError(path + ": quantised weights are not read here");
  const auto count = [&](const char* key) { return static_cast<int>(json.at(key).number); };
  c.hidden = count("hidden_size");
  c.inner = count("intermediate_size");
  c.vocab_size = count("vocab_size");
  c.num_layers = count("num_hidden_layers");
  c.num_heads = count("num_attention_heads");
  c.num_kv_heads = static_cast<int>(json.at("num_key_value_heads").number_or(c.num_heads));
  c.head_dim = static_cast<int>(json.at("head_dim").number_or(static_cast<double>(c.hidden) / c.num_heads));
  c.max_positions = count("max_position_embeddings");
  c.rms_eps = static_cast<float>(json.at("rms_norm_eps").number);
  c.rope.theta = json.at("rope_theta").number_or(10000.0);
  c.tied_embeddings = json.at("tie_word_embeddings").truth;
  c.qk_norm = c.model_type == "qwen3";
  c.qkv_bias = c.o_bias = json.at("attention_bias").truth;
  c.mlp_bias = json.at("mlp_bias").truth;
  c.windows.assign(static_cast<size_t>(c.num_layers), 0);
  return c;
}

ModelConfig read_model_config(const std::string& model_dir) {
  std::ifstream file(model_dir + "/config.json");
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw LoadError(model_dir + "/config.json: cannot be read");
  return parse_model_config(text.str(), model_dir + "/config.json");
}

Checkpoint Checkpoint::open(const std::string& model_dir) {
  const std::string path = model_dir + "/model.safetensors";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0 || info.st_size < 8) throw LoadError(path + ": cannot be read");
  const auto bytes = static_cast<size_t>(info.st_size);
  void* const data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED) throw LoadError(path + ": cannot be mapped");
  Checkpoint out;
  out.mappings_.push_back({data, bytes});
  const auto* const base = static_cast<const std::byte*>(data);
  uint64_t header = 0;
  std::memcpy(&header, base, sizeof header);
  if (header > bytes - 8) throw LoadError(path + ": the header runs past the file");
  const Json table = Reader({reinterpret_cast<const char*>(base) + 8, header}).value();
  for (const auto& [name, entry] : table.fields) {
    if (name == "__metadata__") continue;
    MappedTensor tensor{.file = path, .dtype = entry.at("dtype").text};
    for (const Json& extent : entry.at("shape").items) tensor.shape.push_back(static_cast<int64_t>(extent.number));
    const std::vector<Json>& offsets = entry.at("data_offsets").items;
    const double begin = offsets.at(0).number, end = offsets.at(1).number;
    if (begin > end || end > static_cast<double>(bytes - 8 - header))
      throw LoadError(path + ": " + name + " runs past");
    tensor.data = base + 8 + header + static_cast<uint64_t>(begin);
    tensor.bytes = static_cast<int64_t>(end - begin);
    out.tensors_.emplace(name, std::move(tensor));
  }
  return out;
}

}  // namespace helios
