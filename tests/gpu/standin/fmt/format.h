// The part of fmt that the worker uses, for a machine without fmt: {} and {:02x}, over streams, and format_to_n. Used
// by tests/gpu alone; numbers in a message may look otherwise than the real library prints them.
#pragma once

#include <array>
#include <functional>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace fmt {

template <class... A>
using format_string = std::string_view;

template <class Range>
struct JoinedRange {
  const Range& range;
  std::string_view separator;
};
template <class Range>
JoinedRange<Range> join(const Range& range, std::string_view separator) {
  return {range, separator};
}

namespace standin {

template <class T>
void put(std::ostream& out, std::string_view spec, const T& value) {
  if constexpr (requires { value.range, value.separator; }) {
    std::string_view between;
    for (const auto& item : value.range) {
      out << between;
      put(out, spec, item);
      between = value.separator;
    }
  } else if constexpr (requires { out << value; }) {
    if (spec == ":02x") out << std::hex << std::setw(2) << std::setfill('0');
    if constexpr (sizeof(T) == 1 && std::is_integral_v<T> && !std::is_same_v<T, char> && !std::is_same_v<T, bool>) {
      out << static_cast<int>(value);
    } else {
      out << std::boolalpha << value;
    }
    out << std::dec;
  } else {
    out << '[';
    put(out, spec, join(value, ", "));
    out << ']';
  }
}

}  // namespace standin

template <class... A>
std::string format(std::string_view text, const A&... arguments) {
  using Put = std::function<void(std::ostream&, std::string_view)>;
  const std::array<Put, sizeof...(A)> puts{
      Put([&arguments](std::ostream& out, std::string_view spec) { standin::put(out, spec, arguments); })...};
  std::ostringstream out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool doubled = i + 1 < text.size() && text[i + 1] == text[i];
    if ((text[i] == '{' || text[i] == '}') && doubled) {
      out << text[i++];
    } else if (text[i] == '{') {
      const size_t end = text.find('}', i);
      puts.at(next++)(out, text.substr(i + 1, end - i - 1));
      i = end;
    } else {
      out << text[i];
    }
  }
  return out.str();
}

struct Written {
  char* out;
  size_t size;  // of the whole text
};
template <class... A>
Written format_to_n(char* out, size_t most, std::string_view text, const A&... arguments) {
  const std::string whole = format(text, arguments...);
  return {out + whole.copy(out, most), whole.size()};
}

}  // namespace fmt
