// A client over a plain blocking socket: sends exactly the bytes a test says, reads exactly what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

namespace helios::testing {

struct RawResponse {
  int status = 0;                              // 0: the connection ended first
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // chunks joined
  bool complete = false;
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer_bytes > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  /// Closes with a reset instead of a FIN.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  bool send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }

  /// Waits for more bytes; false at the end of the connection, or after 10 s.
  bool read_more() {
    pollfd entry{fd_, POLLIN, 0};
    if (::poll(&entry, 1, 10000) != 1) return false;
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  /// What has been received up to and including `mark`; shorter when the connection ends.
  std::string read_until(const std::string& mark) {
    size_t at;
    while ((at = buffer_.find(mark)) == std::string::npos) {
      if (!read_more()) return std::exchange(buffer_, "");
    }
    std::string out = buffer_.substr(0, at + mark.size());
    buffer_.erase(0, out.size());
    return out;
  }
  /// True when the server closes without sending anything more.
  bool closed_by_server() { return buffer_.empty() && !read_more() && buffer_.empty(); }

  RawResponse read_response(bool head_only = false) {
    RawResponse response;
    const std::string head = read_until("\r\n\r\n");
    if (!head.ends_with("\r\n\r\n") || head.size() < 12) return response;
    response.status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      if (colon == std::string::npos || colon > end) break;
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      response.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (head_only || response.status == 204) {
      response.complete = true;
    } else if (response.headers.contains("content-length")) {
      response.complete =
          read_exactly(std::strtoull(response.headers["content-length"].c_str(), nullptr, 10), &response.body);
    } else if (response.headers.contains("transfer-encoding")) {
      response.complete = read_chunks(&response.body);
    } else {
      while (read_more()) {
      }
      response.body = std::exchange(buffer_, "");
      response.complete = true;
    }
    return response;
  }
  RawResponse request(const std::string& bytes) {
    send(bytes);
    return read_response();
  }

 private:
  bool read_exactly(size_t size, std::string* out) {
    while (buffer_.size() < size) {
      if (!read_more()) break;
    }
    *out += buffer_.substr(0, size);
    const bool whole = buffer_.size() >= size;
    buffer_.erase(0, size);
    return whole;
  }
  bool read_chunks(std::string* out) {
    for (;;) {
      const std::string line = read_until("\r\n");
      if (!line.ends_with("\r\n")) return false;
      const size_t size = std::strtoull(line.c_str(), nullptr, 16);
      if (!read_exactly(size, out)) return false;
      if (read_until("\r\n") != "\r\n") return false;
      if (size == 0) return true;
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string buffer_;
};

inline std::string get(const std::string& path, const std::string& headers = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
  return "POST " + path +
         " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

}  // namespace helios::testing
