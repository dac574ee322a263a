#include "common/base/log.h"

#include <memory>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace helios {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace: return spdlog::level::trace;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  // spdlog's own default logger writes to stdout, which belongs to the program's output: replaced on first use.
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>("helios", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %n %v", spdlog::pattern_time_type::utc);
    created->flush_on(spdlog::level::info);
    return created;
  }();
  return *instance;
}

std::string& process_name() {
  static std::string name = "helios";
  return name;
}

}  // namespace

void init_logging(std::string_view name, LogLevel level) {
  process_name() = name;
  logger().set_level(to_spdlog(level));
  logger().set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l " + process_name() + " %v", spdlog::pattern_time_type::utc);
}

bool parse_log_level(std::string_view text, LogLevel* level) {
  constexpr std::pair<std::string_view, LogLevel> kNames[] = {
      {"trace", LogLevel::kTrace},     {"debug", LogLevel::kDebug}, {"info", LogLevel::kInfo},
      {"warning", LogLevel::kWarning}, {"error", LogLevel::kError}, {"off", LogLevel::kOff}};
  for (const auto& [name, value] : kNames) {
    if (text == name) {
      *level = value;
      return true;
    }
  }
  return false;
}

bool log_enabled(LogLevel level) { return logger().should_log(to_spdlog(level)); }

void log_line(LogLevel level, std::string_view event, std::string_view fields) {
  logger().log(to_spdlog(level), "{}{}{}", event, fields.empty() ? "" : " ", fields);
}

}  // namespace helios
