#include "coordinator/template/json_input.h"

#include <charconv>
#include <cstdlib>
#include <deque>
#include <string>

#include <boost/json/basic_parser_impl.hpp>

namespace helios::jinja {
namespace {

namespace json = boost::json;
constexpr std::size_t kMaxDepth = 128;

// What basic_parser tells of, built bottom up.
class Builder {
 public:
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);

  explicit Builder(Sandbox& box) : box_(box) {}

  Value result() const { return result_; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    open_.emplace_back(box_).dict = box_.make<Dict>();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    Dict* dict = open_.back().dict;
    open_.pop_back();
    return add(Value::from(dict));
  }
  bool on_array_begin(json::error_code&) {
    open_.emplace_back(box_);
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) {
    const Value list = open_.back().list.finish();
    open_.pop_back();
    return add(list);
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) { return gather(part); }
  bool on_key(json::string_view part, std::size_t, json::error_code&) {
    open_.back().key = gathered(part);
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) { return gather(part); }
  bool on_string(json::string_view part, std::size_t, json::error_code&) { return add(gathered(part)); }
  bool on_number_part(json::string_view part, json::error_code&) { return gather(part); }
  bool on_int64(int64_t value, json::string_view, json::error_code&) {
    partial_.clear();
    return add(Value::from(value));
  }
  bool on_uint64(uint64_t, json::string_view part, json::error_code&) { return number(part); }
  bool on_double(double, json::string_view part, json::error_code&) { return number(part); }
  bool on_bool(bool value, json::error_code&) { return add(Value::from(value)); }
  bool on_null(json::error_code&) { return add(Value::none()); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  struct Open {
    explicit Open(Sandbox& box) : list(box) {}
    Dict* dict = nullptr;  // null: an array
    Value key;
    ListBuilder list;
  };

  bool gather(json::string_view part) {
    partial_.append(part.data(), part.size());
    return true;
  }

  Value gathered(json::string_view part) {
    const std::string_view last(part.data(), part.size());
    if (partial_.empty()) return copy_text(box_, last);
    partial_.append(last);
    const Value out = copy_text(box_, partial_);
    partial_.clear();
    return out;
  }

  bool number(json::string_view part) {
    gather(part);
    std::string_view text = partial_;
    Value value;
    if (text.find_first_of(".eE") == text.npos) {
      const bool negative = text.starts_with('-');
      if (negative) text.remove_prefix(1);
      box_.step(text.size());
      const BigInt magnitude = BigInt::parse(text, 10);
      value = make_integer(box_, negative ? -magnitude : magnitude);
    } else {
      double real = 0;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), real);
      if (parsed.ec != std::errc{}) real = std::strtod(partial_.c_str(), nullptr);  // 1e400: infinite, as in Python
      value = Value::from(real);
    }
    partial_.clear();
    return add(value);
  }

  bool add(Value value) {
    box_.step();
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().dict) {
      open_.back().dict->set(box_, open_.back().key, value);
    } else {
      open_.back().list.push(value);
    }
    return true;
  }

  Sandbox& box_;
  std::deque<Open> open_;
  std::string partial_;
  Value result_;
};

}  // namespace

Value read_json(Sandbox& box, std::string_view text, std::string_view what) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::basic_parser<Builder> parser(options, box);
  json::error_code error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (!error && used < text.size()) {
    const std::string_view rest = text.substr(used);
    if (rest.find_first_not_of(" \t\r\n") != rest.npos) error = json::error::extra_data;
  }
  if (error) {
    throw Fault{Errc::kInvalidArgument,
                cat(what, ": not valid JSON at byte ", std::to_string(used), ": ", error.message())};
  }
  return parser.handler().result();
}

}  // namespace helios::jinja
