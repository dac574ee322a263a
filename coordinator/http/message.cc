#include "coordinator/http/message.h"

#include <array>
#include <charconv>
#include <ctime>

#include <fmt/format.h>

namespace helios {
namespace {

constexpr std::string_view kRetryAfterSeconds = "1";

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

/// RFC 9110 wants the C locale's names, whatever the process's locale is.
std::string http_date(std::time_t time) {
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02d} {} {} {:02d}:{:02d}:{:02d} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string common_head(int status, std::string_view content_type, const HeadFields& fields) {
  std::string head =
      fmt::format("HTTP/1.{} {} {}\r\nServer: helios\r\nDate: {}\r\nX-Request-Id: {}\r\n", fields.http_minor, status,
                  reason_phrase(status), http_date(std::time(nullptr)), fields.request_id);
  if (!content_type.empty()) head += fmt::format("Content-Type: {}\r\n", content_type);
  if (!fields.keep_alive) {
    head += "Connection: close\r\n";
  } else if (fields.http_minor == 0) {
    head += "Connection: keep-alive\r\n";
  }
  return head;
}

}  // namespace

HttpReply json_reply(int status, std::string body) { return {.status = status, .body = std::move(body)}; }

HttpReply error_reply(const ApiError& error) {
  HttpReply reply = json_reply(error.status, error_json(error));
  if (error.status == 429 || error.status == 503) reply.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  return reply;
}

HttpReply json_reply_or_error(Result<std::string> json) {
  return json ? json_reply(200, std::move(*json)) : error_reply(json.error());
}

std::string reply_head(const HttpReply& reply, const HeadFields& fields) {
  std::string head = common_head(reply.status, reply.content_type, fields);
  for (const auto& [name, value] : reply.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (reply.status != 204) head += fmt::format("Content-Length: {}\r\n", reply.body.size());
  return head + "\r\n";
}

std::string stream_head(const HeadFields& fields) {
  std::string head = common_head(200, "text/event-stream; charset=utf-8", fields);
  head += "Cache-Control: no-cache\r\n";
  if (fields.http_minor > 0) head += "Transfer-Encoding: chunked\r\n";
  return head + "\r\n";
}

std::string chunk_begin(size_t bytes) {
  std::array<char, 2 * sizeof bytes> digits;
  return std::string(digits.data(), std::to_chars(digits.begin(), digits.end(), bytes, 16).ptr) + "\r\n";
}

}  // namespace helios
