#include "worker/frames/frame_readback.h"

#include <algorithm>

#include "worker/catalog/core_catalog.h"

namespace helios {

FrameReadback::FrameReadback(const CompletionOutputs& outputs, const StepSummary* summaries, Rank rank,
                             Backend& backend)
    : outputs_(outputs), summaries_(summaries), rank_(rank) {
  const auto capacity = static_cast<size_t>(outputs.slot_capacity());
  const size_t record_bytes = capacity * record_words(outputs.token_capacity()) * sizeof(int64_t);
  const size_t payload_bytes = capacity * outputs.token_capacity() * outputs.words_per_position() * sizeof(int32_t);
  for (int i = 0; i < kNumFrames; ++i) {
    Frame& f = frames_[i];
    f.stream = backend.make_stream(i == 0 ? "frame0-copy" : "frame1-copy");
    f.transferred = backend.make_event();
    f.summary = backend.pinned_memory(sizeof(StepSummary));
    if (rank.value == 0) {
      f.records = backend.pinned_memory(record_bytes);
      f.payload = backend.pinned_memory(payload_bytes);
      if (outputs.prompt_capacity() > 0) {
        f.prompt =
            backend.pinned_memory(static_cast<size_t>(outputs.prompt_capacity()) * kPromptScoreWords * sizeof(int32_t));
      }
    }
    f.lane_slots.reserve(capacity);
    f.asked.assign(capacity, 0);
    pinned_bytes_ += static_cast<int64_t>(f.summary.bytes() + f.records.bytes() + f.payload.bytes() + f.prompt.bytes());
  }
}

void FrameReadback::note_requests(const Submission& s, Frame& f) const {
  f.incarnation = s.incarnation;
  f.sequence = s.sequence;
  f.lane_slots.clear();
  std::fill(f.asked.begin(), f.asked.end(), uint8_t{0});
  f.width = 0;
  f.positions = emittable_positions(s.operation, outputs_.token_capacity());
  f.prompt_words = static_cast<int64_t>(s.prompt_target_tokens.size()) * kPromptScoreWords;
  f.bytes_copied = 0;
  for (const Lane& lane : s.lanes) {
    f.lane_slots.push_back(lane.slot.value);
    const auto slot = static_cast<size_t>(lane.slot.value);
    if (outputs_.alternatives() == 0 || !lane.samples || s.logprob_requested[slot] == 0) continue;
    f.asked[slot] = 1;
    const int32_t selected = s.logprob_token_id_counts.empty() ? 0 : s.logprob_token_id_counts[slot];
    f.width = std::max({f.width, outputs_.alternatives(), selected});
  }
}

void FrameReadback::enqueue(const Submission& s, Event& produced) {
  Frame& f = frames_[s.frame.value];
  note_requests(s, f);
  f.stream->wait(produced);
  f.stream->copy(f.summary.data(), summaries_ + s.frame.value, sizeof(StepSummary));
  f.bytes_copied += sizeof(StepSummary);
  if (rank_.value == 0) {
    f.stream->copy(f.records.data(), outputs_.records(s.frame), f.records.bytes());
    f.bytes_copied += static_cast<int64_t>(f.records.bytes());
    if (f.width > 0) copy_payload(f, s.frame);
    if (f.prompt_words > 0) {
      const size_t bytes = static_cast<size_t>(f.prompt_words) * sizeof(int32_t);
      f.stream->copy(f.prompt.data(), outputs_.prompt_rows(s.frame), bytes);
      f.bytes_copied += static_cast<int64_t>(bytes);
    }
  }
  f.stream->record(*f.transferred);
}

/// Runs of adjacent slots that asked.
void FrameReadback::copy_payload(Frame& f, FrameIndex index) {
  const auto capacity = static_cast<size_t>(outputs_.slot_capacity());
  for (size_t begin = 0; begin < capacity; ++begin) {
    if (!f.asked[begin]) continue;
    size_t end = begin + 1;
    while (end < capacity && f.asked[end]) ++end;
    copy_positions(f, index, begin, end - begin);
    begin = end;
  }
}

/// The chosen pair and W alternatives of the first positions of each slot: one copy when a slot has one position or all
/// of them, since then their distances are equal; else one for each position.
void FrameReadback::copy_positions(Frame& f, FrameIndex index, size_t first_slot, size_t num_slots) {
  const auto position_words = static_cast<size_t>(outputs_.words_per_position());
  const auto capacity = static_cast<size_t>(outputs_.token_capacity()), positions = static_cast<size_t>(f.positions);
  const size_t row_bytes = static_cast<size_t>(packed_words(f.width)) * sizeof(int32_t);
  const bool whole = positions == capacity;
  const size_t rows = whole ? num_slots * capacity : num_slots;
  const size_t pitch = (whole ? position_words : capacity * position_words) * sizeof(int32_t);
  for (size_t p = 0; p < (whole ? 1 : positions); ++p) {
    const size_t at = (first_slot * capacity + p) * position_words;
    f.stream->copy_rows(f.payload.as<int32_t>() + at, pitch, outputs_.packed(index) + at, pitch, row_bytes, rows);
    f.bytes_copied += static_cast<int64_t>(row_bytes * rows);
    ++payload_copies_;
  }
}

CollectedFrame FrameReadback::collect(FrameIndex index) {
  Frame& f = frames_[index.value];
  f.transferred->synchronize();
  const StepSummary& summary = *f.summary.as<StepSummary>();
  CollectedFrame out{.completion = {.incarnation = f.incarnation,
                                    .sequence = f.sequence,
                                    .frame = index,
                                    .rank = rank_,
                                    .token_capacity = outputs_.token_capacity(),
                                    .record_digest = summary.digest,
                                    .bytes_copied = f.bytes_copied},
                     .counters = summary.counters};
  if (rank_.value != 0) return out;
  Completion& c = out.completion;
  const int words = record_words(outputs_.token_capacity());
  c.width = f.width;
  if (f.prompt_words > 0) c.prompt_rows.assign(f.prompt.as<int32_t>(), f.prompt.as<int32_t>() + f.prompt_words);
  c.records.reserve(f.lane_slots.size() * static_cast<size_t>(words));
  for (const int32_t slot : f.lane_slots) {
    const int64_t* record = f.records.as<int64_t>() + int64_t{slot} * words;
    c.records.insert(c.records.end(), record, record + words);
    const int64_t emitted = std::min<int64_t>(record[record_word::kEmitted], f.positions);
    if (!f.asked[static_cast<size_t>(slot)] || emitted <= 0) continue;
    c.payloads.push_back({.slot = SlotIndex(slot), .words = read_payload(f, slot, emitted)});
  }
  return out;
}

/// [emitted][2 + 2 W] of a slot.
std::vector<int32_t> FrameReadback::read_payload(const Frame& f, int32_t slot, int64_t emitted) const {
  std::vector<int32_t> out;
  const int width_words = packed_words(f.width);
  out.reserve(static_cast<size_t>(emitted * width_words));
  for (int64_t p = 0; p < emitted; ++p) {
    const int32_t* packed =
        f.payload.as<int32_t>() + (int64_t{slot} * outputs_.token_capacity() + p) * outputs_.words_per_position();
    out.insert(out.end(), packed, packed + width_words);
  }
  return out;
}

}  // namespace helios
