#include "coordinator/protocol/api_error.h"

#include <utility>

#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

constexpr size_t kMaxMessageBytes = 1000;

std::string_view bounded(std::string_view message) {
  if (message.size() <= kMaxMessageBytes) return message;
  size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return message.substr(0, end);
}

std::pair<int, const char*> status_and_type(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return {400, "BadRequestError"};
    case Errc::kUnauthenticated:
      return {401, "AuthenticationError"};
    case Errc::kNotFound:
      return {404, "NotFoundError"};
    case Errc::kMethodNotAllowed:
      return {405, "Method Not Allowed"};
    case Errc::kTooLarge:
      return {413, "Request Entity Too Large"};
    case Errc::kQueueFull:
      return {429, "RateLimitError"};
    case Errc::kNotImplemented:
      return {501, "NotImplementedError"};
    case Errc::kUnavailable:
    case Errc::kTimeout:
    case Errc::kAborted:
      return {503, "ServiceUnavailableError"};
    case Errc::kInternal:
    case Errc::kCorruptFile:
    case Errc::kUnsupported:
    case Errc::kTruncatedFrame:
    case Errc::kChosenMismatch:
    case Errc::kMismatch:
      return {500, "InternalServerError"};
  }
  return {500, "InternalServerError"};
}

}  // namespace

ApiError to_api_error(const Error& error) {
  const auto [status, type] = status_and_type(error.code);
  return {status, type, error.message, error.param};
}

std::string error_json(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("error").begin_object();
  json.key("message").string(bounded(error.message));
  json.key("type").string(error.type);
  json.key("param");
  error.param.empty() ? json.null() : json.string(error.param);
  json.key("code").integer(error.status);
  json.end_object().end_object();
  return out;
}

Error invalid_argument(std::string_view param, std::string message) {
  return {Errc::kInvalidArgument, std::move(message), std::string(param)};
}

Error not_implemented(std::string_view param, std::string message) {
  return {Errc::kNotImplemented, std::move(message), std::string(param)};
}

}  // namespace helios
