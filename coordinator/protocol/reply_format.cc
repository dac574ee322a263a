#include "coordinator/protocol/reply_format.h"

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

/// Details that are absent are null in a plain reply, and left out of a chunk.
void write_details(JsonWriter& json, std::string_view name, std::string_view member, std::optional<int64_t> count,
                   bool with_null) {
  if (count) {
    json.key(name).begin_object().key(member).integer(*count).end_object();
  } else if (with_null) {
    json.key(name).null();
  }
}

void write_usage(JsonWriter& json, const Usage& usage, bool with_null) {
  json.key("usage").begin_object();
  json.key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  write_details(json, "prompt_tokens_details", "cached_tokens", usage.cached_tokens, with_null);
  write_details(json, "completion_tokens_details", "reasoning_tokens", usage.reasoning_tokens, with_null);
  json.end_object();
}

}  // namespace

void write_header(JsonWriter& json, const ReplyHeader& header, std::string_view object) {
  json.key("id").string(header.id);
  json.key("object").string(object);
  json.key("created").integer(header.created);
  json.key("model").string(header.model);
}

void write_stop_reason(JsonWriter& json, const std::optional<OutputFinish>& finish) {
  json.key("stop_reason");
  if (finish && finish->stop_string) {
    json.string(*finish->stop_string);
  } else if (finish && finish->stop_token) {
    json.integer(*finish->stop_token);
  } else {
    json.null();
  }
}

void write_finish(JsonWriter& json, const std::optional<OutputFinish>& finish) {
  json.key("finish_reason");
  finish ? json.string(finish->reason) : json.null();
  write_stop_reason(json, finish);
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

void write_chunk_usage(JsonWriter& json, const Usage& usage) { write_usage(json, usage, false); }
void write_reply_usage(JsonWriter& json, const Usage& usage) { write_usage(json, usage, true); }

std::string usage_chunk(const ReplyHeader& header, std::string_view object, const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header, object);
  json.key("choices").begin_array().end_array();
  write_chunk_usage(json, usage);
  json.key("system_fingerprint").string(header.fingerprint);
  json.end_object();
  return out;
}

std::string chunk_head(const ReplyHeader& header, std::string_view object) {
  std::string out(kSseBegin);
  JsonWriter json(out);
  json.begin_object();
  write_header(json, header, object);
  json.key("choices").begin_array().begin_object();
  return out;
}

std::string sse_event(std::string_view json) {
  std::string event;
  event.reserve(json.size() + kSseBegin.size() + kSseEnd.size());
  event += kSseBegin;
  event += json;
  event += kSseEnd;
  return event;
}

void append_stream_error(std::string& events, const Error& error) {
  events += sse_event(error_json(error));
  events += kSseDone;
}

}  // namespace helios
