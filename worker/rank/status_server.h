// A small HTTP server for a rank's status pages: bounded in connections, request size and time, on its own thread.
//
// Never behind the rank or the link thread: a probe is answered also when both are stuck, which is when it matters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/rank/status_pages.h"

namespace helios {

class StatusServer {
 public:
  static constexpr int kMaxConnections = 16;

  /// `page` answers a path, or nothing for 404; called on the server's thread. `port` 0: the kernel picks.
  /// Errors: kUnavailable (address in use or not ours).
  static Result<std::unique_ptr<StatusServer>> start(const std::string& host, uint16_t port,
                                                     std::function<std::optional<StatusPage>(std::string_view)> page);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  /// The port that was bound.
  uint16_t port() const;

 private:
  struct Impl;
  explicit StatusServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace helios
