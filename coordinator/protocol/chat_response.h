// The replies of /v1/chat/completions: one JSON object, or the chunks of a stream. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/parsed_choice.h"
#include "coordinator/protocol/prompt_logprobs.h"
#include "coordinator/protocol/reply_format.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// Source: wire formats, 4.3 and 4.4.
class ChatFormat final : public ReplyFormat {
 public:
  /// `plan` has one prompt; it and `tokenizer` outlive this object.
  /// `reasoning_content`: reasoning goes by that older name too.
  ChatFormat(const GenerationPlan& plan, ReplyHeader header, const Tokenizer& tokenizer,
             bool reasoning_content = false);

  Status take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) override;
  void end_stream(const Usage& usage, std::string& events) override;
  void fail_stream(const Error& error, std::string& events) override;
  std::string reply(const Usage& usage) override;

 private:
  struct Choice {
    explicit Choice(const OutputParsing& parsing) : parsed(parsing) {}
    ParsedChoice parsed;
    // What a plain reply keeps.
    std::string reasoning, content;
    std::vector<ParsedDelta::Call> calls;
    std::string entries;  // JSON, comma-separated
    std::vector<TokenId> token_ids;
    std::optional<OutputFinish> finish;
  };
  struct Chunk;

  bool with_ids() const { return plan_.return_token_ids && !plan_.parsing.hides_reasoning(); }
  bool running_usage() const {
    return plan_.stream_options.include_usage && plan_.stream_options.continuous_usage_stats;
  }
  Status append_entries(const OutputDelta& delta, std::string& out) const;
  /// The finish as chat tells it: a call that was read makes it tool_calls.
  std::optional<OutputFinish> finish_of(const Choice& choice, const OutputDelta& delta) const;
  void collect(Choice& choice, ParsedDelta parsed, const OutputDelta& delta, std::string entries) const;
  /// The chunk's "delta"; empty when the step has nothing to say.
  std::string delta_json(const Choice& choice, const ParsedDelta& parsed, bool finished) const;
  void write_reasoning(JsonWriter& json, const std::string& text) const;
  /// The role chunks of all choices, and what they echo: before any content.
  void begin_stream(const ChoiceProgress& progress, std::string& events);
  void write_chunk(const Chunk& chunk, std::string& events) const;
  std::string choice_json(const Choice& choice, int64_t index) const;
  Usage with_reasoning(Usage usage) const;

  const GenerationPlan& plan_;
  const PlannedPrompt& prompt_;
  const ReplyHeader header_;
  const Tokenizer& tokenizer_;
  const bool reasoning_content_;
  const std::string chunk_head_;
  bool begun_ = false;
  std::vector<Choice> choices_;
  std::optional<PromptLogprobs> prompt_logprobs_;
};

}  // namespace helios
