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
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/net/cluster_key.h"

namespace helios {

inline constexpr size_t kMaxFrames = 8;
inline constexpr int64_t kMaxFrameBytes = int64_t{64} << 20;  // a peer that sends a longer one is disconnected
inline constexpr int kHighWaterMark = 256;                    // messages queued to or from one peer

/// Ok for "tcp://HOST:PORT" (PORT a number up to 65535 or *) and "ipc://PATH". Errors: kInvalidArgument.
Status check_endpoint(std::string_view endpoint);

class ZmqContext {
 public:
  ZmqContext();
  /// Every socket must be closed first; waits for the linger time of those that have one.
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

/// The thread that creates a socket owns it. Moving hands it over: the first use after a move decides the new owner.
/// Use from any other thread is a failed check.
class ZmqSocket {
 public:
  /// ROUTER with MANDATORY: sending to a peer that is gone or full is an error, never a silent loss. With HANDOVER: a
  /// peer that reconnects before its old connection has died takes its identity with it.
  static ZmqSocket router(ZmqContext& context);
  /// DEALER with IMMEDIATE and the given identity (rank and life): nothing is queued for a coordinator that is not
  /// there, to be delivered stale to the next one.
  static ZmqSocket dealer(ZmqContext& context, const std::string& identity);

  ZmqSocket(ZmqSocket&&) noexcept;
  ZmqSocket& operator=(ZmqSocket&&) noexcept;
  ~ZmqSocket();

  /// Before bind() or connect(): only peers with the same key will be heard, and what passes is encrypted.
  void encrypt(const ClusterKey& key);

  /// `endpoint`: "tcp://host:port" (port 0 or * picks one) or "ipc:///path". Returns the resolved endpoint.
  /// Errors: kInvalidArgument (not an endpoint), kUnavailable (in use, no such interface).
  Result<std::string> bind(const std::string& endpoint);
  /// Returns at once; ZeroMQ connects, and reconnects every 100 ms to 1 s, by itself. Errors: kInvalidArgument.
  Status connect(const std::string& endpoint);

  /// Never blocks. Errors: kUnavailable (peer gone or its queue full).
  Status send(const std::string& identity, std::span<const std::string> frames);
  /// Never blocks; empty when there is nothing. Messages with more than 8 frames, or over the limit, are dropped.
  std::optional<ZmqMessage> try_receive();

  /// Messages dropped by try_receive() so far.
  uint64_t dropped() const { return dropped_; }

  /// How long closing may still deliver what was sent; 0 at first. For a last word before the process ends.
  void set_linger(std::chrono::milliseconds limit);

  /// The raw handle, for zmq_poll beside other descriptors.
  void* handle() const { return handle_; }

 private:
  ZmqSocket(ZmqContext& context, int type);
  friend bool zmq_wait(std::span<ZmqSocket* const>, int, std::chrono::milliseconds);
  void check_thread();
  void set(int option, int value);
  bool has_message();

  void* handle_ = nullptr;
  int descriptor_ = -1;  // readable when ZeroMQ has news for the owner, which may be a message
  bool quiet_ = false;   // no message is there, and none can be before the descriptor is readable
  uint64_t owner_thread_ = 0;  // 0: whoever uses it first
  uint64_t dropped_ = 0;
  bool routes_ = false;  // a ROUTER
};

/// Waits until a socket is readable, `wake_fd` (an eventfd; -1 for none) is readable and then drained, or the time is
/// up. Returns true when a socket is readable. A signal ends the wait early.
bool zmq_wait(std::span<ZmqSocket* const> sockets, int wake_fd, std::chrono::milliseconds limit);

}  // namespace helios
