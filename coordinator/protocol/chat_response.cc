#include "coordinator/protocol/chat_response.h"

#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/logprob_json.h"

namespace helios {
namespace {

constexpr std::string_view kObject = "chat.completion";
constexpr std::string_view kChunkObject = "chat.completion.chunk";

/// A call, or in a stream the next part of one: only its first part says what is called.
void write_call(JsonWriter& json, const ParsedDelta::Call& call, bool streamed) {
  json.begin_object();
  if (streamed) json.key("index").integer(call.index);
  if (!call.id.empty()) {
    json.key("id").string(call.id);
    json.key("type").string("function");
  }
  json.key("function").begin_object();
  if (!call.name.empty()) json.key("name").string(call.name);
  json.key("arguments").string(call.arguments);
  json.end_object().end_object();
}

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

ChatFormat::ChatFormat(const GenerationPlan& plan, ReplyHeader header, const Tokenizer& tokenizer,
                       bool reasoning_content)
    : plan_(plan),
      prompt_(plan.prompts.front()),
      header_(std::move(header)),
      tokenizer_(tokenizer),
      reasoning_content_(reasoning_content),
      chunk_head_(chunk_head(header_, kChunkObject)) {
  choices_.reserve(plan_.num_choices());
  for (size_t i = 0; i < plan_.num_choices(); ++i) choices_.emplace_back(plan_.parsing);
  const std::optional<int32_t> scored = plan_.prompt_scoring.list_alternatives;
  if (scored && !plan_.stream) prompt_logprobs_.emplace(*scored);
}

Status ChatFormat::append_entries(const OutputDelta& delta, std::string& out) const {
  if (!plan_.logprobs) return Ok{};
  for (const OutputEntry& entry : delta.entries) {
    if (!out.empty()) out += ',';
    if (Status status = append_chat_entry(out, entry, tokenizer_, plan_.return_token_ids); !status) return status;
  }
  return Ok{};
}

std::optional<OutputFinish> ChatFormat::finish_of(const Choice& choice, const OutputDelta& delta) const {
  std::optional<OutputFinish> finish = delta.finish;
  const bool calls = plan_.parsing.calls_finish && choice.parsed.num_calls() > 0;
  if (finish && finish->reason == "stop" && calls) finish->reason = "tool_calls";
  return finish;
}

void ChatFormat::collect(Choice& choice, ParsedDelta parsed, const OutputDelta& delta, std::string entries) const {
  choice.reasoning += parsed.reasoning;
  choice.content += parsed.content;
  for (ParsedDelta::Call& call : parsed.calls) {
    if (call.name.empty()) {
      choice.calls.back().arguments += call.arguments;
    } else {
      choice.calls.push_back(std::move(call));
    }
  }
  if (!entries.empty()) choice.entries += (choice.entries.empty() ? "" : ",") + entries;
  if (with_ids()) choice.token_ids.insert(choice.token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  choice.finish = finish_of(choice, delta);
}

Status ChatFormat::take(int64_t index, const OutputDelta& delta, const ChoiceProgress& progress, std::string& events) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (index == 0 && prompt_logprobs_) {  // all choices have one prompt
    if (Status status = prompt_logprobs_->append(delta.prompt); !status) return status;
  }
  std::string entries;
  if (Status status = append_entries(delta, entries); !status) return status;  // before any byte: still a real status
  ParsedDelta parsed = choice.parsed.push(delta);
  if (plan_.parsing.hides_reasoning()) parsed.reasoning.clear();
  if (!plan_.stream) {
    collect(choice, std::move(parsed), delta, std::move(entries));
    return Ok{};
  }
  if (!begun_) begin_stream(progress, events);
  const std::string text = delta_json(choice, parsed, delta.finish.has_value());
  if (text.empty() && entries.empty() && !with_ids() && !running_usage()) return Ok{};
  const std::optional<OutputFinish> finish = finish_of(choice, delta);
  Usage usage = progress.usage;
  if (plan_.parsing.count_reasoning) usage.reasoning_tokens = choice.parsed.reasoning_tokens();
  write_chunk({.index = index,
               .delta = text.empty() ? "{}" : text,
               .entries = entries,
               .finish = &finish,
               .token_ids = with_ids() ? &delta.token_ids : nullptr,
               .usage = running_usage() ? &usage : nullptr,
               .fingerprint = progress.last && delta.finish && !plan_.stream_options.include_usage},
              events);
  return Ok{};
}

std::string ChatFormat::delta_json(const Choice& choice, const ParsedDelta& parsed, bool finished) const {
  // Where the text is told apart, a step may say nothing; elsewhere every step says what text it added, if any.
  const bool nothing = parsed.reasoning.empty() && parsed.content.empty() && parsed.calls.empty();
  if (nothing && finished && choice.parsed.num_calls() > 0) return "{}";
  if (nothing && !finished && plan_.parsing.active()) return "";
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  if (!parsed.reasoning.empty()) write_reasoning(json, parsed.reasoning);
  if (!parsed.content.empty() || nothing) json.key("content").string(parsed.content);
  if (!parsed.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ParsedDelta::Call& call : parsed.calls) write_call(json, call, true);
    json.end_array();
  }
  json.end_object();
  return out;
}

void ChatFormat::write_reasoning(JsonWriter& json, const std::string& text) const {
  json.key("reasoning").string(text);
  if (reasoning_content_) json.key("reasoning_content").string(text);
}

void ChatFormat::begin_stream(const ChoiceProgress& progress, std::string& events) {
  begun_ = true;
  Usage none = progress.usage;
  none.completion_tokens = 0;
  Chunk chunk{.delta = R"({"role":"assistant","content":""})",
              .role = true,
              .first = true,
              .usage = running_usage() ? &none : nullptr};
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
  events += chunk_head_;
  JsonWriter json(events);
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
  events += kSseEnd;
}

void ChatFormat::end_stream(const Usage& usage, std::string& events) {
  if (plan_.stream_options.include_usage)
    events += sse_event(usage_chunk(header_, kChunkObject, with_reasoning(usage)));
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
  const std::string content = prompt_.echo_text + choice.content;
  json.key("content");
  // Reasoning or calls alone are no content, not an empty one.
  content.empty() && !(choice.reasoning.empty() && choice.calls.empty()) ? json.null() : json.string(content);
  for (const char* name : {"refusal", "annotations", "audio", "function_call"}) json.key(name).null();
  if (!choice.calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ParsedDelta::Call& call : choice.calls) write_call(json, call, false);
    json.end_array();
  }
  choice.reasoning.empty() ? void(json.key("reasoning").null()) : write_reasoning(json, choice.reasoning);
  json.end_object();
  plan_.logprobs ? write_entries(json, choice.entries) : void(json.key("logprobs").null());
  write_finish(json, choice.finish);
  write_ids(json, "token_ids", with_ids() ? &choice.token_ids : nullptr);
  json.end_object();
  return out;
}

Usage ChatFormat::with_reasoning(Usage usage) const {
  if (!plan_.parsing.count_reasoning) return usage;
  usage.reasoning_tokens = 0;
  for (const Choice& choice : choices_) *usage.reasoning_tokens += choice.parsed.reasoning_tokens();
  return usage;
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
  write_reply_usage(json, with_reasoning(usage));
  write_prompt_logprobs(json, prompt_logprobs_);
  write_ids(json, "prompt_token_ids", plan_.return_token_ids ? &prompt_.ids : nullptr);
  json.key("prompt_text");
  prompt_.text ? json.string(*prompt_.text) : json.null();
  json.key("kv_transfer_params").null();
  json.end_object();
  return out;
}

}  // namespace helios
