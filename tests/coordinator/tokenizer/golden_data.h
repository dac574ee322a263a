// Reads the tokenizer goldens: JSON lines, hexadecimal bytes, and packed tokenizer.json files.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"
#include "tests/support/test_data.h"

namespace helios::testing {

namespace json = boost::json;

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::vector<json::object> read_json_lines(const std::string& path) {
  std::vector<json::object> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line).as_object());
  return lines;
}

inline std::vector<TokenId> as_ids(const json::value& value) {
  std::vector<TokenId> ids;
  for (const json::value& id : value.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

inline std::string as_text(const json::value& value) { return std::string(value.as_string()); }

inline std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += kDigits[static_cast<uint8_t>(c) >> 4];
    out += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return out;
}

/// A directory that is removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "helios-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Loads a tokenizer whose tokenizer.json may be packed. Null when it is packed and there is no xz; load errors fail
/// the test.
inline std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& dir) {
  TemporaryDirectory unpacked;
  std::string from = dir;
  if (!std::filesystem::exists(dir + "/tokenizer.json")) {
    if (std::system("command -v xz >/dev/null 2>&1") != 0) return nullptr;
    const std::string command = "xz -dc '" + dir + "/tokenizer.json.xz' > '" + unpacked.path() + "/tokenizer.json'";
    if (std::system(command.c_str()) != 0) return nullptr;
    std::filesystem::copy(dir + "/tokenizer_config.json", unpacked.path());
    from = unpacked.path();
  }
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::load(from);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? *tokenizer : nullptr;
}

}  // namespace helios::testing
