// The output items of one response: reasoning, messages and function calls, as they grow out of the parser's pieces.
//
// One item is open at a time. Each step is an event for those who stream; what is finished is kept as JSON for the
// completed response, with the entries of its output text (R32). Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/parser/output_parser.h"
#include "coordinator/protocol/content_entries.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// Numbers and frames the events of one response.
class ResponseEvents {
 public:
  using Members = std::function<void(JsonWriter&)>;
  /// Appends one event to `out`; nothing where that is null.
  void write(std::string_view type, const Members& members, std::string* out);

 private:
  int64_t sequence_ = 0;
};

class ResponsesOutput {
 public:
  /// `tokenizer` and `events` outlive this object.
  ResponsesOutput(const Tokenizer& tokenizer, ResponseEvents& events) : tokenizer_(tokenizer), events_(events) {}

  /// One piece, with the entries of its range. `out`: a stream's events, or null. Errors: kInternal for NaN.
  Status take(const OutputPiece& piece, ContentEntries& entries, std::string* out);

  /// The text has ended; `whole` is false when a limit cut it off. A response without any item gets an empty message.
  void finish(bool whole, std::string* out);

  /// The finished items, comma-separated JSON.
  const std::string& items() const { return items_; }

 private:
  enum class Open { kNothing, kReasoning, kMessage, kCall };

  void open(Open kind, std::string_view name, std::string* out);
  void close(bool whole, std::string* out);
  Status append_text(const OutputPiece& piece, ContentEntries& entries, std::string* out);
  /// The open item in `status`, without its content or with all of it.
  std::string item(std::string_view status, bool with_content) const;
  /// Its part: empty, or with all of its text and entries.
  std::string part(bool with_content) const;
  void write_place(JsonWriter& json) const;

  const Tokenizer& tokenizer_;
  ResponseEvents& events_;
  std::string items_;
  int64_t num_items_ = 0;

  Open open_ = Open::kNothing;
  std::string id_, call_id_, name_;
  std::string text_;     // or a call's arguments
  std::string entries_;  // JSON, comma-separated
  bool call_is_whole_ = false;
};

}  // namespace helios
