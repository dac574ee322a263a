// Result<T>: a value, or an Error that says who is to blame and what to tell them.
//
// For everything that a client or a peer can cause. C++20 has no std::expected; this is the small part of it that
// we use, so that the day it arrives only this file changes.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace helios {

enum class Errc {
  kInvalidArgument,   // the client's value is out of range or contradictory: HTTP 400
  kUnauthenticated,   // missing or wrong API key: 401
  kNotFound,          // no such model or path: 404
  kMethodNotAllowed,  // 405
  kTooLarge,          // body over the limit: 413
  kQueueFull,         // 429
  kUnavailable,       // draining, not ready, or the ranks are lost: 503
  kInternal,          // our fault or the device's: 500
  kNotImplemented,    // known but not built: 501
  kCorruptFile,       // a model file that is not what it says
  kUnsupported,       // a model, tokenizer or flag this build cannot do exactly
  kTruncatedFrame,    // a message or payload shorter than its header says
  kChosenMismatch,    // packed chosen id differs from the emitted token
  kMismatch,          // ranks or declarations disagree
  kTimeout,
  kAborted,           // the group was torn down while waiting
};

struct Error {
  Errc code = Errc::kInternal;
  std::string message;  // one line, no trailing period, names what was found and what was expected
  std::string param;    // the request field to blame, dotted path; empty when there is none
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}       // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}   // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    HELIOS_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  const T& value() const& {
    HELIOS_CHECK(ok(), error().message);
    return std::get<0>(state_);
  }
  T&& value() && {
    HELIOS_CHECK(ok(), error().message);
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value.
struct Ok {};
using Status = Result<Ok>;

}  // namespace helios
