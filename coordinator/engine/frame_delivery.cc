// What a decoded frame brings: records and payloads to token events, to the scheduler, to whoever waits for them.
#include "coordinator/engine/engine_loop.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/log.h"

namespace helios {
namespace {

/// The tokens after one that the mask forbade are nobody's.
void follow_mask(TokenMask& mask, DecodedLane* lane) {
  for (size_t i = 0; i < lane->events.size(); ++i) {
    Status accepted = mask.accept(lane->events[i]);
    if (accepted) continue;
    lane->events.resize(i);
    lane->error = std::move(accepted).error();
    return;
  }
}

}  // namespace

/// True when a frame was decoded.
bool EngineLoop::on_completion(const std::string& identity, Completion completion) {
  const auto rank = ranks_->rank_of(identity);
  if (!rank || !ledger_ || completion.incarnation != ranks_->incarnation()) return false;  // an earlier life
  if (auto arrived = ledger_->arrived(*rank, std::move(completion)); !arrived) {
    ranks_->fail(arrived.error().message, std::nullopt, Clock::now());
    return false;
  }
  bool decoded = false;
  while (const FrameInFlight* frame = ledger_->done()) {
    decode_frame(*frame, ledger_->completion());
    ledger_->release();  // R27: only now
    decoded = true;
  }
  return decoded;
}

DecodedLane EngineLoop::decode(const ActiveSequence& sequence, const FrameInFlight& frame, size_t index,
                               const Completion& completion) const {
  const LedgerLane& lane = frame.lanes[index];
  const RequestState& state = *scheduler_->find(lane.request);
  const Capabilities& core = scheduler_->capabilities();
  ExpectedLane expected{
      .record = {lane.tenancy.slot, lane.tenancy.epoch, frame.sequence, core.token_capacity, core.vocab_size},
      .samples = lane.samples,
      .requested = frame.requested_slots[lane.tenancy.slot.value],
      .logprobs = {sequence.num_logprobs, state.spec.logprob_token_ids},
      .eos_id = state.spec.sampling.eos_id,
      .tokens_left = state.spec.sampling.max_tokens - state.generated(),
      .proposals = lane.proposals};
  return decode_lane(completion, index, expected);
}

void EngineLoop::decode_frame(const FrameInFlight& frame, const Completion& completion) {
  const TimePoint now = Clock::now();
  int64_t prompt_tokens = 0, generated = 0, next_row = 0;
  std::vector<RequestId> named;
  named.reserve(frame.lanes.size());
  for (size_t i = 0; i < frame.lanes.size(); ++i) {
    const LedgerLane& lane = frame.lanes[i];
    const int64_t first_row = std::exchange(next_row, next_row + lane.rows);
    named.push_back(lane.request);
    const auto it = active_.find(lane.request);
    if (it == active_.end()) continue;  // it has left: whatever its epoch still emits is nobody's
    DecodedLane decoded = decode(it->second, frame, i, completion);
    if (it->second.mask) follow_mask(*it->second.mask, &decoded);
    std::optional<PromptScores> scores;
    if (frame.operation == Operation::kScoredPrefill && !decoded.error) {
      Result<PromptScores> read = decode_scores(it->second, lane, first_row, completion);
      if (read) {
        scores = *std::move(read);
      } else {
        decoded = {.error = read.error()};  // what the frame sampled comes after what is missing
      }
    }
    if (observer_ && !lane.proposals.empty() && !decoded.error) {
      observer_->on_verified(static_cast<int32_t>(lane.proposals.size()), decoded.accepted);
    }
    if (!decoded.error) prompt_tokens += note_decoded(it->second, lane, decoded);
    generated += deliver(it, std::move(scores), std::move(decoded), now);
  }
  scheduler_->frame_decoded(named);
  if (!observer_) return;
  observe_gaps();
  observer_->on_tokens(prompt_tokens, generated);
  EngineObserver::Frame seen{.requested = frame.any_requested(),
                             .records = static_cast<int64_t>(frame.lanes.size()),
                             .bytes_copied = completion.bytes_copied};
  for (const CompletionPayload& payload : completion.payloads) {
    seen.payload_bytes += static_cast<int64_t>(payload.words.size() * sizeof(int32_t));
  }
  observer_->on_frame(seen);
}

/// The chunk's scores that were not decoded before a preemption. The prompt's last row has no token behind it.
Result<PromptScores> EngineLoop::decode_scores(const ActiveSequence& sequence, const LedgerLane& lane,
                                               int64_t first_row, const Completion& completion) const {
  const RequestState& state = *scheduler_->find(lane.request);
  const int32_t first = std::max(lane.start, state.scores_known) + 1;
  const int32_t end = std::min(lane.start + lane.rows + 1, state.prompt_size);
  PromptScores out{.first = first};
  if (first >= end) return out;
  const auto size = static_cast<size_t>(end - first);
  const size_t begin = static_cast<size_t>(first_row + first - 1 - lane.start) * kPromptScoreWords;
  const std::span<const int32_t> all(completion.prompt_rows);
  const auto rows = all.subspan(std::min(begin, all.size()));
  auto scores = decode_prompt_rows(rows.first(std::min(size * kPromptScoreWords, rows.size())),
                                   std::span(state.tokens).subspan(first, size), sequence.num_prompt_logprobs,
                                   scheduler_->capabilities().vocab_size);
  if (!scores) {
    return Error{Errc::kInternal, fmt::format("slot {}, prompt position {} and after: {}", lane.tenancy.slot.value,
                                              first, scores.error().message)};
  }
  out.scores = *std::move(scores);
  return out;
}

/// Tells the scheduler what came. Returns the prompt tokens that are now in the cache and were not before: each counts
/// once, those that the prefix cache had included, however often the sequence is preempted.
int64_t EngineLoop::note_decoded(ActiveSequence& sequence, const LedgerLane& lane, const DecodedLane& decoded) {
  std::vector<TokenId> tokens;
  for (const TokenEvent& event : decoded.events) tokens.push_back(event.token);
  scheduler_->note_decoded(lane.request, lane.rows, tokens);
  const int64_t known = scheduler_->find(lane.request)->kv_known;
  const int64_t before = sequence.prompt_prefilled;
  sequence.prompt_prefilled = std::max(before, std::min(known, sequence.prompt_tokens));
  return sequence.prompt_prefilled - before;
}

/// Posts a lane's prompt scores (R40: before the tokens), its tokens in generation order, then its end if it has one.
/// Returns the tokens posted.
int64_t EngineLoop::deliver(ActiveMap::iterator it, std::optional<PromptScores> scores, DecodedLane lane,
                            TimePoint now) {
  const RequestId id = it->first;
  ActiveSequence& sequence = it->second;
  FinishCode finish = FinishCode::kNone;
  if (!lane.error && scheduler_->find(id)->prefilled_only()) {
    finish = FinishCode::kTokenLimit;
    if (!scores) scores.emplace();  // a prompt of one token
    scores->finish = finish;
  }
  const bool scored = scores && (!scores->scores.empty() || finish != FinishCode::kNone);
  if (scored) sequence.pipe->push(*std::move(scores));
  for (TokenEvent& event : lane.events) {
    finish = event.finish;
    sequence.generated += 1;
    observe_token(sequence, now);
    sequence.pipe->push(std::move(event));
  }
  const auto posted = static_cast<int64_t>(lane.events.size());
  if (posted > 0 || scored) touch(sequence.waiter);
  if (lane.error) {
    log_error("sequence_failed", "request={} reason=\"{}\"", id.value, lane.error->message);
    fail_sequence(it, *std::move(lane.error));
  } else if (finish != FinishCode::kNone) {
    end_sequence(it, Outcome::kFinished, finish);
  } else if ((posted > 0 || scored) && sequence.pipe->is_behind(headroom())) {
    scheduler_->set_paused(id, true);
    if (std::find(paused_.begin(), paused_.end(), id) == paused_.end()) paused_.push_back(id);
  }
  return posted;
}

void EngineLoop::observe_token(ActiveSequence& sequence, TimePoint now) {
  if (sequence.first_token == TimePoint{}) {
    sequence.first_token = now;
    if (observer_) {
      observer_->on_first_token(seconds(sequence.admitted - sequence.arrived), seconds(now - sequence.arrived));
    }
  } else if (observer_) {
    if (now - sequence.last_token != gap_) observe_gaps();
    gap_ = now - sequence.last_token;
    num_gaps_ += 1;
  }
  sequence.last_token = now;
}

/// A frame's tokens follow a frame's tokens: as a rule all have waited equally long.
void EngineLoop::observe_gaps() {
  if (num_gaps_ > 0) observer_->on_inter_token(seconds(gap_), std::exchange(num_gaps_, 0));
}

}  // namespace helios
