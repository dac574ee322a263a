#include "worker/rank/readback_loop.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

namespace helios {

ReadbackLoop::ReadbackLoop(Executor& executor, Rank rank, RankVitals& vitals,
                           std::function<void(const Completion&)> publish, std::function<void(const std::string&)> fail)
    : executor_(executor),
      rank_(rank),
      vitals_(vitals),
      publish_(std::move(publish)),
      fail_(std::move(fail)),
      in_flight_(kNumFrames) {
  thread_ = std::thread([this] { run(); });
}

ReadbackLoop::~ReadbackLoop() { finish(); }

bool ReadbackLoop::expect(InFlight in_flight) { return in_flight_.push(std::move(in_flight)); }

void ReadbackLoop::finish() {
  in_flight_.close();
  if (thread_.joinable()) thread_.join();
}

std::string ReadbackLoop::mismatch(const InFlight& expected, const Completion& completion) const {
  const auto differs = [](const char* what, auto wanted, auto found) {
    return fmt::format("the executor completed {} {}, expected {}", what, found, wanted);
  };
  if (completion.sequence != expected.sequence) {
    return differs("sequence", expected.sequence.value, completion.sequence.value);
  }
  if (completion.frame != expected.frame) return differs("frame", expected.frame.value, completion.frame.value);
  if (completion.rank != rank_) return differs("rank", rank_.value, completion.rank.value);
  return {};
}

void ReadbackLoop::run() {
  try {
    while (const std::optional<InFlight> next = in_flight_.pop()) {
      Completion completion = executor_.collect();
      completion.incarnation = next->incarnation;
      if (std::string what = mismatch(*next, completion); !what.empty()) return fail_(what);
      vitals_.step_ends();
      publish_(completion);
    }
  } catch (const std::exception& error) {
    fail_(error.what());
  }
}

}  // namespace helios
