// See text_span.h.
#include "coordinator/output/text_span.h"

#include <utility>

#include "common/base/check.h"

namespace helios {

void TextSpans::place(const TextStart& start) {
  HELIOS_CHECK(placed_ < spans_.size(), placed_);
  spans_[placed_++].start = start;
}

void TextSpans::pop(std::vector<OutputEntry>* out) {
  Span& span = spans_.front();
  if (span.entry) {
    span.entry->text_offset = span.start.code_points;
    span.entry->text_byte = span.start.has_bytes ? span.start.bytes : -1;
    out->push_back(std::move(*span.entry));
  }
  spans_.pop_front();
  --placed_;
}

void TextSpans::release(int64_t released, std::vector<OutputEntry>* out) {
  while (placed_ > 0) {
    const TextStart& start = spans_.front().start;
    const bool out_there = start.has_bytes ? start.bytes < released : start.bytes <= released;
    if (!out_there) return;
    pop(out);
  }
}

void TextSpans::release_all(std::vector<OutputEntry>* out) {
  HELIOS_CHECK(placed_ == spans_.size(), placed_, spans_.size());
  while (placed_ > 0) pop(out);
}

}  // namespace helios
