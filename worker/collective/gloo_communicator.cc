#include "worker/collective/gloo_communicator.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include "common/base/check.h"

namespace helios {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFarewellLimit{1000};
constexpr std::chrono::hours kForever{24 * 365 * 10};

// Gloo's messages begin with its own source place, "[/path/file.cc:123] ".
std::string plain_message(const std::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return !text.empty() && text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

// Gloo's store interface over the two hooks. Values become hexadecimal: the hooks carry text.
class HookStore final : public gloo::rendezvous::Store {
 public:
  explicit HookStore(const CommunicatorConfig& config) : config_(config) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    std::string hex;
    for (const char c : data) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    config_.store_set(full_key(key), hex);
  }

  std::vector<char> get(const std::string& key) override {
    wait({key});
    return values_.at(key);
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      if (!values_.contains(key)) values_[key] = parse(key, config_.store_get(full_key(key)));
    }
  }

 private:
  std::string full_key(const std::string& key) const { return fmt::format("gloo/{}/{}", config_.group_key, key); }

  static std::vector<char> parse(const std::string& key, const std::string& hex) {
    std::vector<char> data;
    for (size_t i = 0; i < hex.size(); i += 2) {
      const size_t high = kDigits.find(hex[i]);
      const size_t low = i + 1 < hex.size() ? kDigits.find(hex[i + 1]) : std::string_view::npos;
      if (high == std::string_view::npos || low == std::string_view::npos) {
        throw CollectiveError(fmt::format("the store's value for gloo address \"{}\" is not hexadecimal", key));
      }
      data.push_back(static_cast<char>(high * 16 + low));
    }
    return data;
  }

  static constexpr std::string_view kDigits = "0123456789abcdef";
  const CommunicatorConfig& config_;
  std::map<std::string, std::vector<char>> values_;
};

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const CommunicatorConfig& config)
      : rank_(config.rank),
        timeout_(config.timeout),
        context_(std::make_shared<gloo::rendezvous::Context>(config.rank.value, config.world_size)) {
    gloo::transport::tcp::attr attributes(config.host_name.c_str());
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    context_->setTimeout(timeout_);
    HookStore store(config);
    context_->connectFullMesh(store, device);
    watch_connections();
  }

  ~GlooCommunicator() override {
    try {
      if (!broken_.load()) exchange({}, {}, Kind::kFarewell, std::min(timeout_, kFarewellLimit));
    } catch (const CollectiveError&) {
      // A peer goes on without this rank: it will see the closed connection.
    }
    watched_->abortWaitRecv();
    watcher_.join();
  }

  Rank rank() const override { return rank_; }
  int world_size() const override { return context_->size; }

  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override {
    const size_t world = static_cast<size_t>(world_size());
    if (in.empty()) {
      exchange({}, {}, Kind::kEmpty, timeout_);  // the ranks stay in step
    } else if (rank_stride == in.size()) {
      exchange(in, {out, in.size() * world}, Kind::kPayload, timeout_);
    } else {  // Gloo gathers side by side
      if (gathered_.size() < in.size() * world) gathered_.resize(in.size() * world);
      exchange(in, {gathered_.data(), in.size() * world}, Kind::kPayload, timeout_);
      for (size_t r = 0; r < world; ++r)
        std::memcpy(out + r * rank_stride, gathered_.data() + r * in.size(), in.size());
    }
  }

  void barrier() override { exchange({}, {}, Kind::kBarrier, timeout_); }

  void abort(const std::string& reason) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (broken_.load()) return;
      reason_ = reason;
      broken_.store(true);
      if (sending_) sending_->abortWaitSend();
      if (receiving_) receiving_->abortWaitRecv();
    } catch (...) {
      // Only an allocation for the text can fail; the group is broken all the same.
      broken_.store(true);
    }
    close_connections();
  }

 private:
  enum class Kind : uint64_t { kPayload, kEmpty, kBarrier, kFarewell, kWatch };

  // An exchange notices a closed connection only if it still expects something from that peer. So one byte that never
  // comes is expected from every peer all the time, and a thread waits for it: when any connection closes, this rank
  // leaves its exchange and closes its own, and so the whole group hears of it.
  void watch_connections() {
    watched_bytes_.resize(world_size());
    watched_ = context_->createUnboundBuffer(watched_bytes_.data(), watched_bytes_.size());
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer != rank_.value) watched_->recv(peer, make_slot(Kind::kWatch, 0, 1), peer, 1);
    }
    watcher_ = std::thread([this] {
      try {
        watched_->waitRecv(nullptr, kForever);
      } catch (const std::exception& error) {
        // At its own time limit Gloo fails everything, this wait included; then the exchange says who is missing.
        if (!is_past_limit()) abort(fmt::format("gloo: {}", plain_message(error)));
      }
    });
  }

  bool is_past_limit() {
    const std::lock_guard lock(mutex_);
    return receiving_ && Clock::now() >= deadline_;
  }

  // Messages meet by slot, so exchanges of different kind or size never mix: 3 bits kind, 23 bits counter, 38 bits
  // size.
  static uint64_t make_slot(Kind kind, uint64_t count, size_t bytes) {
    return static_cast<uint64_t>(kind) << 61 | (count & 0x7fffff) << 38 | (bytes & 0x3fffffffff);
  }

  void exchange(std::span<const std::byte> in, std::span<std::byte> out, Kind kind, std::chrono::milliseconds limit) {
    const int world = world_size();
    // Without a payload one byte travels, since nothing would mean nothing to wait for.
    std::byte token{1};
    std::vector<std::byte> tokens;
    if (kind != Kind::kPayload) {
      tokens.resize(world);
      in = {&token, 1};
      out = tokens;
    }
    const size_t bytes = in.size();
    std::vector<bool> arrived(world, false);
    arrived[rank_.value] = true;
    const Clock::time_point deadline = Clock::now() + limit;
    // Gloo takes a pointer to non-const for both directions; it only reads what is sent.
    auto sending = context_->createUnboundBuffer(const_cast<std::byte*>(in.data()), bytes);
    auto receiving = context_->createUnboundBuffer(out.data(), out.size());
    const CurrentBuffers current(*this, sending.get(), receiving.get(), deadline);
    try {
      const uint64_t slot = make_slot(kind, ++count_, bytes);
      for (int step = 1; step < world; ++step) {
        const int peer = (rank_.value + step) % world;
        receiving->recv(peer, slot, peer * bytes, bytes);
        sending->send(peer, slot, 0, bytes);
      }
      if (std::byte* own = out.data() + rank_.value * bytes; own != in.data()) std::memcpy(own, in.data(), bytes);
      for (int step = 1; step < world; ++step) {
        int source = -1;
        if (!receiving->waitRecv(&source, left_until(deadline))) fail("the group was aborted");
        arrived.at(source) = true;
      }
      for (int step = 1; step < world; ++step) {
        if (!sending->waitSend(left_until(deadline))) fail("the group was aborted");
      }
    } catch (const CollectiveError&) {
      throw;
    } catch (const std::exception& error) {
      const std::string missing = missing_ranks(arrived);
      if (Clock::now() >= deadline) fail(fmt::format("{} did not come within {} ms", missing, limit.count()));
      fail(fmt::format("gloo: {} while waiting for {}", plain_message(error), missing));
    }
  }

  // Shows abort() which buffers a call waits on; it may come from another thread at any time.
  struct CurrentBuffers {
    CurrentBuffers(GlooCommunicator& communicator, gloo::transport::UnboundBuffer* sending,
                   gloo::transport::UnboundBuffer* receiving, Clock::time_point deadline)
        : owner(communicator) {
      const std::lock_guard lock(owner.mutex_);
      if (owner.broken_.load()) throw CollectiveError(owner.reason_);
      owner.sending_ = sending;
      owner.receiving_ = receiving;
      owner.deadline_ = deadline;
    }
    ~CurrentBuffers() {
      const std::lock_guard lock(owner.mutex_);
      owner.sending_ = owner.receiving_ = nullptr;
    }
    GlooCommunicator& owner;
  };

  static std::chrono::milliseconds left_until(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return std::max(left, std::chrono::milliseconds(1));  // 0 would mean Gloo's own default
  }

  static std::string missing_ranks(const std::vector<bool>& arrived) {
    std::string list;
    int count = 0;
    for (size_t peer = 0; peer < arrived.size(); ++peer) {
      if (!arrived[peer]) list += fmt::format("{}{}", count++ ? ", " : "", peer);
    }
    if (count == 0) return "a rank";  // all sent theirs, one does not take ours
    return (count == 1 ? "rank " : "ranks ") + list;
  }

  // Breaks the group; the first reason stays.
  [[noreturn]] void fail(const std::string& reason) {
    std::string first;
    {
      const std::lock_guard lock(mutex_);
      if (!broken_.load()) reason_ = reason;
      broken_.store(true);
      first = reason_;
    }
    close_connections();
    throw CollectiveError(first);
  }

  // Peers that wait for this rank see their connection close.
  void close_connections() noexcept {
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // A pair that had failed already.
    }
  }

  const Rank rank_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  uint64_t count_ = 0;

  std::vector<std::byte> gathered_;  // of an exchange whose parts do not lie side by side
  std::vector<std::byte> watched_bytes_;
  std::unique_ptr<gloo::transport::UnboundBuffer> watched_;
  std::thread watcher_;

  std::mutex mutex_;  // for the fields below; never held while waiting
  std::atomic<bool> broken_{false};
  std::string reason_ = "the group was aborted";
  gloo::transport::UnboundBuffer* sending_ = nullptr;
  gloo::transport::UnboundBuffer* receiving_ = nullptr;
  Clock::time_point deadline_;
};

}  // namespace

std::unique_ptr<Communicator> join_gloo(const CommunicatorConfig& config) {
  if (config.host_name.empty()) throw CollectiveError("gloo needs this host's name or address: host_name is empty");
  if (!config.store_set || !config.store_get) throw CollectiveError("gloo needs both store hooks");
  // Gloo writes to sockets that a peer may have closed, without MSG_NOSIGNAL.
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_ERR) throw CollectiveError("cannot ignore SIGPIPE");
  try {
    return std::make_unique<GlooCommunicator>(config);
  } catch (const CollectiveError&) {
    throw;
  } catch (const std::exception& error) {
    throw CollectiveError(fmt::format("rank {} cannot join over gloo as \"{}\": {}", config.rank.value,
                                      config.host_name, plain_message(error)));
  }
}

}  // namespace helios
