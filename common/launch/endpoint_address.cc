// The two questions about endpoints that need the resolver.
#include <cerrno>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/launch/launch_env.h"

namespace helios {
namespace {

struct TcpEndpoint {
  std::string host;  // without brackets
  std::string port;
};

// Unset for other transports.
Result<std::optional<TcpEndpoint>> parse_tcp(const std::string& endpoint) {
  if (!endpoint.starts_with("tcp://")) {
    if (endpoint.starts_with("ipc://")) return std::optional<TcpEndpoint>();
    return Error{Errc::kInvalidArgument, fmt::format("\"{}\": expected tcp://HOST:PORT or ipc://PATH", endpoint), ""};
  }
  const std::string rest = endpoint.substr(6);
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == rest.size()) {
    return Error{Errc::kInvalidArgument, fmt::format("\"{}\": expected tcp://HOST:PORT", endpoint), ""};
  }
  TcpEndpoint parts{rest.substr(0, colon), rest.substr(colon + 1)};
  if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  return std::optional(parts);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// IPv4 first: a coordinator that binds one family should not be looked for in the other.
Result<AddressList> look_up(const TcpEndpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  int error = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    hints.ai_family = family;
    addrinfo* found = nullptr;
    error = ::getaddrinfo(endpoint.host.c_str(), endpoint.port == "*" ? "0" : endpoint.port.c_str(), &hints, &found);
    if (error == 0) return AddressList(found, &::freeaddrinfo);
  }
  return Error{Errc::kInvalidArgument, fmt::format("host \"{}\": {}", endpoint.host, ::gai_strerror(error)), ""};
}

std::string print_address(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = address->sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  ::inet_ntop(address->sa_family, bytes, text, sizeof text);
  return text;
}

}  // namespace

Result<std::string> bind_endpoint(const std::string& endpoint) {
  Result<std::optional<TcpEndpoint>> parsed = parse_tcp(endpoint);
  if (!parsed) return parsed.error();
  if (!*parsed || (*parsed)->host == "*") return endpoint;
  Result<AddressList> found = look_up(**parsed);
  if (!found) return found.error();
  const sockaddr* address = (*found)->ai_addr;
  const std::string text = print_address(address);
  const bool brackets = address->sa_family == AF_INET6;
  return fmt::format("tcp://{}:{}", brackets ? "[" + text + "]" : text, (*parsed)->port);
}

Result<std::string> local_address_towards(const std::string& endpoint) {
  Result<std::optional<TcpEndpoint>> parsed = parse_tcp(endpoint);
  if (!parsed) return parsed.error();
  if (!*parsed) return std::string("127.0.0.1");
  Result<AddressList> found = look_up(**parsed);
  if (!found) return found.error();
  const addrinfo& target = **found;
  // Connecting a datagram socket sends nothing; it only makes the kernel choose the route and so the address.
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error{Errc::kInternal, fmt::format("socket: {}", std::strerror(errno)), ""};
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  const bool good = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                    ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  const int error = errno;
  ::close(fd);
  if (!good) return Error{Errc::kUnavailable, fmt::format("no route to {}: {}", endpoint, std::strerror(error)), ""};
  return print_address(reinterpret_cast<const sockaddr*>(&local));
}

}  // namespace helios
