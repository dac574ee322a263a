// HELIOS_CHECK: an invariant that only this process could break. Prints the condition and the values, then aborts.
//
// Never on anything that a client, a peer or a file can send: such a check is a crash that they can order.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace helios::detail {

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition, values.empty() ? "" : ": ",
               values.c_str());
  std::fflush(stderr);
  std::abort();
}

template <class... Values>
std::string join_values(const Values&... values) {
  std::ostringstream out;
  [[maybe_unused]] const char* separator = "";
  ((out << separator << values, separator = ", "), ...);
  return out.str();
}

}  // namespace helios::detail

#define HELIOS_CHECK(condition, ...)                                                                          \
  do {                                                                                                        \
    if (!(condition)) [[unlikely]]                                                                            \
      ::helios::detail::check_failed(__FILE__, __LINE__, #condition, ::helios::detail::join_values(__VA_ARGS__)); \
  } while (false)
