#include "coordinator/protocol/completions_response.h"

#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

constexpr std::string_view kCompletionObject = "text_completion";

/// Prompt positions stand before the generated ones in the same arrays.
Status append_entries(const OutputDelta& delta, const PromptScoring& prompt, LogprobArrays* arrays) {
  if (prompt.echo_alternatives) {
    const auto most = static_cast<size_t>(*prompt.echo_alternatives);
    for (const OutputEntry& entry : delta.prompt) {
      if (Status status = arrays->append(entry, most); !status) return status;
    }
  }
  for (const OutputEntry& entry : delta.entries) {
    if (Status status = arrays->append(entry); !status) return status;
  }
  return Ok{};
}

}  // namespace

CompletionChunks::CompletionChunks(const ReplyHeader& header)
    : head_(chunk_head(header, kCompletionObject)), fingerprint_(header.fingerprint) {
  append_end(plain_end_, {}, {});
}

Status CompletionChunks::append(std::string& events, const CompletionChunk& chunk, const OutputDelta& delta) {
  arrays_.clear();
  if (Status status = append_entries(delta, chunk.prompt, &arrays_); !status) return status;
  events += head_;
  JsonWriter json(events);
  json.key("index").integer(chunk.index);
  json.key("text");
  chunk.echo.empty() ? json.string(delta.text) : json.string(std::string(chunk.echo) + delta.text);
  json.key("logprobs").raw("");
  arrays_.append_object_or_null(events);
  const bool plain =
      !delta.finish && !chunk.prompt_token_ids && !chunk.token_ids && !chunk.usage && !chunk.fingerprint;
  plain ? void(events += plain_end_) : append_end(events, chunk, delta);
  return Ok{};
}

/// What stands behind the logprobs.
void CompletionChunks::append_end(std::string& events, const CompletionChunk& chunk, const OutputDelta& delta) const {
  events += ',';
  JsonWriter json(events);
  write_finish(json, delta.finish);
  write_ids(json, "prompt_token_ids", chunk.prompt_token_ids);
  write_ids(json, "token_ids", chunk.token_ids ? &delta.token_ids : nullptr);
  json.end_object().end_array();
  if (chunk.usage) write_chunk_usage(json, *chunk.usage);
  if (chunk.fingerprint) json.key("system_fingerprint").string(fingerprint_);
  json.end_object();
  events += kSseEnd;
}

Status CompletionChoice::append(const OutputDelta& delta) {
  text_ += delta.text;
  if (with_logprobs_) {
    if (Status status = append_entries(delta, prompt_, &logprobs_); !status) return status;
  }
  if (prompt_logprobs_) {
    if (Status status = prompt_logprobs_->append(delta.prompt); !status) return status;
  }
  if (with_ids_) token_ids_.insert(token_ids_.end(), delta.token_ids.begin(), delta.token_ids.end());
  if (delta.finish) finish_ = delta.finish;
  return Ok{};
}

void CompletionChoice::append_json(std::string& out, int64_t index, const std::vector<TokenId>& prompt_ids) const {
  JsonWriter json(out);
  json.begin_object();
  json.key("index").integer(index);
  json.key("text").string(text_);
  json.key("logprobs");
  if (with_logprobs_) {
    std::string arrays;
    logprobs_.append_object(arrays);
    json.raw(arrays);
  } else {
    json.null();
  }
  write_finish(json, finish_);
  write_ids(json, "token_ids", with_ids_ ? &token_ids_ : nullptr);
  write_prompt_logprobs(json, prompt_logprobs_);
  write_ids(json, "prompt_token_ids", with_ids_ ? &prompt_ids : nullptr);
  json.end_object();
}

std::string completion_reply(const ReplyHeader& header, std::string_view choices_json, const Usage& usage) {
  std::string out;
  out.reserve(choices_json.size() + 512);
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header, kCompletionObject);
  json.key("choices").begin_array().raw(choices_json).end_array();
  json.key("service_tier").null();
  json.key("system_fingerprint").string(header.fingerprint);
  write_reply_usage(json, usage);
  json.key("kv_transfer_params").null();
  json.end_object();
  return out;
}

CompletionsFormat::CompletionsFormat(const GenerationPlan& plan, ReplyHeader header)
    : plan_(plan), header_(std::move(header)), started_(plan.num_choices()), chunks_(header_) {
  if (plan_.stream) return;
  choices_.reserve(plan_.num_choices());
  for (size_t i = 0; i < plan_.num_choices(); ++i) {
    choices_.emplace_back(plan_.logprobs, plan_.return_token_ids, prompt_of(static_cast<int64_t>(i)).echo_text,
                          plan_.prompt_scoring);
  }
}

Status CompletionsFormat::take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress,
                               std::string& events) {
  if (!plan_.stream) return choices_[static_cast<size_t>(index)].append(delta);
  const PlannedPrompt& prompt = prompt_of(index);
  const StreamOptions& options = plan_.stream_options;
  CompletionChunk chunk{.index = index, .token_ids = plan_.return_token_ids, .prompt = plan_.prompt_scoring};
  if (!started_[static_cast<size_t>(index)]) {
    chunk.echo = prompt.echo_text;
    chunk.prompt_token_ids = plan_.return_token_ids ? &prompt.ids : nullptr;
    started_[static_cast<size_t>(index)] = true;
  }
  if (options.include_usage && options.continuous_usage_stats) chunk.usage = progress.usage;
  chunk.fingerprint = progress.last && delta.finish && !options.include_usage;
  return chunks_.append(events, chunk, delta);
}

void CompletionsFormat::end_stream(const Usage& usage, std::string& events) {
  if (plan_.stream_options.include_usage) events += sse_event(usage_chunk(header_, kCompletionObject, usage));
  events += kSseDone;
}

void CompletionsFormat::fail_stream(const Error& error, std::string& events) { append_stream_error(events, error); }

std::string CompletionsFormat::reply(const Usage& usage) {
  std::string choices;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) choices += ',';
    choices_[i].append_json(choices, static_cast<int64_t>(i), prompt_of(static_cast<int64_t>(i)).ids);
  }
  return completion_reply(header_, choices, usage);
}

}  // namespace helios
