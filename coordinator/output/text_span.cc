// See text_span.h.
#include "coordinator/output/text_span.h"

#include <utility>

#include "common/base/check.h"

namespace helios {
namespace {

constexpr size_t kMaxLeft = 64;  // places of entries that have gone, before those behind them move up

}  // namespace

void TextSpans::place(const TextStart& start) {
  HELIOS_CHECK(placed_ < spans_.size(), placed_);
  spans_[placed_++].start = start;
}

void TextSpans::pop(OutputDelta* out) {
  Span& span = spans_[first_];
  out->token_starts.push_back(span.start.has_bytes ? span.start.bytes : -1);
  if (span.entry) {
    span.entry->text_offset = span.start.code_points;
    span.entry->text_byte = out->token_starts.back();
    out->entries.push_back(std::move(*span.entry));
  }
  span.entry.reset();
  if (++first_ == spans_.size()) {
    spans_.clear();
    first_ = placed_ = 0;
  } else if (first_ > kMaxLeft) {
    spans_.erase(spans_.begin(), spans_.begin() + static_cast<ptrdiff_t>(first_));
    placed_ -= std::exchange(first_, 0);
  }
}

void TextSpans::release(int64_t released, OutputDelta* out) {
  while (placed_ > first_) {
    const TextStart& start = spans_[first_].start;
    const bool out_there = start.has_bytes ? start.bytes < released : start.bytes <= released;
    if (!out_there) return;
    pop(out);
  }
}

void TextSpans::release_all(OutputDelta* out) {
  HELIOS_CHECK(placed_ == spans_.size(), placed_, spans_.size());
  while (placed_ > first_) pop(out);
}

}  // namespace helios
