// A coordinator's end of the conversation for tests of a rank: a real ROUTER socket on its own thread that echoes
// heartbeats and keeps the bootstrap store, and leaves everything else to the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/net/wake_event.h"
#include "common/net/zmq_socket.h"
#include "common/wire/codec.h"

namespace helios::testing {

using namespace std::chrono_literals;

inline constexpr auto kPatience = 60s;  // reached only by a failing test

inline std::string fresh_ipc_endpoint() {
  static std::atomic<int> next{0};
  return "ipc:///tmp/helios-rank-test-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

struct FromRank {
  std::string identity;
  std::variant<ControlMessage, Completion> message;
};

class TestCoordinator {
 public:
  explicit TestCoordinator(const std::string& endpoint = "tcp://127.0.0.1:0") : received_(100000) {
    std::promise<std::string> bound;
    std::future<std::string> endpoint_bound = bound.get_future();
    thread_ = std::thread([this, endpoint, bound = std::move(bound)]() mutable {
      ZmqContext context;
      ZmqSocket socket = ZmqSocket::router(context);
      bound.set_value(socket.bind(endpoint).value());
      while (!stop_) turn(socket);
    });
    endpoint_ = endpoint_bound.get();
  }
  ~TestCoordinator() {
    stop_ = true;
    wake_.notify();
    thread_.join();
  }

  const std::string& endpoint() const { return endpoint_; }
  /// From now on the ranks hear nothing any more, though the socket lives.
  void fall_silent() { silent_ = true; }

  void send(const std::string& identity, const ControlMessage& message) {
    send_frames(identity, MessageKind::kControl, encode_control(message));
  }
  void send(const std::string& identity, const Submission& submission) {
    send_frames(identity, MessageKind::kSubmission, encode_submission(submission));
  }
  void send_raw(const std::string& identity, std::vector<std::string> frames) {
    std::lock_guard lock(mutex_);
    outgoing_.push_back({identity, std::move(frames)});
    wake_.notify();
  }

  /// The next message that `wanted` takes; others are passed over. Fails the test when none comes.
  FromRank expect(const char* what, const std::function<bool(const FromRank&)>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      std::optional<FromRank> next = received_.pop_for(100ms);
      if (next && wanted(*next)) return *std::move(next);
    }
    ADD_FAILURE() << "no " << what << " came";
    throw std::runtime_error("gave up waiting");
  }
  template <class Message>
  std::pair<std::string, Message> expect_control(const std::function<bool(const Message&)>& wanted = {}) {
    FromRank found = expect(typeid(Message).name(), [&](const FromRank& from) {
      const auto* control = std::get_if<ControlMessage>(&from.message);
      const auto* message = control ? std::get_if<Message>(control) : nullptr;
      return message && (!wanted || wanted(*message));
    });
    return {found.identity, std::get<Message>(std::get<ControlMessage>(found.message))};
  }
  Completion expect_completion() {
    return std::get<Completion>(expect("completion", [](const FromRank& from) {
                                  return std::holds_alternative<Completion>(from.message);
                                }).message);
  }

 private:
  void send_frames(const std::string& identity, MessageKind kind, std::string bytes) {
    send_raw(identity, {std::string(1, static_cast<char>(kind)), std::move(bytes)});
  }

  void turn(ZmqSocket& socket) {
    ZmqSocket* const sockets[] = {&socket};
    zmq_wait(sockets, wake_.fd(), 50ms);
    {
      std::lock_guard lock(mutex_);
      for (const auto& [identity, frames] : outgoing_) {
        // A rank that has left cannot be told anything; tests that need it told wait for what it does.
        (void)socket.send(identity, frames);
      }
      outgoing_.clear();
    }
    while (auto message = socket.try_receive()) on_message(socket, *message);
  }

  void on_message(ZmqSocket& socket, const ZmqMessage& message) {
    const auto bytes = std::as_bytes(std::span(message.frames.at(1)));
    if (message.frames[0][0] == static_cast<char>(MessageKind::kCompletion)) {
      received_.push({message.identity, decode_completion(bytes).value()});
      return;
    }
    ControlMessage control = decode_control(bytes).value();
    const auto reply = [&](const ControlMessage& m) {
      const std::array<std::string, 2> frames = {"\x01", encode_control(m)};
      if (!silent_) (void)socket.send(message.identity, frames);
    };
    if (std::holds_alternative<Heartbeat>(control)) reply(control);
    if (const auto* set = std::get_if<StoreSet>(&control)) {
      store_[set->key] = set->value;
      std::erase_if(waiting_, [&](const auto& waiting) {
        if (waiting.second != set->key) return false;
        const std::array<std::string, 2> frames = {"\x01", encode_control(StoreValue{set->key, set->value})};
        (void)socket.send(waiting.first, frames);
        return true;
      });
    }
    if (const auto* get = std::get_if<StoreGet>(&control)) {
      if (const auto it = store_.find(get->key); it != store_.end())
        reply(StoreValue{it->first, it->second});
      else
        waiting_.emplace_back(message.identity, get->key);
    }
    received_.push({message.identity, std::move(control)});
  }

  std::string endpoint_;
  WakeEvent wake_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> silent_{false};
  BoundedQueue<FromRank> received_;
  std::mutex mutex_;
  std::deque<std::pair<std::string, std::vector<std::string>>> outgoing_;
  std::map<std::string, std::string> store_;                  // the thread's own
  std::vector<std::pair<std::string, std::string>> waiting_;  // identity, key
  std::thread thread_;
};

}  // namespace helios::testing
