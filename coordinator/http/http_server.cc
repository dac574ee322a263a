#include "coordinator/http/http_server.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "common/base/log.h"
#include "coordinator/http/connection.h"
#include "coordinator/http/wake_signal.h"

namespace helios {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::ip::tcp;
constexpr auto kAwaitAccept = net::as_tuple(net::use_awaitable);
constexpr std::chrono::milliseconds kAcceptRetry{50};

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions server_options, const Router& router)
      : options(std::move(server_options)),
        shared{options, router, std::make_shared<WakeHub>(io)},
        acceptor(net::make_strand(io)),
        accept_timer(acceptor.get_executor()) {}

  error_code listen();
  net::awaitable<void> accept_loop();
  void serve(tcp::socket socket);
  void for_each(const std::function<void(Connection&)>& action);

  const HttpOptions options;
  net::io_context io;
  ConnectionShared shared;
  net::executor_work_guard<net::io_context::executor_type> work{io.get_executor()};
  tcp::acceptor acceptor;
  net::steady_timer accept_timer;
  uint16_t port = 0;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::condition_variable ended;
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool accepting = true;
  bool stopped = false;
};

error_code HttpServer::Impl::listen() {
  error_code ec;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, ec);
  if (ec) return ec;
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(net::socket_base::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(net::socket_base::max_listen_connections, ec);
  if (!ec) port = acceptor.local_endpoint(ec).port();
  return ec;
}

net::awaitable<void> HttpServer::Impl::accept_loop() {
  while (acceptor.is_open()) {
    size_t open = 0;
    {
      std::lock_guard lock(mutex);
      open = connections.size();
    }
    error_code ec;
    if (open < static_cast<size_t>(options.max_connections)) {
      tcp::socket socket(net::make_strand(io));
      auto [accept_ec] = co_await acceptor.async_accept(socket, kAwaitAccept);
      ec = accept_ec;
      if (!ec) {
        serve(std::move(socket));
        continue;
      }
      if (ec == net::error::operation_aborted) continue;  // stop(), or nothing
      log_warning("accept_failed", "error=\"{}\"", ec.message());
    }
    // Out of connections or descriptors: clients wait in the kernel's queue until some end.
    accept_timer.expires_after(kAcceptRetry);
    auto [timer_ec] = co_await accept_timer.async_wait(kAwaitAccept);
    (void)timer_ec;
  }
}

void HttpServer::Impl::serve(tcp::socket socket) {
  const auto executor = socket.get_executor();
  std::shared_ptr<Connection> connection = Connection::create(std::move(socket), shared);
  {
    std::lock_guard lock(mutex);
    if (!accepting) return;
    connections.insert(connection);
  }
  if (options.on_connections) options.on_connections(1);
  net::co_spawn(executor, connection->run(), [this, connection](std::exception_ptr failure) mutable {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      log_error("connection_failed", "error=\"{}\"", e.what());
    }
    if (options.on_connections) options.on_connections(-1);
    std::lock_guard lock(mutex);
    connections.erase(connection);
    connection.reset();
    ended.notify_all();
  });
}

void HttpServer::Impl::for_each(const std::function<void(Connection&)>& action) {
  std::lock_guard lock(mutex);
  for (const auto& connection : connections) action(*connection);
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpOptions options, const Router& router) {
  auto impl = std::make_unique<Impl>(std::move(options), router);
  if (const error_code ec = impl->listen()) {
    return Error{Errc::kInvalidArgument,
                 fmt::format("cannot listen on {}:{}: {}", impl->options.host, impl->options.port, ec.message()), ""};
  }
  Impl& server = *impl;
  net::co_spawn(server.acceptor.get_executor(), server.accept_loop(), net::detached);
  for (int i = 0; i < server.options.io_threads; ++i) server.threads.emplace_back([&server] { server.io.run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port; }

std::string HttpServer::url() const {
  const std::string& host = impl_->options.host;
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("http://[{}]:{}", host, impl_->port) : fmt::format("http://{}:{}", host, impl_->port);
}

int HttpServer::active_requests() const { return impl_->shared.active_requests.load(); }

void HttpServer::close_after_replies() {
  impl_->for_each([](Connection& connection) { connection.close_after_reply(); });
}

void HttpServer::fail_active(const Error& error) {
  impl_->for_each([&](Connection& connection) { connection.fail_active(error); });
}

void HttpServer::stop() {
  if (impl_->stopped) return;
  impl_->stopped = true;
  net::post(impl_->acceptor.get_executor(), [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->accept_timer.cancel();
  });
  {
    std::unique_lock lock(impl_->mutex);
    impl_->accepting = false;
    for (const auto& connection : impl_->connections) connection->close_now();
    impl_->ended.wait(lock, [&] { return impl_->connections.empty(); });
  }
  impl_->shared.wake_hub->close();
  impl_->work.reset();
  for (std::thread& thread : impl_->threads) thread.join();
}

}  // namespace helios
