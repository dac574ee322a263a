// Error to the OpenAI error body and its HTTP status. Every reply that is not a success goes through here.
//
// `code` repeats the status as an integer and `param` is null rather than absent: clients read both. Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/base/result.h"

namespace helios {

struct ApiError {
  int status = 500;
  std::string type;
  std::string message;
  std::string param;  // empty: null
};

/// Source: wire formats, 1.3.
ApiError to_api_error(const Error& error);

/// {"error": {"message", "type", "param", "code"}}; the message cut to 1,000 bytes at a character's boundary.
std::string error_json(const ApiError& error);
inline std::string error_json(const Error& error) { return error_json(to_api_error(error)); }

Error invalid_argument(std::string_view param, std::string message);
Error not_implemented(std::string_view param, std::string message);

/// Leaves a function whose Result is this room's kind of error.
#define HELIOS_RETURN_IF_ERROR(expression) \
  if (::helios::Status status_ = (expression); !status_) return std::move(status_).error()

}  // namespace helios
