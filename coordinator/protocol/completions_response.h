// The replies of /v1/completions: one JSON object, or the chunks of a stream.
//
// Rendered as the tokens come, so a stream keeps nothing and a plain reply keeps its own JSON only (R32). The key order
// and the null keys are the API's: clients read absent keys as errors. Thread: the connection's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/output/sequence_output.h"
#include "coordinator/protocol/generation_plan.h"
#include "coordinator/protocol/logprob_json.h"
#include "coordinator/protocol/prompt_logprobs.h"
#include "coordinator/protocol/reply_format.h"

namespace helios {

/// One chunk of a stream: what one step of one choice released.
struct CompletionChunk {
  int64_t index = 0;
  std::string_view echo;                                   // before the text, in a choice's first chunk
  const std::vector<TokenId>* prompt_token_ids = nullptr;  // in a choice's first chunk, if asked
  bool token_ids = false;                                  // return_token_ids
  std::optional<Usage> usage;                              // continuous_usage_stats
  bool fingerprint = false;                                // the stream's terminal chunk
  PromptScoring prompt;                                    // how delta.prompt is shown
};

/// What the chunks of one stream share.
class CompletionChunks {
 public:
  explicit CompletionChunks(const ReplyHeader& header);
  /// Appends the chunk's event. Errors: kInternal when a value to be reported is NaN; then nothing is appended.
  Status append(std::string& events, const CompletionChunk& chunk, const OutputDelta& delta);

 private:
  void append_end(std::string& events, const CompletionChunk& chunk, const OutputDelta& delta) const;

  const std::string head_, fingerprint_;
  std::string plain_end_;  // of most chunks: nothing ends, nothing more was asked for
  LogprobArrays arrays_;   // of the chunk at hand
};

/// One choice of a plain reply, collected delta by delta.
class CompletionChoice {
 public:
  CompletionChoice(bool logprobs, bool token_ids, std::string echo, const PromptScoring& prompt = {})
      : with_logprobs_(logprobs), with_ids_(token_ids), prompt_(prompt), text_(std::move(echo)) {
    if (prompt.list_alternatives) prompt_logprobs_.emplace(*prompt.list_alternatives);
  }
  /// Errors: kInternal when a value to be reported is NaN.
  Status append(const OutputDelta& delta);
  void append_json(std::string& out, int64_t index, const std::vector<TokenId>& prompt_ids) const;

 private:
  bool with_logprobs_, with_ids_;
  PromptScoring prompt_;
  std::string text_;
  LogprobArrays logprobs_;
  std::optional<PromptLogprobs> prompt_logprobs_;
  std::vector<TokenId> token_ids_;
  std::optional<OutputFinish> finish_;
};

/// `choices_json`: the choices' objects in index order, comma-separated.
std::string completion_reply(const ReplyHeader& header, std::string_view choices_json, const Usage& usage);

class CompletionsFormat final : public ReplyFormat {
 public:
  /// `plan` outlives this object.
  CompletionsFormat(const GenerationPlan& plan, ReplyHeader header);

  Status take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) override;
  void end_stream(const Usage& usage, std::string& events) override;
  void fail_stream(const Error& error, std::string& events) override;
  std::string reply(const Usage& usage) override;

 private:
  const PlannedPrompt& prompt_of(int64_t index) const { return plan_.prompts[static_cast<size_t>(index / plan_.n)]; }

  const GenerationPlan& plan_;
  const ReplyHeader header_;
  std::vector<bool> started_;              // streams: the choice's first chunk is out
  std::vector<CompletionChoice> choices_;  // plain replies
  CompletionChunks chunks_;
};

}  // namespace helios
