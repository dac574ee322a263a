#include "coordinator/http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/base/check.h"
#include "common/base/log.h"
#include "coordinator/http/wake_signal.h"
#include "coordinator/protocol/identity.h"

namespace helios {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
constexpr auto kAwait = net::as_tuple(net::use_awaitable);

constexpr size_t kReadBytes = 16 * 1024;
constexpr size_t kMaxLingerBytes = 64 * 1024 * 1024;
constexpr size_t kMaxRequestIdBytes = 256;
constexpr std::chrono::milliseconds kPollPeriod{100};

std::string to_string(boost::core::string_view text) { return {text.data(), text.size()}; }

/// Longer or stranger ids are replaced: the value goes into headers, logs and JSON.
bool usable_request_id(std::string_view id) {
  if (id.empty() || id.size() > kMaxRequestIdBytes) return false;
  for (const char c : id) {
    if (c < 0x21 || c > 0x7E) return false;
  }
  return true;
}

/// The other side has closed, or at least will not send again. Bytes of a pipelined request do not hide it.
bool peer_left(int fd) {
  pollfd entry{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/// What a request that could not be read is told; empty when there is nobody to tell or nothing to say.
std::optional<ApiError> refusal(error_code ec, const HttpOptions& options) {
  if (ec == http::error::header_limit) {
    return ApiError{431, "Request Header Fields Too Large",
                    fmt::format("the request's header is larger than {} bytes", options.max_header_bytes), ""};
  }
  if (ec == http::error::body_limit) {
    return ApiError{413, "Request Entity Too Large",
                    fmt::format("the request's body is larger than {} bytes", options.max_body_bytes), ""};
  }
  if (ec == http::error::bad_transfer_encoding) {
    return ApiError{501, "NotImplementedError", "Transfer-Encoding: chunked alone is understood", ""};
  }
  if (ec == http::error::end_of_stream || ec == http::error::partial_message) return std::nullopt;
  if (ec.category() == http::make_error_code(http::error::bad_method).category()) {
    return ApiError{400, "BadRequestError", "the request is not valid HTTP: " + ec.message(), ""};
  }
  return std::nullopt;  // a timeout, a reset
}

/// Of a body in another coding the parser sees none: its bytes would be read as the next request.
bool knows_transfer_coding(const http::request<http::string_body>& request) {
  const auto coding = request.find(http::field::transfer_encoding);
  return coding == request.end() || beast::iequals(coding->value(), "chunked");
}

/// What its socket was made with.
ConnectionStrand strand_of(beast::tcp_stream& stream) {
  const auto executor = stream.get_executor();
  const auto* strand = executor.target<ConnectionStrand>();
  HELIOS_CHECK(strand != nullptr);
  return *strand;
}

/// Counts a request for as long as it is being answered.
class ActiveRequest {
 public:
  explicit ActiveRequest(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }
  ~ActiveRequest() { count_.fetch_sub(1); }
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

 private:
  std::atomic<int>& count_;
};

class BeastConnection final : public Connection, public std::enable_shared_from_this<BeastConnection> {
 public:
  BeastConnection(net::ip::tcp::socket socket, ConnectionShared& shared)
      : shared_(shared),
        options_(shared.options),
        stream_(std::move(socket)),
        poll_timer_(stream_.get_executor()),
        wake_(std::make_shared<WakeSignal>(strand_of(stream_), shared.wake_hub)) {}

  ~BeastConnection() override { wake_->close(); }

  net::awaitable<void> run() override;

  void close_after_reply() override {
    post([](BeastConnection& self) {
      self.closing_ = true;
      if (self.idle_) self.stream_.cancel();
    });
  }
  void fail_active(Error error) override {
    post([error = std::move(error)](BeastConnection& self) {
      if (!self.failure_) self.failure_ = error;
      self.wake_->notify();
    });
  }
  void close_now() override {
    post([](BeastConnection& self) {
      self.closing_ = self.gone_ = true;
      self.wake_->notify();
      self.stream_.close();
    });
  }

 private:
  /// Of the request being answered.
  struct Turn {
    int http_minor = 1;
    bool keep_alive = true;
    bool head_only = false;
    std::string request_id;
    HeadFields head() const { return {http_minor, keep_alive, request_id}; }
  };

  /// An answer that takes time: where it stands, and what pumping it brought.
  struct Stream final : WakeTarget {
    Stream(BeastConnection& connection_in, PendingReply& pending_in, const Turn& turn_in)
        : connection(connection_in), pending(pending_in), turn(turn_in) {}
    bool gather() override { return connection.gather(*this); }
    bool flush() override { return connection.flush(*this); }

    BeastConnection& connection;
    PendingReply& pending;
    const Turn& turn;
    PendingReply::State state = PendingReply::State::kWaiting;
    bool gathered = false;  // there is something to flush
    bool begun = false;     // its head is out
    bool broken = false;    // the pump threw
    std::string events;
    std::string unsent;  // of head and events: what the socket did not take at once
  };

  template <class Action>
  void post(Action action) {
    net::post(stream_.get_executor(), [self = shared_from_this(), action = std::move(action)] { action(*self); });
  }

  net::awaitable<bool> wait_for_first_byte();
  net::awaitable<bool> serve_one();
  net::awaitable<error_code> read_request(http::request_parser<http::string_body>& parser);
  Answer route(const HttpRequest& request);
  bool pump(PendingReply& pending, PendingReply::State* state, std::string* events);
  bool gather(Stream& stream);
  bool flush(Stream& stream);
  void send_events(Stream& stream);
  net::awaitable<bool> answer(HttpRequest request, Turn turn);
  net::awaitable<bool> answer_later(std::unique_ptr<PendingReply> pending, Turn turn);
  net::awaitable<bool> write_reply(HttpReply reply, Turn turn);
  size_t write_at_once(std::string_view bytes);
  net::awaitable<bool> write(std::string bytes);
  net::awaitable<void> watch_peer(std::shared_ptr<BeastConnection> self, uint64_t turn);
  net::awaitable<void> linger();
  void begin_watch();
  void end_watch();
  void count_response(int status) const {
    if (options_.on_response) options_.on_response(status);
  }

  ConnectionShared& shared_;
  const HttpOptions& options_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;  // outlives each request: it may hold the next one's first bytes
  net::steady_timer poll_timer_;
  std::shared_ptr<WakeSignal> wake_;
  std::optional<Error> failure_;
  uint64_t watch_ = 0;    // which watch is on; another number ends it
  bool idle_ = false;     // waiting for a request's first byte
  bool closing_ = false;  // after this reply
  bool gone_ = false;     // nobody is there to answer
  bool linger_ = false;   // the last reply went out, the client may still be sending
};

net::awaitable<void> BeastConnection::run() {
  error_code ignored;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
  stream_.socket().set_option(net::socket_base::send_buffer_size(options_.send_buffer_bytes), ignored);
  bool keep_alive = true;
  while (keep_alive && !closing_) {
    const bool begun = co_await wait_for_first_byte();
    if (!begun) break;
    keep_alive = co_await serve_one();
  }
  if (linger_ && !gone_) co_await linger();
  stream_.socket().shutdown(net::socket_base::shutdown_both, ignored);
  stream_.close();
}

net::awaitable<bool> BeastConnection::wait_for_first_byte() {
  if (buffer_.size() > 0) {
    // Pipelined. What routes it may take long, and others may wait for what this thread does now.
    co_await net::post(stream_.get_executor(), net::use_awaitable);
    co_return true;
  }
  idle_ = true;
  stream_.expires_after(options_.idle_timeout);
  auto [ec, read] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
  idle_ = false;
  if (ec) co_return false;
  buffer_.commit(read);
  co_return true;
}

net::awaitable<error_code> BeastConnection::read_request(http::request_parser<http::string_body>& parser) {
  stream_.expires_after(options_.header_timeout);
  auto [header_ec, header_bytes] = co_await http::async_read_header(stream_, buffer_, parser, kAwait);
  (void)header_bytes;
  if (header_ec) co_return header_ec;
  const http::request<http::string_body>& head = parser.get();
  if (!knows_transfer_coding(head)) co_return http::error::bad_transfer_encoding;
  const bool continues = head.version() >= 11 && beast::iequals(head[http::field::expect], "100-continue");
  if (continues && !parser.is_done()) {
    std::string interim = "HTTP/1.1 100 Continue\r\n\r\n";
    const bool written = co_await write(std::move(interim));
    if (!written) co_return error_code(net::error::connection_reset);
  }
  stream_.expires_after(options_.body_timeout);
  auto [body_ec, body_bytes] = co_await http::async_read(stream_, buffer_, parser, kAwait);
  (void)body_bytes;
  co_return body_ec;
}

net::awaitable<bool> BeastConnection::serve_one() {
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<uint32_t>(options_.max_header_bytes));
  parser.body_limit(options_.max_body_bytes);
  const error_code ec = co_await read_request(parser);
  if (ec) {
    const std::optional<ApiError> error = refusal(ec, options_);
    if (!error) co_return false;
    // What follows on this connection has no beginning any more.
    // Named, as everywhere beside a co_await: GCC 12 destroys an aggregate's temporary in its expression twice.
    Turn turn{.keep_alive = false, .request_id = random_hex()};
    HttpReply reply = error_reply(*error);
    co_await write_reply(std::move(reply), std::move(turn));
    co_return false;
  }
  http::request<http::string_body> message = parser.release();
  HttpRequest request;
  request.method = to_string(message.method_string());
  request.path = to_string(message.target());
  request.path.resize(std::min(request.path.find_first_of("?#"), request.path.size()));
  if (request.path.starts_with("http://"))
    request.path.erase(0, std::min(request.path.find('/', 7), request.path.size()));
  request.content_type = to_string(message[http::field::content_type]);
  request.content_encoding = to_string(message[http::field::content_encoding]);
  request.authorization = to_string(message[http::field::authorization]);
  request.request_id = to_string(message["X-Request-Id"]);
  request.client_request_id = usable_request_id(request.request_id);
  if (!request.client_request_id) request.request_id = random_hex();
  request.body = std::move(message.body());
  Turn turn{.http_minor = message.version() >= 11 ? 1 : 0,
            .keep_alive = message.keep_alive() && !closing_,
            .head_only = request.method == "HEAD",
            .request_id = request.request_id};
  const ActiveRequest active(shared_.active_requests);
  const bool keep_alive = co_await answer(std::move(request), std::move(turn));
  co_return keep_alive;
}

// The two calls that may throw are kept out of the coroutines, which hold nothing but awaits and plain values.

Answer BeastConnection::route(const HttpRequest& request) {
  try {
    return shared_.router.handle(request, {[wake = wake_] { wake->mark(); }, [wake = wake_] { wake->wake(); }});
  } catch (const std::exception& e) {
    log_error("handler_failed", "method={} path={} error=\"{}\"", request.method, request.path, e.what());
    return error_reply(Error{Errc::kInternal, "internal error", ""});
  }
}

/// Appends to `events`. False when it threw; they are then of no use.
bool BeastConnection::pump(PendingReply& pending, PendingReply::State* state, std::string* events) {
  if (failure_) pending.fail(*failure_);
  try {
    *state = pending.pump(*events);
    return true;
  } catch (const std::exception& e) {
    log_error("reply_failed", "error=\"{}\"", e.what());
    return false;
  }
}

net::awaitable<bool> BeastConnection::answer(HttpRequest request, Turn turn) {
  Answer answer = route(request);
  request.body = std::string();  // an answer may take long; its request's bytes are of no more use
  if (HttpReply* reply = std::get_if<HttpReply>(&answer)) {
    log_debug("request", "method={} path={} status={} id={}", request.method, request.path, reply->status,
              turn.request_id);
    const bool keep_alive = co_await write_reply(std::move(*reply), std::move(turn));
    co_return keep_alive;
  }
  log_debug("request", "method={} path={} id={}", request.method, request.path, turn.request_id);
  begin_watch();
  const bool keep_alive =
      co_await answer_later(std::move(std::get<std::unique_ptr<PendingReply>>(answer)), std::move(turn));
  end_watch();
  co_return keep_alive;
}

bool BeastConnection::gather(Stream& stream) {
  const bool ended = stream.gathered && stream.state != PendingReply::State::kWaiting;
  if (!gone_ && !stream.broken && !ended) stream.broken = !pump(stream.pending, &stream.state, &stream.events);
  stream.gathered = gone_ || stream.broken || !stream.events.empty() || stream.state != PendingReply::State::kWaiting;
  return stream.gathered;
}

bool BeastConnection::flush(Stream& stream) {
  if (!std::exchange(stream.gathered, false)) return false;
  if (gone_ || stream.broken) return true;
  if (!stream.events.empty()) send_events(stream);
  return !stream.unsent.empty() || stream.state != PendingReply::State::kWaiting;
}

void BeastConnection::send_events(Stream& stream) {
  const Turn& turn = stream.turn;
  const bool chunked = turn.http_minor > 0;
  std::string before;
  if (!std::exchange(stream.begun, true)) {
    count_response(200);
    before = stream_head({turn.http_minor, turn.keep_alive && chunked, turn.request_id});
  }
  if (chunked) {
    before += chunk_begin(stream.events.size());
    stream.events += kChunkEnd;
    if (stream.state == PendingReply::State::kStreamed) stream.events += kLastChunk;
  }
  stream.events.insert(0, before);
  stream.unsent += std::string_view(stream.events).substr(write_at_once(stream.events));
  stream.events.clear();
}

net::awaitable<bool> BeastConnection::answer_later(std::unique_ptr<PendingReply> pending, Turn turn) {
  Stream stream(*this, *pending, turn);
  while (true) {
    const bool more = stream.gather() && stream.flush();
    if (!more) co_await wake_->wait(stream);
    if (gone_) break;
    if (stream.broken) {
      if (stream.begun) co_return false;
      HttpReply reply = error_reply(Error{Errc::kInternal, "internal error", ""});
      const bool keep_alive = co_await write_reply(std::move(reply), std::move(turn));
      co_return keep_alive;
    }
    if (!stream.unsent.empty()) {
      std::string rest = std::exchange(stream.unsent, {});
      const bool written = co_await write(std::move(rest));
      if (!written) co_return false;
    }
    if (stream.state == PendingReply::State::kStreamed) {
      linger_ = true;
      const bool keep_alive = turn.keep_alive && turn.http_minor > 0;
      co_return keep_alive;
    }
    if (stream.state == PendingReply::State::kReply) {
      end_watch();
      HttpReply reply = pending->reply();
      const bool keep_alive = co_await write_reply(std::move(reply), std::move(turn));
      co_return keep_alive;
    }
  }
  log_debug("client_left", "id={}", turn.request_id);
  co_return false;
}

net::awaitable<bool> BeastConnection::write_reply(HttpReply reply, Turn turn) {
  count_response(reply.status);
  std::string bytes = reply_head(reply, turn.head());
  if (!turn.head_only) bytes += reply.body;
  reply.body = std::string();
  linger_ = true;
  const bool written = co_await write(std::move(bytes));
  co_return written&& turn.keep_alive;
}

/// What the socket takes at once, as a rule all: no timer, no round through the reactor. An error shows at the next
/// write.
size_t BeastConnection::write_at_once(std::string_view bytes) {
  const ssize_t sent =
      ::send(stream_.socket().native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent > 0 ? static_cast<size_t>(sent) : 0;
}

/// The time limit starts anew whenever the client has taken some bytes.
net::awaitable<bool> BeastConnection::write(std::string bytes) {
  for (size_t sent = write_at_once(bytes); sent < bytes.size();) {
    stream_.expires_after(options_.write_timeout);
    auto [ec, n] = co_await stream_.async_write_some(net::buffer(bytes.data() + sent, bytes.size() - sent), kAwait);
    if (ec) {
      gone_ = true;
      co_return false;
    }
    sent += n;
  }
  co_return true;
}

void BeastConnection::begin_watch() {
  net::co_spawn(stream_.get_executor(), watch_peer(shared_from_this(), ++watch_), net::detached);
}

void BeastConnection::end_watch() {
  ++watch_;
  error_code ignored;
  stream_.socket().cancel(ignored);
  poll_timer_.cancel();
}

net::awaitable<void> BeastConnection::watch_peer(std::shared_ptr<BeastConnection> self, uint64_t watch) {
  while (watch == self->watch_) {
    auto [ec] = co_await stream_.socket().async_wait(net::socket_base::wait_read, kAwait);
    if (watch != watch_) co_return;
    if (ec || peer_left(stream_.socket().native_handle())) {
      gone_ = true;
      stream_.cancel();  // a write that waits for this client
      wake_->notify();
      co_return;
    }
    // There are bytes to read, the next request's: they stay in the socket, and make wait_read useless.
    poll_timer_.expires_after(kPollPeriod);
    auto [timer_ec] = co_await poll_timer_.async_wait(kAwait);
    (void)timer_ec;
  }
}

/// Closing with unread bytes makes the kernel reset the connection, and the client may lose the reply that tells it
/// why.
net::awaitable<void> BeastConnection::linger() {
  error_code ignored;
  stream_.socket().shutdown(net::socket_base::shutdown_send, ignored);
  stream_.expires_after(options_.linger_timeout);
  std::string sink(kReadBytes, '\0');
  for (size_t total = 0; total < kMaxLingerBytes;) {
    auto [ec, read] = co_await stream_.async_read_some(net::buffer(sink), kAwait);
    if (ec) break;
    total += read;
  }
}

}  // namespace

std::shared_ptr<Connection> Connection::create(net::ip::tcp::socket socket, ConnectionShared& shared) {
  return std::make_shared<BeastConnection>(std::move(socket), shared);
}

}  // namespace helios
