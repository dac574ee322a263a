#include "coordinator/protocol/chat_response.h"

#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/logprob_json.h"

namespace helios {
namespace {

constexpr std::string_view kObject = "chat.completion";
constexpr std::string_view kChunkObject = "chat.completion.chunk";

void write_entries(JsonWriter& json, std::string_view entries) {
  json.key("logprobs").begin_object();
  json.key("content").begin_array().raw(entries).end_array();
  json.key("refusal").null();
  json.end_object();
}

}  // namespace

/// One event of a stream: what one step of one choice released, or its beginning.
struct ChatFormat::Chunk {
  int64_t index = 0;
  std::string_view delta;    // JSON
  std::string_view entries;  // JSON, comma-separated; empty: logprobs are null
  const std::optional<OutputFinish>* finish = nullptr;
  const std::vector<TokenId>* token_ids = nullptr;
  bool role = false;             // introduces the choice
  bool first = false;            // of the stream
  const Usage* usage = nullptr;  // continuous_usage_stats
  bool fingerprint = false;
};

ChatFormat::ChatFormat(const GenerationPlan& plan, ReplyHeader header, const Tokenizer& tokenizer)
    : plan_(plan), prompt_(plan.prompts.front()), header_(std::move(header)), tokenizer_(tokenizer) {
  if (plan_.stream) return;
  choices_.resize(plan_.num_choices());
  if (plan_.prompt_scoring.list_alternatives) prompt_logprobs_.emplace(*plan_.prompt_scoring.list_alternatives);
}

Status ChatFormat::append_entries(const OutputDelta& delta, std::string& out) const {
  if (!plan_.logprobs) return Ok{};
  for (const OutputEntry& entry : delta.entries) {
    if (!out.empty()) out += ',';
    if (Status status = append_chat_entry(out, entry, tokenizer_, plan_.return_token_ids); !status) return status;
  }
  return Ok{};
}

Status ChatFormat::collect(Choice& choice, const OutputDelta& delta) const {
  choice.content += delta.text;
  if (plan_.return_token_ids) {
    choice.token_ids.insert(choice.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  }
  if (delta.finish) choice.finish = delta.finish;
  return append_entries(delta, choice.entries);
}

Status ChatFormat::take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) {
  if (!plan_.stream) {
    if (index == 0 && prompt_logprobs_) {  // all choices have one prompt
      if (Status status = prompt_logprobs_->append(delta.prompt); !status) return status;
    }
    return collect(choices_[static_cast<size_t>(index)], delta);
  }
  std::string entries;
  if (Status status = append_entries(delta, entries); !status) return status;  // before any byte: still a real status
  if (!begun_) begin_stream(progress, events);
  std::string content;
  JsonWriter json(content);
  json.begin_object().key("content").string(delta.text).end_object();
  const StreamOptions& options = plan_.stream_options;
  write_chunk({.index = index,
               .delta = content,
               .entries = entries,
               .finish = &delta.finish,
               .token_ids = plan_.return_token_ids ? &delta.token_ids : nullptr,
               .usage = options.include_usage && options.continuous_usage_stats ? &progress.usage : nullptr,
               .fingerprint = progress.last && delta.finish && !options.include_usage},
              events);
  return Ok{};
}

void ChatFormat::begin_stream(const ChoiceProgress& progress, std::string& events) {
  begun_ = true;
  const StreamOptions& options = plan_.stream_options;
  Usage none = progress.usage;
  none.completion_tokens = 0;
  Chunk chunk{.delta = R"({"role":"assistant","content":""})",
              .role = true,
              .first = true,
              .usage = options.include_usage && options.continuous_usage_stats ? &none : nullptr};
  for (chunk.index = 0; chunk.index < plan_.n; ++chunk.index) {
    write_chunk(chunk, events);
    chunk.first = false;
  }
  if (prompt_.echo_text.empty()) return;
  std::string echo;
  JsonWriter json(echo);
  json.begin_object().key("content").string(prompt_.echo_text).end_object();
  chunk.delta = echo;
  chunk.role = false;
  for (chunk.index = 0; chunk.index < plan_.n; ++chunk.index) write_chunk(chunk, events);
}

void ChatFormat::write_chunk(const Chunk& chunk, std::string& events) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header_, kChunkObject);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(chunk.index);
  json.key("delta").raw(chunk.delta);
  chunk.entries.empty() ? void(json.key("logprobs").null()) : write_entries(json, chunk.entries);
  const bool finished = chunk.finish && *chunk.finish;
  if (finished) {
    write_finish(json, *chunk.finish);
  } else {
    json.key("finish_reason").null();
  }
  if (!chunk.role) write_ids(json, "token_ids", chunk.token_ids);
  json.end_object().end_array();
  if (chunk.role) write_ids(json, "prompt_token_ids", chunk.first && plan_.return_token_ids ? &prompt_.ids : nullptr);
  if (chunk.first && prompt_.text) json.key("prompt_text").string(*prompt_.text);
  if (chunk.usage) write_chunk_usage(json, *chunk.usage);
  if (chunk.fingerprint) json.key("system_fingerprint").string(header_.fingerprint);
  json.end_object();
  events += sse_event(out);
}

void ChatFormat::end_stream(const Usage& usage, std::string& events) {
  if (plan_.stream_options.include_usage) events += sse_event(usage_chunk(header_, kChunkObject, usage));
  events += kSseDone;
}

void ChatFormat::fail_stream(const Error& error, std::string& events) { append_stream_error(events, error); }

std::string ChatFormat::choice_json(const Choice& choice, int64_t index) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.key("index").integer(index);
  json.key("message").begin_object();
  json.key("role").string("assistant");
  json.key("content").string(prompt_.echo_text + choice.content);
  for (const char* name : {"refusal", "annotations", "audio", "function_call", "reasoning"}) json.key(name).null();
  json.end_object();
  plan_.logprobs ? write_entries(json, choice.entries) : void(json.key("logprobs").null());
  write_finish(json, choice.finish);
  write_ids(json, "token_ids", plan_.return_token_ids ? &choice.token_ids : nullptr);
  json.end_object();
  return out;
}

std::string ChatFormat::reply(const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header_, kObject);
  json.key("choices").begin_array();
  for (size_t i = 0; i < choices_.size(); ++i) json.raw(choice_json(choices_[i], static_cast<int64_t>(i)));
  json.end_array();
  json.key("service_tier").null();
  json.key("system_fingerprint").string(header_.fingerprint);
  write_reply_usage(json, usage);
  write_prompt_logprobs(json, prompt_logprobs_);
  write_ids(json, "prompt_token_ids", plan_.return_token_ids ? &prompt_.ids : nullptr);
  json.key("prompt_text");
  prompt_.text ? json.string(*prompt_.text) : json.null();
  json.key("kv_transfer_params").null();
  json.end_object();
  return out;
}

}  // namespace helios
