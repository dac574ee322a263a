#include "worker/rank/rank_loop.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <exception>

#include "common/base/log.h"
#include "worker/rank/readback_loop.h"

namespace helios {
namespace {

using namespace std::chrono_literals;

constexpr auto kIdleTurn = 100ms;
constexpr auto kLookInterval = 200ms;

}  // namespace

RankLoop::RankLoop(Executor& executor, Communicator& group, uint32_t incarnation, CoordinatorLink& link,
                   RankVitals& vitals)
    : executor_(executor),
      group_(group),
      rank_(group.rank()),
      incarnation_(incarnation),
      link_(link),
      vitals_(vitals) {}

std::string RankLoop::out_of_step(const Submission& submission) const {
  if (submission.sequence.value == last_.value + 1) return {};
  return fmt::format("sequence gap: submission {} after {}", submission.sequence.value, last_.value);
}

void RankLoop::look_round() {
  const auto now = RankVitals::Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLookInterval;
  vitals_.publish_counters(executor_.counters());
  group_.check_group();
}

void RankLoop::run() {
  ReadbackLoop readback(
      executor_, rank_, vitals_, [this](const Completion& completion) { link_.send(completion); },
      [this](const std::string& what) { link_.report_fault(what); });
  try {
    while (true) {
      look_round();
      const bool leaving = link_.leave().reason != LeaveReason::kNone;  // asked first: what came before is still there
      const std::optional<Submission> submission = link_.next_submission(kIdleTurn);
      if (!submission && leaving) break;
      if (!submission) continue;
      if (submission->incarnation != incarnation_) {
        const uint64_t count = ++vitals_.submissions_dropped;
        if (std::has_single_bit(count)) {
          log_warning("submission_dropped", "rank={} count={} incarnation={} expected={}", rank_.value, count,
                      submission->incarnation, incarnation_);
        }
        continue;
      }
      if (const std::string trouble = out_of_step(*submission); !trouble.empty()) {
        link_.report_fault(trouble);
        break;
      }
      last_ = submission->sequence;
      vitals_.step_begins(last_);
      if (const Status taken = executor_.submit(*submission); !taken.ok()) {
        link_.report_fault(fmt::format("submission {}: {}", last_.value, taken.error().message));
        break;
      }
      if (!readback.expect({incarnation_, submission->sequence, submission->frame})) {
        link_.report_fault(fmt::format("submission {}: more than {} frames in flight", last_.value, kNumFrames));
        break;
      }
    }
  } catch (const std::exception& error) {
    link_.report_fault(error.what());
  }
  readback.finish();
}

}  // namespace helios
