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
#include "coordinator/protocol/prompt_logprobs.h"
#include "coordinator/protocol/reply_format.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace helios {

/// Source: wire formats, 4.3 and 4.4.
class ChatFormat final : public ReplyFormat {
 public:
  /// `plan` has one prompt; it and `tokenizer` outlive this object.
  ChatFormat(const GenerationPlan& plan, ReplyHeader header, const Tokenizer& tokenizer);

  Status take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) override;
  void end_stream(const Usage& usage, std::string& events) override;
  void fail_stream(const Error& error, std::string& events) override;
  std::string reply(const Usage& usage) override;

 private:
  /// What a plain reply keeps of a choice.
  struct Choice {
    std::string content;
    std::string entries;  // JSON, comma-separated
    std::vector<TokenId> token_ids;
    std::optional<OutputFinish> finish;
  };
  struct Chunk;

  Status append_entries(const OutputDelta& delta, std::string& out) const;
  Status collect(Choice& choice, const OutputDelta& delta) const;
  /// The role chunks of all choices, and what they echo: before any content.
  void begin_stream(const ChoiceProgress& progress, std::string& events);
  void write_chunk(const Chunk& chunk, std::string& events) const;
  std::string choice_json(const Choice& choice, int64_t index) const;

  const GenerationPlan& plan_;
  const PlannedPrompt& prompt_;
  const ReplyHeader header_;
  const Tokenizer& tokenizer_;
  bool begun_ = false;
  std::vector<Choice> choices_;  // plain replies
  std::optional<PromptLogprobs> prompt_logprobs_;
};

}  // namespace helios
