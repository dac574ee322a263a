// Every rank's socket: one ROUTER, the same submission in the same order to all, whatever they send back decoded.
//
// Knows identities, not ranks: who is a rank of which set is rank_set's business. Thread: engine, construction
// included.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "common/base/result.h"
#include "common/contract/completion.h"
#include "common/contract/control.h"
#include "common/contract/submission.h"
#include "common/net/zmq_socket.h"

namespace helios {

class RankLink {
 public:
  /// Binds `endpoint`, as ZmqSocket::bind, for ranks with the same key if there is one.
  static Result<RankLink> bind(ZmqContext& context, const std::string& endpoint,
                               const std::optional<ClusterKey>& key = std::nullopt);

  /// Resolved: what ranks connect to.
  const std::string& endpoint() const { return endpoint_; }

  /// Errors: kUnavailable (peer gone or its queue full).
  Status send_control(const std::string& identity, const ControlMessage& message);

  /// Encodes once, sends in rank order. Returns the first identity that could not be reached; the ranks before it have
  /// the submission and will wait in its exchanges, so the set is broken then.
  std::optional<size_t> send_submission(std::span<const std::string> identities, const Submission& submission);

  struct Received {
    std::string identity;
    std::variant<ControlMessage, Completion, Error> message;  // Error: what came is no message of ours
  };
  std::optional<Received> try_receive();

  /// Until something can be received, `wake_fd` is written, or the limit has passed.
  void wait(int wake_fd, std::chrono::milliseconds limit);

 private:
  RankLink(ZmqSocket socket, std::string endpoint) : socket_(std::move(socket)), endpoint_(std::move(endpoint)) {}

  ZmqSocket socket_;
  std::string endpoint_;
};

}  // namespace helios
