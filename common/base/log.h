// Structured log lines on stderr: severity, event, key=value pairs.
//
// log_info("rank_ready", "rank={} pid={}", rank, pid) prints
//   2026-01-01T00:00:00.000Z info coordinator rank_ready rank=0 pid=4242
// An error is logged where it is handled, once. Thread-safe.
#pragma once

#include <string_view>

#include <fmt/format.h>

namespace helios {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// Sets the process's name in every line and the threshold. Call once in main, before the threads.
void init_logging(std::string_view process_name, LogLevel level);

/// Reads trace|debug|info|warning|error|off; false when it is none of them.
bool parse_log_level(std::string_view text, LogLevel* level);

bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view event, std::string_view fields);

template <class... Args>
void log_at(LogLevel level, std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, event, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kDebug, event, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kInfo, event, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kWarning, event, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::kError, event, format, std::forward<Args>(args)...);
}

}  // namespace helios
