#include "coordinator/submission/frame_ledger.h"

#include "common/base/check.h"
#include "coordinator/submission/submission_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace helios {

FrameLedger::FrameLedger(int world_size, const Capabilities& capabilities)
    : world_size_(world_size), capabilities_(capabilities) {}

const FrameInFlight& FrameLedger::begin(const Decision& decision, TimePoint now) {
  HELIOS_CHECK(can_submit() && !decision.empty(), frames_.size());
  if (frames_.empty()) oldest_since_ = now;
  Entry entry;
  FrameInFlight& frame = entry.frame;
  frame.sequence = Sequence(next_sequence_);
  frame.frame = FrameIndex(static_cast<int32_t>((next_sequence_ - 1) % kNumFrames));
  frame.operation = decision.operation;
  frame.submitted = now;
  frame.requested_slots.assign(capabilities_.slot_capacity, false);
  frame.lanes.reserve(decision.lanes.size());
  for (const PlannedLane& lane : decision.lanes) {
    const bool requested = lane_requests_logprobs(lane, capabilities_);
    frame.lanes.push_back(
        {lane.request->id, lane.tenancy, lane.role, lane.start, lane.rows, lane.samples, requested, lane.proposals});
    if (!requested) continue;
    frame.requested_slots[lane.tenancy.slot.value] = true;
    const auto selected = static_cast<int32_t>(lane.request->spec.logprob_token_ids.size());
    frame.width = std::max({frame.width, capabilities_.max_logprobs, selected});
  }
  entry.reported.assign(world_size_, false);
  next_sequence_ += 1;
  frames_.push_back(std::move(entry));
  return frames_.back().frame;
}

Status FrameLedger::check(Rank rank, const Completion& c, const Entry& entry) const {
  const auto differ = [&](std::string_view what, auto found, auto expected) {
    return Error{Errc::kMismatch, fmt::format("rank {}, submission {}: {} is {}, expected {}", rank.value,
                                              c.sequence.value, what, found, expected)};
  };
  if (c.rank != rank) return differ("rank", c.rank.value, rank.value);
  if (c.frame != entry.frame.frame) return differ("frame", c.frame.value, entry.frame.frame.value);
  if (c.token_capacity != capabilities_.token_capacity) {
    return differ("token capacity", c.token_capacity, capabilities_.token_capacity);
  }
  const size_t words = rank.value != 0 ? 0 : entry.frame.lanes.size() * record_words(capabilities_.token_capacity);
  if (c.records.size() != words) return differ("number of record words", c.records.size(), words);
  if (entry.digest && entry.digest->second != c.record_digest) {
    return Error{
        Errc::kMismatch,
        fmt::format("submission {}: ranks {} and {} disagree about the records (digests {:016x} and {:016x})",
                    c.sequence.value, entry.digest->first.value, rank.value, entry.digest->second, c.record_digest)};
  }
  return Ok{};
}

Status FrameLedger::arrived(Rank rank, Completion completion) {
  HELIOS_CHECK(rank.value >= 0 && rank.value < world_size_, rank.value);
  const auto next =
      std::find_if(frames_.begin(), frames_.end(), [&](const Entry& e) { return !e.reported[rank.value]; });
  if (next == frames_.end() || next->frame.sequence != completion.sequence) {
    return Error{Errc::kMismatch,
                 fmt::format("rank {} reports submission {}, expected {}", rank.value, completion.sequence.value,
                             next == frames_.end() ? "none" : std::to_string(next->frame.sequence.value))};
  }
  if (auto status = check(rank, completion, *next); !status) return status;
  next->reported[rank.value] = true;
  next->num_reported += 1;
  if (!next->digest) next->digest.emplace(rank, completion.record_digest);
  if (rank.value == 0) next->from_rank0 = std::move(completion);
  return Ok{};
}

const FrameInFlight* FrameLedger::done() const {
  return !frames_.empty() && frames_.front().num_reported == world_size_ ? &frames_.front().frame : nullptr;
}

const Completion& FrameLedger::completion() const {
  HELIOS_CHECK(done());
  return frames_.front().from_rank0;
}

void FrameLedger::release() {
  HELIOS_CHECK(done());
  frames_.pop_front();
  oldest_since_ = std::chrono::steady_clock::now();
}

std::optional<FrameLedger::TimePoint> FrameLedger::waiting_since() const {
  return frames_.empty() ? std::nullopt : std::optional(oldest_since_);
}

}  // namespace helios
