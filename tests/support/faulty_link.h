// A bad network between a coordinator and its ranks: real sockets on both sides, and a seeded plan of what it does to
// messages.
//
// Ranks connect to endpoint() and the link carries their messages on under their own identities, so that neither side
// knows of it. Whether a message is dropped, delayed, overtaken by the next one, damaged or doubled depends on the
// seed, the rank, the direction and the message's number alone: a seed that fails can be run again. One thread of its
// own.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/net/zmq_socket.h"
#include "common/wire/codec.h"

namespace helios::testing {

/// Chance of each, per message; the rest passes.
struct LinkPlan {
  uint64_t seed = 0;
  double drop = 0.0, delay = 0.0, reorder = 0.0, corrupt = 0.0, duplicate = 0.0;
  bool to_ranks = true, to_coordinator = true;
  bool control = false;  // hellos, heartbeats, faults and the like too, not only submissions and completions
  int most = 1 << 30;    // faults, then everything passes
  std::chrono::milliseconds longest_delay{40};

  /// Every fault with the same chance; of three seeds one spares the ranks and one the coordinator.
  static LinkPlan of_everything(uint64_t seed, double share) {
    return {.seed = seed,
            .drop = share,
            .delay = share,
            .reorder = share,
            .corrupt = share,
            .duplicate = share,
            .to_ranks = seed % 3 != 0,
            .to_coordinator = seed % 3 != 1,
            .longest_delay = std::chrono::milliseconds(20)};
  }
};

class FaultyLink {
 public:
  struct Counts {
    std::atomic<int> passed{0}, dropped{0}, delayed{0}, reordered{0}, corrupted{0}, duplicated{0};
    int faults() const { return dropped + delayed + reordered + corrupted + duplicated; }
  };

  explicit FaultyLink(std::string coordinator_endpoint) : coordinator_(std::move(coordinator_endpoint)) {
    static std::atomic<int> next{0};
    endpoint_ = "ipc:///tmp/helios-faulty-link-" + std::to_string(::getpid()) + "-" + std::to_string(next++);
    std::promise<void> bound;
    thread_ = std::thread([this, &bound] { run(bound); });
    bound.get_future().wait();
  }
  ~FaultyLink() {
    stop_ = true;
    thread_.join();
  }

  /// Where ranks connect.
  const std::string& endpoint() const { return endpoint_; }
  /// From the next message on. A plan without chances is a good network.
  void set_plan(const LinkPlan& plan) {
    std::lock_guard lock(mutex_);
    plan_ = plan;
    num_faults_ = 0;
  }
  const Counts& counts() const { return counts_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Frames = std::vector<std::string>;
  enum class Way { kToCoordinator, kToRank };

  struct Held {
    Clock::time_point due;
    Frames frames;
  };
  /// One rank and one direction: what is on its way, in the order in which it will arrive. A delay holds up the lane.
  struct Lane {
    std::deque<Held> queue;
    std::optional<Held> overtaken;  // waits until the next message has passed it
    uint64_t number = 0;
  };
  struct Peer {
    ZmqSocket to_coordinator;
    std::array<Lane, 2> lanes;
    explicit Peer(ZmqSocket socket) : to_coordinator(std::move(socket)) {}
  };

  void run(std::promise<void>& bound) {
    ZmqContext context;
    ZmqSocket ranks = ZmqSocket::router(context);
    (void)ranks.bind(endpoint_).value();
    bound.set_value();
    std::map<std::string, std::unique_ptr<Peer>> peers;
    while (!stop_) {
      std::vector<ZmqSocket*> sockets{&ranks};
      for (auto& [identity, peer] : peers) sockets.push_back(&peer->to_coordinator);
      zmq_wait(sockets, -1, std::chrono::milliseconds(2));
      while (auto message = ranks.try_receive()) {
        std::unique_ptr<Peer>& peer = peers[message->identity];
        if (!peer) {
          peer = std::make_unique<Peer>(ZmqSocket::dealer(context, message->identity));
          (void)peer->to_coordinator.connect(coordinator_);
        }
        enter(message->identity, *peer, Way::kToCoordinator, std::move(message->frames));
      }
      for (auto& [identity, peer] : peers) {
        while (auto message = peer->to_coordinator.try_receive()) {
          enter(identity, *peer, Way::kToRank, std::move(message->frames));
        }
      }
      // A rank that has gone takes its connection to the coordinator with it, as its own would have.
      std::erase_if(peers, [&](auto& entry) { return !move_on(ranks, entry.first, *entry.second); });
    }
  }

  void enter(const std::string& identity, Peer& peer, Way way, Frames frames) {
    std::lock_guard lock(mutex_);
    const LinkPlan& plan = plan_;
    Lane& lane = peer.lanes[static_cast<size_t>(way)];
    const uint64_t salt =
        std::hash<std::string>()(identity.substr(0, identity.rfind('-'))) * 2 + static_cast<uint64_t>(way);
    std::mt19937_64 random(plan.seed * 0x9e3779b97f4a7c15u ^ salt ^ (lane.number++ << 20));
    const bool control = !frames.empty() && frames[0] == std::string(1, static_cast<char>(MessageKind::kControl));
    const bool covered = num_faults_ < plan.most && (plan.control || !control) &&
                         (way == Way::kToRank ? plan.to_ranks : plan.to_coordinator);
    double chance = covered ? std::uniform_real_distribution<double>(0.0, 1.0)(random) : 2.0;
    const auto happens = [&](double share) {
      const bool yes = chance >= 0.0 && (chance -= share) < 0.0;
      num_faults_ += yes ? 1 : 0;
      return yes;
    };
    const auto now = Clock::now();
    auto due = now;
    if (happens(plan.drop)) {
      ++counts_.dropped;
      return;
    }
    if (!lane.overtaken && happens(plan.reorder)) {
      ++counts_.reordered;
      lane.overtaken = Held{now + plan.longest_delay, std::move(frames)};
      return;
    }
    if (happens(plan.delay)) {
      ++counts_.delayed;
      due += std::chrono::milliseconds(std::uniform_int_distribution<int64_t>(1, plan.longest_delay.count())(random));
    } else if (happens(plan.corrupt)) {
      ++counts_.corrupted;
      damage(frames, random);
    } else if (happens(plan.duplicate)) {
      ++counts_.duplicated;
      lane.queue.push_back({due, frames});
    } else {
      ++counts_.passed;
    }
    lane.queue.push_back({due, std::move(frames)});
    if (lane.overtaken) lane.queue.push_back(*std::exchange(lane.overtaken, std::nullopt));
  }

  /// Flipped bits, a part that is missing, or bytes that nobody sent; in the message, seldom in its kind.
  static void damage(Frames& frames, std::mt19937_64& random) {
    const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
    std::string& bytes = frames[frames.size() > 1 && below(16) > 0 ? 1 : 0];
    if (bytes.empty()) return frames.push_back("x");
    switch (below(4)) {
      case 0:
        bytes.resize(below(bytes.size()));
        break;
      case 1:
        bytes.append(8 * (1 + below(4)), static_cast<char>(below(256)));
        break;
      default:
        for (size_t n = 1 + below(8); n > 0; --n) {
          const size_t bit = below(bytes.size() * 8);
          bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
        }
    }
  }

  /// False when the rank is gone.
  bool move_on(ZmqSocket& ranks, const std::string& identity, Peer& peer) {
    const auto now = Clock::now();
    for (Lane& lane : peer.lanes) {
      if (lane.overtaken && lane.overtaken->due <= now)
        lane.queue.push_back(*std::exchange(lane.overtaken, std::nullopt));
    }
    std::deque<Held>& up = peer.lanes[static_cast<size_t>(Way::kToCoordinator)].queue;
    while (!up.empty() && up.front().due <= now && peer.to_coordinator.send("", up.front().frames)) {
      up.pop_front();  // else it is not connected yet
    }
    std::deque<Held>& down = peer.lanes[static_cast<size_t>(Way::kToRank)].queue;
    for (; !down.empty() && down.front().due <= now; down.pop_front()) {
      if (!ranks.send(identity, down.front().frames)) return false;
    }
    return true;
  }

  const std::string coordinator_;
  std::string endpoint_;
  std::mutex mutex_;
  LinkPlan plan_;
  Counts counts_;
  int num_faults_ = 0;  // since the plan was set
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace helios::testing
