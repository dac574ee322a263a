#include "coordinator/submission/rank_link.h"

#include "common/wire/codec.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace helios {
namespace {

std::array<std::string, 2> frames_of(MessageKind kind, std::string bytes) {
  return {std::string(1, static_cast<char>(kind)), std::move(bytes)};
}

template <class T>
std::variant<ControlMessage, Completion, Error> either(Result<T> decoded) {
  if (!decoded) return std::move(decoded).error();
  return std::move(decoded).value();
}

std::variant<ControlMessage, Completion, Error> decode(const std::vector<std::string>& frames) {
  if (frames.size() != 2 || frames[0].size() != 1) {
    return Error{Errc::kTruncatedFrame, fmt::format("{} frames, expected a kind byte and a message", frames.size())};
  }
  const auto bytes = std::as_bytes(std::span(frames[1]));
  switch (static_cast<MessageKind>(frames[0][0])) {
    case MessageKind::kControl:
      return either(decode_control(bytes));
    case MessageKind::kCompletion:
      return either(decode_completion(bytes));
    case MessageKind::kSubmission:
      break;  // never towards us
  }
  return Error{Errc::kInvalidArgument, fmt::format("message kind {}, expected control or completion",
                                                   static_cast<int>(static_cast<unsigned char>(frames[0][0])))};
}

}  // namespace

Result<RankLink> RankLink::bind(ZmqContext& context, const std::string& endpoint,
                                const std::optional<ClusterKey>& key) {
  ZmqSocket socket = ZmqSocket::router(context);
  if (key) socket.encrypt(*key);
  auto resolved = socket.bind(endpoint);
  if (!resolved) return resolved.error();
  return RankLink(std::move(socket), *std::move(resolved));
}

Status RankLink::send_control(const std::string& identity, const ControlMessage& message) {
  return socket_.send(identity, frames_of(MessageKind::kControl, encode_control(message)));
}

std::optional<size_t> RankLink::send_submission(std::span<const std::string> identities, const Submission& submission) {
  const auto frames = frames_of(MessageKind::kSubmission, encode_submission(submission));
  for (size_t i = 0; i < identities.size(); ++i) {
    if (!socket_.send(identities[i], frames)) return i;
  }
  return std::nullopt;
}

std::optional<RankLink::Received> RankLink::try_receive() {
  auto message = socket_.try_receive();
  if (!message) return std::nullopt;
  return Received{std::move(message->identity), decode(message->frames)};
}

void RankLink::wait(int wake_fd, std::chrono::milliseconds limit) {
  ZmqSocket* const sockets[] = {&socket_};
  zmq_wait(sockets, wake_fd, limit);
}

}  // namespace helios
