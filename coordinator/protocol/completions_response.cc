#include "coordinator/protocol/completions_response.h"

#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

void write_header(JsonWriter& json, const ReplyHeader& header) {
  json.key("id").string(header.id);
  json.key("object").string("text_completion");
  json.key("created").integer(header.created);
  json.key("model").string(header.model);
}

void write_ids(JsonWriter& json, std::string_view name, const std::vector<TokenId>* ids) {
  json.key(name);
  if (!ids) {
    json.null();
    return;
  }
  json.begin_array();
  for (const TokenId id : *ids) json.integer(id);
  json.end_array();
}

void write_finish(JsonWriter& json, const std::optional<OutputFinish>& finish) {
  json.key("finish_reason");
  finish ? json.string(finish->reason) : json.null();
  json.key("stop_reason");
  if (finish && finish->stop_string) {
    json.string(*finish->stop_string);
  } else if (finish && finish->stop_token) {
    json.integer(*finish->stop_token);
  } else {
    json.null();
  }
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  if (!usage.cached_tokens) return;
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").integer(*usage.cached_tokens);
  json.end_object();
}

}  // namespace

Result<std::string> completion_chunk(const ReplyHeader& header, const CompletionChunk& chunk, const OutputDelta& delta,
                                     LogprobArrays& scratch) {
  scratch.clear();
  for (const OutputEntry& entry : delta.entries) {
    if (Status status = scratch.append(entry); !status) return status.error();
  }
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header);
  json.key("choices").begin_array().begin_object();
  json.key("index").integer(chunk.index);
  json.key("text");
  chunk.echo.empty() ? json.string(delta.text) : json.string(std::string(chunk.echo) + delta.text);
  std::string arrays;
  scratch.append_object_or_null(arrays);
  json.key("logprobs").raw(arrays);
  write_finish(json, delta.finish);
  write_ids(json, "prompt_token_ids", chunk.prompt_token_ids);
  write_ids(json, "token_ids", chunk.token_ids ? &delta.token_ids : nullptr);
  json.end_object().end_array();
  if (chunk.usage) {
    write_usage(json, *chunk.usage);
    json.end_object();
  }
  if (chunk.fingerprint) json.key("system_fingerprint").string(header.fingerprint);
  json.end_object();
  return out;
}

std::string usage_chunk(const ReplyHeader& header, const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header);
  json.key("choices").begin_array().end_array();
  write_usage(json, usage);
  json.end_object();
  json.key("system_fingerprint").string(header.fingerprint);
  json.end_object();
  return out;
}

Status CompletionChoice::append(const OutputDelta& delta) {
  text_ += delta.text;
  if (with_logprobs_) {
    for (const OutputEntry& entry : delta.entries) {
      if (Status status = logprobs_.append(entry); !status) return status;
    }
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
  json.key("prompt_logprobs").null();
  write_ids(json, "prompt_token_ids", with_ids_ ? &prompt_ids : nullptr);
  json.end_object();
}

std::string completion_reply(const ReplyHeader& header, std::string_view choices_json, const Usage& usage) {
  std::string out;
  out.reserve(choices_json.size() + 512);
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header);
  json.key("choices").begin_array().raw(choices_json).end_array();
  json.key("service_tier").null();
  json.key("system_fingerprint").string(header.fingerprint);
  write_usage(json, usage);
  if (!usage.cached_tokens) json.key("prompt_tokens_details").null();
  json.key("completion_tokens_details").null();
  json.end_object();
  json.key("kv_transfer_params").null();
  json.end_object();
  return out;
}

std::string sse_event(std::string_view json) {
  std::string event;
  event.reserve(json.size() + 8);
  event += "data: ";
  event += json;
  event += "\n\n";
  return event;
}

}  // namespace helios
