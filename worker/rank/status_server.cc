#include "worker/rank/status_server.h"

#include <fmt/format.h>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/as_tuple.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include <thread>
#include <utility>

#include "common/base/log.h"

namespace helios {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using namespace std::chrono_literals;

constexpr auto kRequestLimit = 5s;
constexpr uint32_t kMaxHeaderBytes = 4096;
constexpr uint64_t kMaxBodyBytes = 1024;
constexpr auto kAcceptPause = 100ms;
constexpr auto kAsTuple = asio::experimental::as_tuple(asio::use_awaitable);

using Response = http::response<http::string_body>;
using Page = std::function<std::optional<StatusPage>(std::string_view)>;

Response make_response(unsigned version, int status, const std::string& type, std::string body) {
  Response response(static_cast<http::status>(status), version);
  response.set(http::field::server, "helios-worker");
  response.set(http::field::content_type, type);
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

Response answer(const http::request<http::string_body>& request, const Page& page) {
  constexpr const char* kPlain = "text/plain; charset=utf-8";
  const std::string_view target(request.target().data(), request.target().size());
  std::optional<StatusPage> found = page(target.substr(0, target.find('?')));
  if (!found) return make_response(request.version(), 404, kPlain, "no such page: try /livez, /readyz or /metrics\n");
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Response refused = make_response(request.version(), 405, kPlain, "only GET and HEAD\n");
    refused.set(http::field::allow, "GET, HEAD");
    return refused;
  }
  Response response = make_response(request.version(), found->status, found->content_type, std::move(found->body));
  if (request.method() == http::verb::head) response.body().clear();  // the length stays the page's
  return response;
}

}  // namespace

struct StatusServer::Impl {
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  Page page;
  int connections = 0;
  std::thread thread;

  /// One request a connection: probes and scrapers come seldom, and a bound on requests is a bound on memory.
  asio::awaitable<void> serve(tcp::socket socket) {
    beast::tcp_stream stream(std::move(socket));
    stream.expires_after(kRequestLimit);
    beast::flat_static_buffer<kMaxHeaderBytes + kMaxBodyBytes> buffer;
    http::request_parser<http::string_body> parser;
    parser.header_limit(kMaxHeaderBytes);
    parser.body_limit(kMaxBodyBytes);
    auto [read_error, read_bytes] = co_await http::async_read(stream, buffer, parser, kAsTuple);
    (void)read_bytes;
    if (!read_error) {
      const http::request<http::string_body> request = parser.release();
      const Response response = answer(request, page);
      auto [write_error, written] = co_await http::async_write(stream, response, kAsTuple);
      (void)write_error, (void)written;  // the client left: its loss
    } else if (read_error != http::error::end_of_stream && read_error != beast::error::timeout) {
      const Response response = make_response(11, 400, "text/plain; charset=utf-8", read_error.message() + "\n");
      auto [write_error, written] = co_await http::async_write(stream, response, kAsTuple);
      (void)write_error, (void)written;
    }
    beast::error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    --connections;
  }

  asio::awaitable<void> accept_all() {
    asio::steady_timer pause(io);
    while (true) {
      auto [error, socket] = co_await acceptor.async_accept(kAsTuple);
      if (error == asio::error::operation_aborted) co_return;
      if (error) {  // out of descriptors: some will be free soon
        pause.expires_after(kAcceptPause);
        auto [waited] = co_await pause.async_wait(kAsTuple);
        (void)waited;
        continue;
      }
      if (connections >= kMaxConnections) continue;  // a crowd: this one is closed
      ++connections;
      asio::co_spawn(io, serve(std::move(socket)), asio::detached);
    }
  }
};

Result<std::unique_ptr<StatusServer>> StatusServer::start(const std::string& host, uint16_t port, Page page) {
  auto impl = std::make_unique<Impl>();
  impl->page = std::move(page);
  boost::system::error_code error;
  const auto failed = [&](const char* what) {
    return Error{Errc::kUnavailable,
                 fmt::format("status server: cannot {} {}:{}: {}", what, host, port, error.message())};
  };
  const auto found = tcp::resolver(impl->io).resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) return failed("resolve");
  const tcp::endpoint endpoint = *found.begin();
  if (impl->acceptor.open(endpoint.protocol(), error)) return failed("open");
  if (impl->acceptor.set_option(tcp::acceptor::reuse_address(true), error)) return failed("open");
  if (impl->acceptor.bind(endpoint, error)) return failed("bind");
  if (impl->acceptor.listen(tcp::acceptor::max_listen_connections, error)) return failed("listen on");
  asio::co_spawn(impl->io, impl->accept_all(), asio::detached);
  impl->thread = std::thread([raw = impl.get()] { raw->io.run(); });
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(impl)));
}

StatusServer::StatusServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusServer::~StatusServer() {
  impl_->io.stop();
  impl_->thread.join();
}

uint16_t StatusServer::port() const { return impl_->acceptor.local_endpoint().port(); }

}  // namespace helios
