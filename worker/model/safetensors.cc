#include "worker/model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>

namespace helios {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxHeaderBytes = 100 << 20;  // the format's own limit
constexpr uintmax_t kMaxIndexBytes = 64 << 20;
constexpr int kMaxDims = 8;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxDtypeBytes = 16;

[[noreturn]] void fail(const std::string& path, const std::string& what) { throw LoadError(path + ": " + what); }

int64_t element_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype.starts_with("F8_")) return 1;
  return 0;
}

/// Receives the header's JSON without building a tree, so that duplicate names are seen. Depth 1 is the table of
/// tensors, depth 2 one tensor, depth 3 its shape or offsets. __metadata__ is a table of strings.
struct HeaderHandler {
  static constexpr size_t max_object_size = -1, max_array_size = -1, max_key_size = -1, max_string_size = -1;

  std::vector<HeaderEntry> entries;
  std::set<std::string> names;
  std::string problem;  // set when a callback stops the parser

  enum class Field { kNone, kDtype, kShape, kOffsets } field = Field::kNone;
  int depth = 0;
  bool in_array = false, in_metadata = false;
  bool seen[4] = {};
  std::vector<int64_t> offsets;
  std::string text;  // a key or string that arrives in parts

  bool stop(std::string what, json::error_code& ec) {
    problem = std::move(what);
    ec = json::error::syntax;
    return false;
  }
  std::string where() const { return entries.empty() ? "" : "tensor " + printable(entries.back().name) + ": "; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec) {
    if (in_array || depth >= 2) return stop(where() + "an object out of place", ec);
    ++depth;
    if (depth == 2) {
      std::fill(std::begin(seen), std::end(seen), false);
      offsets.clear();
      field = Field::kNone;
    }
    return true;
  }
  bool on_object_end(size_t, json::error_code& ec) {
    if (--depth != 1) return true;
    if (in_metadata) {
      in_metadata = false;
      return true;
    }
    for (const auto& [f, name] :
         {std::pair{Field::kDtype, "dtype"}, {Field::kShape, "shape"}, {Field::kOffsets, "data_offsets"}}) {
      if (!seen[static_cast<int>(f)]) return stop(where() + "expected " + name + ", found none", ec);
    }
    if (offsets.size() != 2) {
      return stop(where() + fmt::format("expected two data_offsets, found {}", offsets.size()), ec);
    }
    entries.back().begin = offsets[0];
    entries.back().end = offsets[1];
    return true;
  }
  bool on_array_begin(json::error_code& ec) {
    if (depth != 2 || in_metadata || in_array || (field != Field::kShape && field != Field::kOffsets)) {
      return stop(where() + "an array out of place", ec);
    }
    in_array = true;
    return true;
  }
  bool on_array_end(size_t, json::error_code&) {
    in_array = false;
    field = Field::kNone;
    return true;
  }
  bool on_key_part(json::string_view part, size_t, json::error_code& ec) { return append(part, ec); }
  bool on_key(json::string_view part, size_t, json::error_code& ec) {
    if (!append(part, ec)) return false;
    const std::string key = std::exchange(text, {});
    if (depth == 1) {
      if (!names.insert(key).second) return stop("tensor " + printable(key) + ": named twice", ec);
      in_metadata = key == "__metadata__";
      if (!in_metadata) entries.push_back({.name = key});
      return true;
    }
    if (in_metadata) return true;
    field = key == "dtype"          ? Field::kDtype
            : key == "shape"        ? Field::kShape
            : key == "data_offsets" ? Field::kOffsets
                                    : Field::kNone;
    if (field == Field::kNone) return stop(where() + "unknown field " + printable(key), ec);
    if (std::exchange(seen[static_cast<int>(field)], true)) return stop(where() + printable(key) + " given twice", ec);
    return true;
  }
  bool on_string_part(json::string_view part, size_t, json::error_code& ec) { return in_metadata || append(part, ec); }
  bool on_string(json::string_view part, size_t, json::error_code& ec) {
    if (in_metadata && depth == 2) return true;
    if (!append(part, ec)) return false;
    std::string value = std::exchange(text, {});
    if (depth != 2 || in_array || field != Field::kDtype) return stop(where() + "a string out of place", ec);
    if (value.size() > kMaxDtypeBytes) return stop(where() + "unknown dtype " + printable(value), ec);
    entries.back().dtype = std::move(value);
    field = Field::kNone;
    return true;
  }
  bool append(json::string_view part, json::error_code& ec) {
    if (text.size() + part.size() > kMaxNameBytes) {
      return stop(fmt::format("a name or string is longer than {} bytes", kMaxNameBytes), ec);
    }
    text.append(part.data(), part.size());
    return true;
  }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool number(int64_t value, json::error_code& ec) {
    if (!in_array) return stop(where() + "a number out of place", ec);
    if (value < 0) return stop(where() + fmt::format("expected a number >= 0, found {}", value), ec);
    std::vector<int64_t>& list = field == Field::kShape ? entries.back().shape : offsets;
    if (list.size() >= kMaxDims) return stop(where() + fmt::format("more than {} numbers", kMaxDims), ec);
    list.push_back(value);
    return true;
  }
  bool on_int64(int64_t value, json::string_view, json::error_code& ec) { return number(value, ec); }
  bool on_uint64(uint64_t value, json::string_view, json::error_code& ec) {
    if (value > INT64_MAX) return stop(where() + fmt::format("{} is too large", value), ec);
    return number(static_cast<int64_t>(value), ec);
  }
  bool on_double(double value, json::string_view, json::error_code& ec) {
    return stop(where() + fmt::format("expected an integer, found {}", value), ec);
  }
  bool on_bool(bool, json::error_code& ec) { return stop(where() + "a boolean out of place", ec); }
  bool on_null(json::error_code& ec) { return stop(where() + "null out of place", ec); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

/// Checks each tensor's size, then that they fill [begin, end) of the data without overlap or hole.
void check_extents(std::vector<HeaderEntry>& entries, int64_t data_bytes, const std::string& path) {
  for (const HeaderEntry& e : entries) {
    const std::string tensor = "tensor " + printable(e.name) + ": ";
    int64_t bytes = element_bytes(e.dtype);
    if (bytes == 0) fail(path, tensor + "unknown dtype " + printable(e.dtype));
    for (const int64_t extent : e.shape) {
      if (__builtin_mul_overflow(bytes, extent, &bytes))
        fail(path, tensor + "shape " + shape_text(e.shape) + " overflows");
    }
    if (e.begin > e.end || e.end > data_bytes) {
      fail(path,
           tensor + fmt::format("data_offsets [{}, {}] outside the file's {} data bytes", e.begin, e.end, data_bytes));
    }
    if (e.end - e.begin != bytes) {
      fail(path, tensor + fmt::format("{} {} needs {} bytes, data_offsets hold {}", e.dtype, shape_text(e.shape), bytes,
                                      e.end - e.begin));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t filled = 0;
  for (const HeaderEntry& e : entries) {
    if (e.begin < filled)
      fail(path, "tensor " + printable(e.name) + fmt::format(": overlaps another before byte {}", filled));
    if (e.begin > filled) fail(path, fmt::format("data bytes [{}, {}) belong to no tensor", filled, e.begin));
    filled = e.end;
  }
  if (filled != data_bytes) fail(path, fmt::format("data bytes [{}, {}) belong to no tensor", filled, data_bytes));
}

std::map<std::string, std::string> read_weight_map(const std::string& path) {
  std::error_code size_error;
  const uintmax_t bytes = std::filesystem::file_size(path, size_error);
  if (size_error) fail(path, size_error.message());
  if (bytes > kMaxIndexBytes) fail(path, fmt::format("expected at most {} bytes, found {}", kMaxIndexBytes, bytes));
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  json::error_code ec;
  const json::value document = json::parse(text.str(), ec);
  if (ec) fail(path, "not JSON: " + ec.message());
  const json::object* top = document.if_object();
  const json::value* map = top ? top->if_contains("weight_map") : nullptr;
  if (!map || !map->is_object() || map->get_object().empty()) fail(path, "expected an object weight_map");
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : map->get_object()) {
    if (!value.is_string()) fail(path, "weight_map: " + printable(name) + ": expected a file name");
    std::string shard(value.get_string());
    if (shard.empty() || shard.find('/') != std::string::npos || shard[0] == '.' ||
        shard.find('\0') != std::string::npos) {
      fail(path, "weight_map: " + printable(name) + ": '" + printable(shard) + "' is not a plain file name");
    }
    out.emplace(std::string(name), std::move(shard));
  }
  return out;
}

}  // namespace

std::vector<HeaderEntry> parse_safetensors_header(const std::byte* data, size_t file_bytes, const std::string& path) {
  if (file_bytes < 8) fail(path, fmt::format("{} bytes are too few for a safetensors file", file_bytes));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, data, 8);
  if (header_bytes > kMaxHeaderBytes) {
    fail(path, fmt::format("header length {} is over the format's {}", header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > file_bytes - 8) {
    fail(path, fmt::format("header length {} runs past the file's {} bytes", header_bytes, file_bytes));
  }
  json::basic_parser<HeaderHandler> parser((json::parse_options()));
  json::error_code ec;
  const char* text = reinterpret_cast<const char*>(data + 8);
  const size_t used = parser.write_some(false, text, header_bytes, ec);
  HeaderHandler& handler = parser.handler();
  if (!handler.problem.empty()) fail(path, handler.problem);
  if (ec) fail(path, fmt::format("header is not JSON at byte {}: {}", 8 + used, ec.message()));
  if (!parser.done()) fail(path, "header is not a whole JSON document");
  for (size_t i = used; i < header_bytes; ++i) {
    if (text[i] != ' ') fail(path, fmt::format("header has bytes after its JSON at byte {}", 8 + i));
  }
  const int64_t data_begin = static_cast<int64_t>(8 + header_bytes);
  check_extents(handler.entries, static_cast<int64_t>(file_bytes) - data_begin, path);
  for (HeaderEntry& e : handler.entries) {
    e.begin += data_begin;
    e.end += data_begin;
  }
  return std::move(handler.entries);
}

void Checkpoint::add_file(const std::string& path, const std::map<std::string, std::string>* weight_map,
                          const std::string& file) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, std::strerror(errno));
  struct stat info {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t bytes = regular ? static_cast<size_t>(info.st_size) : 0;
  void* data = bytes > 0 ? mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
  const int map_errno = errno;
  if (data == MAP_FAILED) ::close(fd);
  if (!regular) fail(path, "not a regular file");
  if (bytes == 0) fail(path, "0 bytes are too few for a safetensors file");
  if (data == MAP_FAILED) fail(path, std::string("cannot map: ") + std::strerror(map_errno));
  mappings_.push_back({data, bytes, fd});
  const auto* base = static_cast<const std::byte*>(data);
  for (HeaderEntry& e : parse_safetensors_header(base, bytes, path)) {
    if (weight_map) {
      const auto listed = weight_map->find(e.name);
      if (listed == weight_map->end() || listed->second != file) {
        fail(path, "tensor " + printable(e.name) + ": the index does not list it for this file");
      }
    }
    MappedTensor tensor{.file = path,
                        .dtype = std::move(e.dtype),
                        .shape = std::move(e.shape),
                        .data = base + e.begin,
                        .bytes = e.end - e.begin};
    tensors_.emplace(std::move(e.name), std::move(tensor));
  }
}

Checkpoint Checkpoint::open(const std::string& model_dir) {
  Checkpoint out;
  const std::string single = model_dir + "/model.safetensors", index = single + ".index.json";
  if (std::filesystem::exists(single)) {
    out.add_file(single, nullptr, "");
    return out;
  }
  if (!std::filesystem::exists(index)) {
    fail(model_dir, "expected model.safetensors or model.safetensors.index.json, found neither");
  }
  const std::map<std::string, std::string> weight_map = read_weight_map(index);
  std::set<std::string> files;
  for (const auto& [name, file] : weight_map) files.insert(file);
  for (const std::string& file : files) out.add_file(model_dir + "/" + file, &weight_map, file);
  for (const auto& [name, file] : weight_map) {
    if (!out.tensors_.contains(name))
      fail(model_dir + "/" + file, "tensor " + printable(name) + ": the index lists it, the file has none");
  }
  return out;
}

}  // namespace helios
