// How the choices of one reply look in one of the APIs: the last step of the one generation path.
//
// A format owns what it keeps of the choices (a stream: next to nothing; a plain reply: its JSON, R32). Whoever drives
// it hands in each choice's deltas in order. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/output/sequence_output.h"

namespace helios {

class JsonWriter;

/// What all chunks of a reply share.
struct ReplyHeader {
  std::string id;  // cmpl-..., chatcmpl-...
  int64_t created = 0;
  std::string model;
  std::string fingerprint;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;     // of the prompt's; only when the server shows details
  std::optional<int64_t> reasoning_tokens;  // of the completion's; only where reasoning is told apart
};

/// Where a choice stands after a delta.
struct ChoiceProgress {
  Usage usage;        // of this choice alone
  bool last = false;  // no other choice is running
};

class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  /// What a stream says as soon as its request is accepted. Where that is nothing, an error before the first delta
  /// still gets a status of its own.
  virtual void begin_stream(std::string& events) { (void)events; }
  /// One delta of choice `index`; a stream's events go to `events`.
  /// Errors: kInternal when a value to be reported is NaN.
  virtual Status take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) = 0;
  /// All choices have finished.
  virtual void end_stream(const Usage& usage, std::string& events) = 0;
  /// The stream has begun and cannot go on.
  virtual void fail_stream(const Error& error, std::string& events) = 0;
  /// The whole reply, when it is not a stream and all choices have finished.
  virtual std::string reply(const Usage& usage) = 0;
};

// The pieces that the formats share.

void write_header(JsonWriter& json, const ReplyHeader& header, std::string_view object);
/// "finish_reason", "stop_reason".
void write_finish(JsonWriter& json, const std::optional<OutputFinish>& finish);
void write_stop_reason(JsonWriter& json, const std::optional<OutputFinish>& finish);
/// null without ids.
void write_ids(JsonWriter& json, std::string_view name, const std::vector<TokenId>* ids);
/// "usage" of a chunk: three fields, and details only where there are some.
void write_chunk_usage(JsonWriter& json, const Usage& usage);
/// "usage" of a plain reply: with its null details.
void write_reply_usage(JsonWriter& json, const Usage& usage);
/// The extra chunk of stream_options.include_usage.
std::string usage_chunk(const ReplyHeader& header, std::string_view object, const Usage& usage);

/// A stream's event up to the members of its one choice: the same for every chunk of the stream, so it is written once.
std::string chunk_head(const ReplyHeader& header, std::string_view object);

/// Frames one event of a stream: the JSON goes between.
std::string sse_event(std::string_view json);
inline constexpr std::string_view kSseBegin = "data: ";
inline constexpr std::string_view kSseEnd = "\n\n";
/// The error's object and the terminator.
void append_stream_error(std::string& events, const Error& error);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace helios
