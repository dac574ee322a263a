// The listening socket, its I/O threads, and all connections: everything of the server that main holds.
//
// Its handlers borrow the router. Destroy the server before what the handlers use: stop() returns only when no
// connection is left, so nothing calls into engine or tokenizer afterwards.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/result.h"
#include "coordinator/http/router.h"

namespace helios {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: the kernel picks
  int io_threads = 2;
  int max_connections = 4096;  // more wait in the kernel's queue
  size_t max_header_bytes = 16 * 1024;
  size_t max_body_bytes = 16 * 1024 * 1024;
  int send_buffer_bytes = 64 * 1024;  // small, so that a client that does not read is noticed
  std::chrono::milliseconds header_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds body_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(75);
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);  // without a byte taken
  std::chrono::milliseconds linger_timeout = std::chrono::seconds(1);
  std::function<void(int status)> on_response;     // called for every reply, on any I/O thread
  std::function<void(int change)> on_connections;  // +1 or -1, on any I/O thread
};

class HttpServer {
 public:
  /// Listens and serves at once. Errors: kInvalidArgument, naming address and reason (port in use, unknown host).
  static Result<std::unique_ptr<HttpServer>> start(HttpOptions options, const Router& router);
  ~HttpServer();

  uint16_t port() const;
  /// "http://HOST:PORT".
  std::string url() const;

  /// Requests read and not yet answered in full.
  int active_requests() const;
  /// Every connection ends with its present reply; idle ones at once. New ones are still accepted, for probes.
  void close_after_replies();
  /// Fails every answer that is not complete: streams end with this error's event.
  void fail_active(const Error& error);
  /// Closes all that is left and joins the threads. Idempotent.
  void stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
