// One client's connection: one coroutine on one strand. Read a request, route it, write the answer, repeat.
//
// While an answer takes time a second coroutine on the same strand watches for the client leaving, so that its
// sequences are cancelled at once and not at the next write. Only for this room's Asio files.
#pragma once

#include <atomic>
#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "common/base/result.h"
#include "coordinator/http/http_server.h"
#include "coordinator/http/router.h"

namespace helios {

class WakeHub;

/// What all connections of a server share.
struct ConnectionShared {
  const HttpOptions& options;
  const Router& router;
  const std::shared_ptr<WakeHub> wake_hub;
  std::atomic<int> active_requests = 0;
};

class Connection {
 public:
  static std::shared_ptr<Connection> create(boost::asio::ip::tcp::socket socket, ConnectionShared& shared);
  virtual ~Connection() = default;

  /// Until the client or the server ends it. The caller keeps the connection alive.
  virtual boost::asio::awaitable<void> run() = 0;

  // Any thread.
  virtual void close_after_reply() = 0;
  virtual void fail_active(Error error) = 0;
  virtual void close_now() = 0;
};

}  // namespace helios
