// See text_span.h.
#include "coordinator/output/text_span.h"

#include <utility>

#include "common/base/check.h"

namespace helios {

void TextSpans::place(const TextStart& start) {
  HELIOS_CHECK(placed_ < spans_.size(), placed_);
  spans_[placed_++].start = start;
}

void TextSpans::pop(OutputDelta* out) {
  Span& span = spans_.front();
  out->token_starts.push_back(span.start.has_bytes ? span.start.bytes : -1);
  if (span.entry) {
    span.entry->text_offset = span.start.code_points;
    span.entry->text_byte = out->token_starts.back();
    out->entries.push_back(std::move(*span.entry));
  }
  spans_.pop_front();
  --placed_;
}

void TextSpans::release(int64_t released, OutputDelta* out) {
  while (placed_ > 0) {
    const TextStart& start = spans_.front().start;
    const bool out_there = start.has_bytes ? start.bytes < released : start.bytes <= released;
    if (!out_there) return;
    pop(out);
  }
}

void TextSpans::release_all(OutputDelta* out) {
  HELIOS_CHECK(placed_ == spans_.size(), placed_, spans_.size());
  while (placed_ > 0) pop(out);
}

}  // namespace helios
