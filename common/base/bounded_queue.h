// The one queue between threads: bounded, closable, and honest about being full.
//
// push() never blocks: a full queue is backpressure, which the caller reports. pop() waits until there is a value, the
// deadline passes, or the queue is closed and drained. Any number of producers and consumers. It outlives all calls: a
// push() goes on for a moment when its value has been popped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace helios {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  /// False when full or closed; the value is then left untouched.
  bool push(T&& value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  /// Empty when the queue is closed and drained.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  /// Empty at the time limit, or when the queue is closed and drained.
  std::optional<T> pop_for(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, limit, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  /// Refuses further values; what is queued can still be popped.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  size_t capacity() const { return capacity_; }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace helios
