// One pass: event -> decoder (text and starts) -> stop filter (how much is final) -> entries of the final text.
#include "coordinator/output/sequence_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "coordinator/output/stop_filter.h"
#include "coordinator/output/text_span.h"
#include "coordinator/output/token_text.h"
#include "coordinator/tokenizer/incremental_decoder.h"

namespace helios {
namespace {

bool is_terminating(FinishCode code) { return code == FinishCode::kEos || code == FinishCode::kStopId; }

OutputFinish finish_of(const TokenEvent& event) {
  switch (event.finish) {
    case FinishCode::kEos:
      return {"stop", std::nullopt, std::nullopt};
    case FinishCode::kStopId:
      return {"stop", std::nullopt, event.token};
    case FinishCode::kTokenLimit:
    case FinishCode::kContextLimit:
      return {"length", std::nullopt, std::nullopt};
    case FinishCode::kError:
    case FinishCode::kNone:
      break;
  }
  return {"abort", std::nullopt, std::nullopt};  // the error itself travels as an Error, not as a token
}

}  // namespace

struct SequenceOutput::Impl {
  Impl(const Tokenizer& tokenizer_in, OutputOptions options_in, std::span<const TokenId> prompt)
      : tokenizer(tokenizer_in),
        options(std::move(options_in)),
        decoder(tokenizer_in, options.skip_special_tokens, prompt),
        context(tokenizer_in, options.skip_special_tokens, prompt),
        stops(options.stop) {
    if (!options.stops_after.empty()) before_stops.emplace();
  }

  TokenText shown_text(TokenId id) const {
    return options.tokens_as_token_ids ? fmt::format("token_id:{}", id) : context.text(id);
  }

  std::optional<OutputEntry> make_entry(const TokenEvent& event) const {
    if (!event.logprobs || event.forced || (is_terminating(event.finish) && !options.keep_terminating_entry)) {
      return std::nullopt;
    }
    OutputEntry entry;
    entry.id = event.token;
    entry.text = shown_text(event.token);
    entry.bytes = TokenText::borrow(tokenizer.token_bytes(event.token));
    entry.logprob = event.logprobs->chosen;
    entry.alternatives.reserve(event.logprobs->alternatives.size());
    for (const TokenLogprob& alternative : event.logprobs->alternatives) {
      entry.alternatives.push_back({alternative.id, shown_text(alternative.id), alternative.logprob});
    }
    return entry;
  }

  // A terminating token's text is shown only on request; an ignored EOS is hidden like any special token.
  IncrementalDecoder::Show shown(const TokenEvent& event) const {
    const bool hidden = (is_terminating(event.finish) && !options.include_stop_str_in_output) ||
                        (event.silent_eos && options.skip_special_tokens);
    if (hidden) return IncrementalDecoder::Show::kNever;
    const bool always = std::ranges::find(options.shown_tokens, event.token) != options.shown_tokens.end();
    return always ? IncrementalDecoder::Show::kAlways : IncrementalDecoder::Show::kByKind;
  }

  // Takes what the decoder let go, and releases as much as cannot be part of a stop string.
  void advance(OutputDelta* delta) {
    for (TextStart start : decoded.starts) {
      start.code_points += options.text_offset_base;
      spans.place(start);
    }
    const std::optional<StopFilter::Match> match = find_stop(decoded.text);
    read += static_cast<int64_t>(decoded.text.size());
    held += decoded.text;
    const bool keep_stop = options.include_stop_str_in_output;
    if (match) {
      delta->finish = OutputFinish{"stop", options.stop[match->stop], std::nullopt};
      release_text(keep_stop ? match->end : match->begin, delta);
    } else {
      release_text(keep_stop ? read : read - stops.undecided_bytes(), delta);
    }
    spans.release(released, delta);
  }

  // Text before the delimiter that stop strings have to wait for is read too: the filter counts bytes.
  std::optional<StopFilter::Match> find_stop(std::string_view text) {
    const bool armed = num_generated > options.min_tokens;
    if (!before_stops) return stops.feed(text, armed);
    const size_t known = before_stops->size();
    before_stops->append(text);
    const size_t at = before_stops->find(options.stops_after);
    if (at == std::string::npos) {
      const size_t kept = std::min(before_stops->size(), options.stops_after.size() - 1);
      before_stops->erase(0, before_stops->size() - kept);
      stops.skip(text.size());
      return std::nullopt;
    }
    const size_t skipped = at + options.stops_after.size() - known;
    before_stops.reset();
    stops.skip(skipped);
    return stops.feed(text.substr(skipped), armed);
  }

  void release_text(int64_t up_to, OutputDelta* delta) {
    delta->text.append(held, 0, up_to - released);
    held.erase(0, up_to - released);
    released = up_to;
  }

  OutputDelta push(const TokenEvent& event) {
    HELIOS_CHECK(!finished, event.token);
    OutputDelta delta;
    delta.token_ids.push_back(event.token);
    ++num_generated;
    const IncrementalDecoder::Show show = shown(event);
    spans.push(make_entry(event));
    if (show != IncrementalDecoder::Show::kNever) context.push(event.token, show == IncrementalDecoder::Show::kAlways);
    decoded.text.clear();
    decoded.starts.clear();
    decoder.push(event.token, &decoded, show);
    if (event.finish != FinishCode::kNone) decoder.finish(&decoded);
    advance(&delta);
    if (!delta.finish && event.finish != FinishCode::kNone) {
      release_text(read, &delta);
      spans.release_all(&delta);
      delta.finish = finish_of(event);
    }
    finished = delta.finish.has_value();
    return delta;
  }

  const Tokenizer& tokenizer;
  const OutputOptions options;
  IncrementalDecoder decoder;
  TokenTextContext context;
  StopFilter stops;
  TextSpans spans;
  DecodedText decoded;                      // of the token at hand
  std::optional<std::string> before_stops;  // the end of the text, while stop strings do not count yet
  std::string held;                         // text that was decoded and not yet released
  int64_t read = 0;                         // bytes of text decoded, and released, so far
  int64_t released = 0;
  int64_t num_generated = 0;
  bool finished = false;
};

SequenceOutput::SequenceOutput(const Tokenizer& tokenizer, OutputOptions options, std::span<const TokenId> prompt)
    : impl_(std::make_unique<Impl>(tokenizer, std::move(options), prompt)) {}
SequenceOutput::~SequenceOutput() = default;
SequenceOutput::SequenceOutput(SequenceOutput&&) noexcept = default;
SequenceOutput& SequenceOutput::operator=(SequenceOutput&&) noexcept = default;

OutputDelta SequenceOutput::push(const TokenEvent& event) { return impl_->push(event); }
int64_t SequenceOutput::num_generated() const { return impl_->num_generated; }

}  // namespace helios
