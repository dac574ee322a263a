#include "worker/frames/frame_readback.h"

#include <algorithm>

namespace helios {
namespace {

// Positions of a slot that prefill, decode and mixed graphs can emit; verification will emit more.
constexpr int kEmittable = 1;

}  // namespace

FrameReadback::FrameReadback(const CompletionOutputs& outputs, const uint64_t* digests, Rank rank, Backend& backend)
    : outputs_(outputs), digests_(digests), rank_(rank) {
  const auto capacity = static_cast<size_t>(outputs.slot_capacity());
  const size_t record_bytes = capacity * record_words(outputs.token_capacity()) * sizeof(int64_t);
  const size_t payload_bytes = capacity * outputs.token_capacity() * outputs.words_per_position() * sizeof(int32_t);
  for (int i = 0; i < kNumFrames; ++i) {
    Frame& f = frames_[i];
    f.stream = backend.make_stream(i == 0 ? "frame0-copy" : "frame1-copy");
    f.transferred = backend.make_event();
    f.digest = backend.pinned_memory(sizeof(uint64_t));
    if (rank.value == 0) {
      f.records = backend.pinned_memory(record_bytes);
      f.payload = backend.pinned_memory(payload_bytes);
    }
    f.lane_slots.reserve(capacity);
    f.asked.assign(capacity, 0);
    pinned_bytes_ += static_cast<int64_t>(f.digest.bytes() + f.records.bytes() + f.payload.bytes());
  }
}

void FrameReadback::note_requests(const Submission& s, Frame& f) const {
  f.incarnation = s.incarnation;
  f.sequence = s.sequence;
  f.lane_slots.clear();
  std::fill(f.asked.begin(), f.asked.end(), uint8_t{0});
  f.width = 0;
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
  f.stream->copy(f.digest.data(), digests_ + s.frame.value, sizeof(uint64_t));
  f.bytes_copied += sizeof(uint64_t);
  if (rank_.value == 0) {
    f.stream->copy(f.records.data(), outputs_.records(s.frame), f.records.bytes());
    f.bytes_copied += static_cast<int64_t>(f.records.bytes());
    if (f.width > 0) copy_payload(f, s.frame);
  }
  f.stream->record(*f.transferred);
}

/// One copy for each run of adjacent slots that asked: position 0 of each, chosen pair and W alternatives.
void FrameReadback::copy_payload(Frame& f, FrameIndex index) {
  const auto slot_words = static_cast<size_t>(outputs_.token_capacity() * outputs_.words_per_position());
  const size_t pitch = slot_words * sizeof(int32_t);
  const size_t row_bytes = static_cast<size_t>(packed_words(f.width)) * sizeof(int32_t);
  const auto capacity = static_cast<size_t>(outputs_.slot_capacity());
  for (size_t begin = 0; begin < capacity; ++begin) {
    if (!f.asked[begin]) continue;
    size_t end = begin + 1;
    while (end < capacity && f.asked[end]) ++end;
    f.stream->copy_rows(f.payload.as<int32_t>() + begin * slot_words, pitch,
                        outputs_.packed(index) + begin * slot_words, pitch, row_bytes, end - begin);
    f.bytes_copied += static_cast<int64_t>(row_bytes * (end - begin));
    ++payload_copies_;
    begin = end;
  }
}

Completion FrameReadback::collect(FrameIndex index) {
  Frame& f = frames_[index.value];
  f.transferred->synchronize();
  Completion out{.incarnation = f.incarnation,
                 .sequence = f.sequence,
                 .frame = index,
                 .rank = rank_,
                 .token_capacity = outputs_.token_capacity(),
                 .record_digest = *f.digest.as<uint64_t>(),
                 .bytes_copied = f.bytes_copied};
  if (rank_.value != 0) return out;
  const int words = record_words(outputs_.token_capacity());
  const int width_words = packed_words(f.width);
  out.width = f.width;
  out.records.reserve(f.lane_slots.size() * static_cast<size_t>(words));
  for (const int32_t slot : f.lane_slots) {
    const int64_t* record = f.records.as<int64_t>() + int64_t{slot} * words;
    out.records.insert(out.records.end(), record, record + words);
    const int64_t emitted = std::min<int64_t>(record[record_word::kEmitted], kEmittable);
    if (!f.asked[static_cast<size_t>(slot)] || emitted <= 0) continue;
    const int32_t* packed =
        f.payload.as<int32_t>() + int64_t{slot} * outputs_.token_capacity() * outputs_.words_per_position();
    out.payloads.push_back({.slot = SlotIndex(slot), .words = {packed, packed + emitted * width_words}});
  }
  return out;
}

}  // namespace helios
