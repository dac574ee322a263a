// HTTP as the handlers see it: plain values, no Beast. Thread: the connection's strand.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "coordinator/engine/engine_client.h"
#include "coordinator/protocol/api_error.h"

namespace helios {

struct HttpRequest {
  std::string method;
  std::string path;          // percent-encoded as it came, without the query
  std::string content_type;  // empty when absent
  std::string content_encoding;
  std::string authorization;  // empty when absent
  std::string request_id;     // X-Request-Id when usable, else 32 hex digits
  bool client_request_id = false;
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

HttpReply json_reply(int status, std::string body);
/// With Retry-After on 429 and 503.
HttpReply error_reply(const ApiError& error);
inline HttpReply error_reply(const Error& error) { return error_reply(to_api_error(error)); }
HttpReply json_reply_or_error(Result<std::string> json);

/// Tells a connection, from any thread, that its PendingReply may have something new.
using WakeUp = Notify;

/// An answer that takes time. Destroying it stops whatever still runs for it (the client is gone).
class PendingReply {
 public:
  enum class State {
    kWaiting,   // nothing more until the wake-up
    kMore,      // call pump() again after the bytes are written
    kStreamed,  // the stream is complete with these bytes
    kReply,     // nothing was streamed: reply() has the whole answer
  };
  virtual ~PendingReply() = default;
  /// Takes what has arrived, and appends what a streaming client gets of it. The first bytes commit the answer to
  /// status 200 and an event stream.
  virtual State pump(std::string& events) = 0;
  virtual HttpReply reply() = 0;
  /// Ends the answer with this error, at the next pump().
  virtual void fail(Error error) = 0;
};

using Answer = std::variant<HttpReply, std::unique_ptr<PendingReply>>;

/// "HTTP/1.1 200 OK", the headers, and the blank line.
struct HeadFields {
  int http_minor = 1;
  bool keep_alive = true;
  std::string_view request_id;
};
std::string reply_head(const HttpReply& reply, const HeadFields& fields);
/// Chunked on HTTP/1.1; on 1.0 the stream ends with the connection.
std::string stream_head(const HeadFields& fields);
/// What stands before a chunk of so many bytes, which must not be none, in a chunked body. kChunkEnd stands behind it,
/// and kLastChunk behind all.
std::string chunk_begin(size_t bytes);
inline constexpr std::string_view kChunkEnd = "\r\n";
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace helios
