// The replies of /v1/responses: one response object, or the events of a stream. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/parser/output_parser.h"
#include "coordinator/protocol/content_entries.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/reasoning_tokens.h"
#include "coordinator/protocol/reply_format.h"
#include "coordinator/protocol/responses_output.h"
#include "coordinator/protocol/responses_request.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// Source: wire formats, 5.2 to 5.6.
class ResponsesFormat final : public ReplyFormat {
 public:
  /// `plan` and `tokenizer` outlive this object.
  ResponsesFormat(const GenerationPlan& plan, ReplyHeader header, ResponsesEcho echoed, const Tokenizer& tokenizer);

  void begin_stream(std::string& events) override;
  Status take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) override;
  void end_stream(const Usage& usage, std::string& events) override;
  void fail_stream(const Error& error, std::string& events) override;
  std::string reply(const Usage& usage) override;

 private:
  Status take_pieces(std::string* events);
  /// The object as it stands.
  void write_response(JsonWriter& json, std::string_view status, const Usage* usage, std::string_view error) const;
  std::string_view final_status() const { return cut_off_ ? "incomplete" : "completed"; }

  const bool stream_;
  const ReplyHeader header_;
  const ResponsesEcho echoed_;
  const bool parallel_calls_;
  OutputParser parser_;
  ContentEntries entries_;
  ResponseEvents numbered_;
  ResponsesOutput output_;
  std::vector<OutputPiece> pieces_;  // scratch
  ReasoningTokens reasoning_tokens_;
  bool cut_off_ = false;  // by a token limit
};

}  // namespace helios
