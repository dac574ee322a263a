#include "coordinator/http/router.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

namespace helios {
namespace {

std::optional<std::string_view> match(std::string_view route, std::string_view path) {
  if (!route.ends_with('*')) return route == path ? std::optional<std::string_view>("") : std::nullopt;
  route.remove_suffix(1);
  if (!path.starts_with(route) || path.size() == route.size()) return std::nullopt;
  return path.substr(route.size());
}

std::string percent_decoded(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Its time depends on the lengths alone, so a wrong key does not tell how much of it was right.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key.empty() ? 0 : key[i % key.size()]);
  }
  return difference == 0;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

bool is_json(std::string_view content_type) {
  std::string_view media = content_type.substr(0, content_type.find(';'));
  while (!media.empty() && (media.back() == ' ' || media.back() == '\t')) media.remove_suffix(1);
  return equal_ignoring_case(media, "application/json");
}

bool is_under_v1(std::string_view path) { return path == "/v1" || path.starts_with("/v1/"); }

}  // namespace

void Router::add(std::string method, std::string path, Handler handler) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler)});
}

void Router::add_json_post(std::string path, Handler handler) {
  add("POST", std::move(path),
      [handler = std::move(handler)](const HttpRequest& request, std::string_view tail, WakeUp wake) -> Answer {
        if (!is_json(request.content_type)) {
          return error_reply(invalid_argument("", "the Content-Type must be application/json"));
        }
        if (!request.content_encoding.empty() && !equal_ignoring_case(request.content_encoding, "identity")) {
          return error_reply(invalid_argument("", "a Content-Encoding is not supported: send the JSON as it is"));
        }
        return handler(request, tail, std::move(wake));
      });
}

bool Router::authorized(const HttpRequest& request) const {
  if (api_key_.empty() || !is_under_v1(request.path) || request.method == "OPTIONS") return true;
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view given = request.authorization;
  if (given.size() < kScheme.size() || !equal_ignoring_case(given.substr(0, kScheme.size()), kScheme)) return false;
  given.remove_prefix(kScheme.size());
  return equal_in_constant_time(given, api_key_);
}

Answer Router::handle(const HttpRequest& request, WakeUp wake) const {
  if (!authorized(request)) {
    HttpReply reply =
        error_reply(Error{Errc::kUnauthenticated, "missing or wrong API key; send Authorization: Bearer KEY", ""});
    reply.headers.emplace_back("WWW-Authenticate", "Bearer");
    return reply;
  }
  std::vector<std::string> allowed;
  for (const Route& route : routes_) {
    const std::optional<std::string_view> tail = match(route.path, request.path);
    if (!tail) continue;
    const bool head = request.method == "HEAD" && route.method == "GET";
    if (request.method == route.method || head) return route.handler(request, percent_decoded(*tail), std::move(wake));
    allowed.push_back(route.method);
    if (route.method == "GET") allowed.push_back("HEAD");
  }
  if (allowed.empty()) {
    return error_reply(ApiError{404, "Not Found", "there is nothing at this path", ""});
  }
  allowed.push_back("OPTIONS");
  const std::string allow = fmt::format("{}", fmt::join(allowed, ", "));
  if (request.method == "OPTIONS") return HttpReply{.status = 204, .content_type = "", .headers = {{"Allow", allow}}};
  HttpReply reply = error_reply(Error{Errc::kMethodNotAllowed, fmt::format("this path answers {}", allow), ""});
  reply.headers.emplace_back("Allow", allow);
  return reply;
}

}  // namespace helios
