// A move-only ZeroMQ socket that stays on one thread and sends and receives whole messages.
//
// The context sets ZERO_COPY_RECV off before its first socket: otherwise small frames arrive misaligned and Cap'n Proto
// refuses them. Every socket has explicit high-water marks, LINGER 0 and heartbeats.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace helios {

class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;
  void* handle() const { return handle_; }

 private:
  void* handle_;
};

/// One received message; for a ROUTER `identity` is the peer's routing id, else empty.
struct ZmqMessage {
  std::string identity;
  std::vector<std::string> frames;
};

class ZmqSocket {
 public:
  /// ROUTER with MANDATORY: sending to a peer that is gone or full is an error, never a silent loss.
  static ZmqSocket router(ZmqContext& context);
  /// DEALER with IMMEDIATE and the given identity (rank and life).
  static ZmqSocket dealer(ZmqContext& context, const std::string& identity);

  ZmqSocket(ZmqSocket&&) noexcept;
  ZmqSocket& operator=(ZmqSocket&&) noexcept;
  ~ZmqSocket();

  /// `endpoint`: "tcp://host:port" (port 0 or * picks one) or "ipc:///path". Returns the resolved endpoint.
  Result<std::string> bind(const std::string& endpoint);
  Status connect(const std::string& endpoint);

  /// Never blocks. Errors: kUnavailable (peer gone or its queue full).
  Status send(const std::string& identity, std::span<const std::string> frames);
  /// Never blocks; empty when there is nothing. Messages with more than 8 frames, or over the limit, are dropped.
  std::optional<ZmqMessage> try_receive();

  /// The raw handle, for zmq_poll beside other descriptors.
  void* handle() const { return handle_; }

 private:
  explicit ZmqSocket(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
  uint64_t owner_thread_ = 0;
};

/// Waits until a socket is readable, `wake_fd` (an eventfd; -1 for none) is readable and then drained, or the time is up.
/// Returns true when a socket is readable.
bool zmq_wait(std::span<ZmqSocket* const> sockets, int wake_fd, std::chrono::milliseconds limit);

}  // namespace helios
