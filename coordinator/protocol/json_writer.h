// Writes JSON straight into a string: no tree, commas by itself, always valid UTF-8.
//
// Numbers are the shortest decimal that reads back as the same double, always with a point or an exponent, so that a
// client's float stays a float. Thread: any, one writer each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace helios {

/// Quoted and escaped; only what JSON requires is escaped. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
std::string json_string(std::string_view text);  // the same alone
/// The same into [out, out + json_string_room(text)), for those who write much at once; returns the end.
char* write_json_string(char* out, std::string_view text);
constexpr size_t json_string_room(std::string_view text) { return 6 * text.size() + 2; }
/// `value` must be finite. -0.0 is written as 0.0.
void append_json_number(std::string& out, double value);

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  /// The next value belongs to this key; `name` is written as is.
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  /// A value that is JSON already.
  JsonWriter& raw(std::string_view json);

 private:
  void comma() {
    if (need_comma_) out_ += ',';
  }
  JsonWriter& open(char bracket) {
    comma();
    out_ += bracket;
    need_comma_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_ += bracket;
    need_comma_ = true;
    return *this;
  }

  std::string& out_;
  bool need_comma_ = false;
};

}  // namespace helios
