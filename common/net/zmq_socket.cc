#include "common/net/zmq_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/net/process_id.h"

namespace helios {
namespace {

// In the draft part of zmq.h, but honoured by release builds of 4.3.
constexpr int kZeroCopyRecv = 10;

// The transport's own heartbeats notice a host or a process that is gone without a word, so that its queues are freed.
// Whether a rank makes progress is the heartbeat message's business. A paused process finds its timers expired before
// it reads what arrived meanwhile, and would cut a healthy connection: hence a limit above what a busy machine
// inflicts.
constexpr int kHeartbeatIntervalMs = 100;
constexpr int kHeartbeatTimeoutMs = 1500;
constexpr int kReconnectMs = 100;
constexpr int kReconnectMaxMs = 1000;

constexpr int kMaxDropsPerReceive = 64;  // then the caller gets its turn again

/// Asked for at every use of a socket, so the kernel is asked once.
uint64_t this_thread() {
  thread_local const auto id = static_cast<uint64_t>(::gettid());
  return id;
}

/// A frame under way; closes itself.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  explicit Frame(const std::string& bytes) {
    HELIOS_CHECK(zmq_msg_init_size(&message_, bytes.size()) == 0, "out of memory for a frame", bytes.size());
    std::memcpy(zmq_msg_data(&message_), bytes.data(), bytes.size());
  }
  ~Frame() { zmq_msg_close(&message_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  zmq_msg_t* get() { return &message_; }
  size_t size() const { return zmq_msg_size(&message_); }
  bool more() const { return zmq_msg_more(&message_) != 0; }
  std::string bytes() { return {static_cast<const char*>(zmq_msg_data(&message_)), size()}; }

 private:
  zmq_msg_t message_;
};

/// 0, or the errno. Retries when a signal interrupts.
int send_frame(void* socket, const std::string& bytes, bool more) {
  Frame frame(bytes);
  while (zmq_msg_send(frame.get(), socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0) {
    if (zmq_errno() != EINTR) return zmq_errno();
  }
  return 0;
}

bool receive_frame(void* socket, Frame& frame) {
  while (zmq_msg_recv(frame.get(), socket, ZMQ_DONTWAIT) < 0) {
    if (zmq_errno() != EINTR) return false;
  }
  return true;
}

/// "*" or 0..65535. ZeroMQ itself takes larger numbers modulo 65536.
bool is_port(std::string_view text) {
  unsigned port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return text == "*" || (error == std::errc() && end == text.data() + text.size() && port <= 65535);
}

Error endpoint_error(const char* verb, const std::string& endpoint) {
  const int error = zmq_errno();
  const bool malformed = error == EINVAL || error == ENAMETOOLONG || error == EPROTONOSUPPORT;
  return Error{malformed ? Errc::kInvalidArgument : Errc::kUnavailable,
               fmt::format("cannot {} {}: {}", verb, endpoint, zmq_strerror(error))};
}

}  // namespace

Status check_endpoint(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  const bool tcp = endpoint.starts_with("tcp://") && colon > 6 && is_port(endpoint.substr(colon + 1));
  const bool ipc = endpoint.starts_with("ipc://") && endpoint.size() > 6;
  if (tcp || ipc) return Ok{};
  return Error{Errc::kInvalidArgument,
               fmt::format("endpoint: expected tcp://HOST:PORT or ipc://PATH, found '{}'", endpoint)};
}

ZmqContext::ZmqContext() : handle_(zmq_ctx_new()) {
  remember_process_id();
  HELIOS_CHECK(handle_ != nullptr, zmq_strerror(zmq_errno()));
  HELIOS_CHECK(zmq_ctx_set(handle_, kZeroCopyRecv, 0) == 0, zmq_strerror(zmq_errno()));
}

ZmqContext::~ZmqContext() {
  while (zmq_ctx_term(handle_) != 0 && zmq_errno() == EINTR) {
  }
}

ZmqSocket::ZmqSocket(ZmqContext& context, int type)
    : handle_(zmq_socket(context.handle(), type)), owner_thread_(this_thread()), routes_(type == ZMQ_ROUTER) {
  HELIOS_CHECK(handle_ != nullptr, zmq_strerror(zmq_errno()));
  set(ZMQ_LINGER, 0);
  set(ZMQ_SNDHWM, kHighWaterMark);
  set(ZMQ_RCVHWM, kHighWaterMark);
  set(ZMQ_HEARTBEAT_IVL, kHeartbeatIntervalMs);
  set(ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs);
  set(ZMQ_HEARTBEAT_TTL, kHeartbeatTimeoutMs);
  size_t size = sizeof descriptor_;
  HELIOS_CHECK(zmq_getsockopt(handle_, ZMQ_FD, &descriptor_, &size) == 0, zmq_strerror(zmq_errno()));
  const int64_t limit = kMaxFrameBytes;
  HELIOS_CHECK(zmq_setsockopt(handle_, ZMQ_MAXMSGSIZE, &limit, sizeof limit) == 0, zmq_strerror(zmq_errno()));
}

ZmqSocket ZmqSocket::router(ZmqContext& context) {
  ZmqSocket socket(context, ZMQ_ROUTER);
  socket.set(ZMQ_ROUTER_MANDATORY, 1);
  socket.set(ZMQ_ROUTER_HANDOVER, 1);
  return socket;
}

ZmqSocket ZmqSocket::dealer(ZmqContext& context, const std::string& identity) {
  ZmqSocket socket(context, ZMQ_DEALER);
  socket.set(ZMQ_IMMEDIATE, 1);
  socket.set(ZMQ_RECONNECT_IVL, kReconnectMs);
  socket.set(ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
  HELIOS_CHECK(zmq_setsockopt(socket.handle_, ZMQ_ROUTING_ID, identity.data(), identity.size()) == 0,
               "a routing id has 1 to 255 bytes and begins with no zero", identity.size());
  return socket;
}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      descriptor_(other.descriptor_),
      dropped_(other.dropped_),
      routes_(other.routes_) {}

ZmqSocket& ZmqSocket::operator=(ZmqSocket&& other) noexcept {
  if (this != &other) {
    if (handle_) zmq_close(handle_);
    handle_ = std::exchange(other.handle_, nullptr);
    descriptor_ = other.descriptor_;
    quiet_ = false;
    owner_thread_ = 0;
    dropped_ = other.dropped_;
    routes_ = other.routes_;
  }
  return *this;
}

ZmqSocket::~ZmqSocket() {
  if (handle_) zmq_close(handle_);
}

void ZmqSocket::check_thread() {
  if (owner_thread_ == 0) owner_thread_ = this_thread();
  HELIOS_CHECK(owner_thread_ == this_thread(), "a ZeroMQ socket belongs to one thread", owner_thread_, this_thread());
}

void ZmqSocket::set(int option, int value) {
  HELIOS_CHECK(zmq_setsockopt(handle_, option, &value, sizeof value) == 0, option, zmq_strerror(zmq_errno()));
}

void ZmqSocket::set_linger(std::chrono::milliseconds limit) {
  check_thread();
  set(ZMQ_LINGER, static_cast<int>(limit.count()));
}

void ZmqSocket::encrypt(const ClusterKey& key) {
  check_thread();
  const auto put = [this](int option, const std::string& text) {
    HELIOS_CHECK(zmq_setsockopt(handle_, option, text.c_str(), text.size() + 1) == 0, option,
                 zmq_strerror(zmq_errno()));
  };
  if (routes_) {
    set(ZMQ_CURVE_SERVER, 1);
  } else {
    put(ZMQ_CURVE_SERVERKEY, key.public_half);
    put(ZMQ_CURVE_PUBLICKEY, key.public_half);
  }
  put(ZMQ_CURVE_SECRETKEY, key.secret);
}

Result<std::string> ZmqSocket::bind(const std::string& endpoint) {
  check_thread();
  if (Status valid = check_endpoint(endpoint); !valid.ok()) return valid.error();
  if (endpoint.find('[') != std::string::npos) set(ZMQ_IPV6, 1);
  if (zmq_bind(handle_, endpoint.c_str()) != 0) return endpoint_error("bind", endpoint);
  std::array<char, 512> resolved{};
  size_t size = resolved.size();
  HELIOS_CHECK(zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, resolved.data(), &size) == 0, zmq_strerror(zmq_errno()));
  return std::string(resolved.data());
}

Status ZmqSocket::connect(const std::string& endpoint) {
  check_thread();
  if (Status valid = check_endpoint(endpoint); !valid.ok()) return valid.error();
  if (endpoint.find('[') != std::string::npos) set(ZMQ_IPV6, 1);
  if (zmq_connect(handle_, endpoint.c_str()) != 0) return endpoint_error("connect", endpoint);
  return Ok{};
}

Status ZmqSocket::send(const std::string& identity, std::span<const std::string> frames) {
  check_thread();
  quiet_ = false;  // now and then it takes the news, too
  HELIOS_CHECK(routes_ != identity.empty(), "a ROUTER names its peer, a DEALER does not");
  HELIOS_CHECK(!frames.empty() && frames.size() <= kMaxFrames, frames.size());
  // Only the first frame can be refused: once a peer's queue has taken it, the others follow without waiting.
  const std::string& first = routes_ ? identity : frames[0];
  if (const int error = send_frame(handle_, first, routes_ || frames.size() > 1); error != 0) {
    return Error{Errc::kUnavailable,
                 error == EAGAIN ? "peer absent or its queue is full" : std::string(zmq_strerror(error))};
  }
  for (size_t i = routes_ ? 0 : 1; i < frames.size(); ++i) {
    if (const int error = send_frame(handle_, frames[i], i + 1 < frames.size()); error != 0) {
      return Error{Errc::kUnavailable, fmt::format("peer left within a message: {}", zmq_strerror(error))};
    }
  }
  return Ok{};
}

std::optional<ZmqMessage> ZmqSocket::try_receive() {
  check_thread();
  quiet_ = false;
  for (int drops = 0; drops < kMaxDropsPerReceive; ++drops) {
    ZmqMessage message;
    int64_t bytes = 0;
    bool keep = true;
    bool more = true;
    bool identity = routes_;
    while (more) {
      Frame frame;
      if (!receive_frame(handle_, frame)) {  // messages arrive whole: only ever the first frame
        quiet_ = true;
        return std::nullopt;
      }
      more = frame.more();
      if (std::exchange(identity, false)) {
        message.identity = frame.bytes();
        continue;
      }
      bytes += static_cast<int64_t>(frame.size());
      keep = keep && message.frames.size() < kMaxFrames && bytes <= kMaxFrameBytes;
      if (keep) message.frames.push_back(frame.bytes());
    }
    if (keep && !message.frames.empty()) return message;
    ++dropped_;
  }
  return std::nullopt;
}

/// Takes the news, where there may be any: a system call or three.
bool ZmqSocket::has_message() {
  check_thread();
  if (quiet_) return false;
  int events = 0;
  size_t size = sizeof events;
  while (zmq_getsockopt(handle_, ZMQ_EVENTS, &events, &size) != 0) {
    HELIOS_CHECK(zmq_errno() == EINTR, zmq_strerror(zmq_errno()));
  }
  quiet_ = (events & ZMQ_POLLIN) == 0;
  return !quiet_;
}

// zmq_poll() asks each socket before and after every poll() of its own, and polls once without waiting. Here a socket
// is asked when its descriptor says so, or when what was done with it since may have taken the news.
bool zmq_wait(std::span<ZmqSocket* const> sockets, int wake_fd, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<pollfd> polled;
  polled.reserve(sockets.size() + 1);
  for (const ZmqSocket* const socket : sockets) polled.push_back({socket->descriptor_, POLLIN, 0});
  polled.push_back({wake_fd, POLLIN, 0});  // poll() passes a negative one by
  const auto any_message = [&] {
    bool any = false;
    for (ZmqSocket* const socket : sockets) any |= socket->has_message();
    return any;
  };
  if (any_message()) return true;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const auto wait_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, std::numeric_limits<int>::max()));
    if (::poll(polled.data(), polled.size(), wait_ms) <= 0) return false;  // time is up, or a signal
    const bool woken = (polled.back().revents & POLLIN) != 0;
    if (woken) {
      uint64_t count = 0;
      [[maybe_unused]] const auto drained = ::read(wake_fd, &count, sizeof count);
    }
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (polled[i].revents != 0) sockets[i]->quiet_ = false;
    }
    const bool readable = any_message();
    if (readable || woken) return readable;
  }
}

}  // namespace helios
