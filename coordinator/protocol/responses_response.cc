#include "coordinator/protocol/responses_response.h"

#include <utility>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/identity.h"
#include "coordinator/protocol/json_writer.h"

namespace helios {

ResponsesFormat::ResponsesFormat(const GenerationPlan& plan, ReplyHeader header, ResponsesEcho echoed,
                                 const Tokenizer& tokenizer)
    : stream_(plan.stream),
      header_(std::move(header)),
      echoed_(std::move(echoed)),
      parallel_calls_(plan.parsing.parallel_tool_calls),
      parser_(plan.parsing.format, plan.parsing.in_reasoning),
      output_(tokenizer, numbered_) {}

void ResponsesFormat::begin_stream(std::string& events) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    numbered_.write(
        type, [this](JsonWriter& json) { write_response(json.key("response"), "in_progress", nullptr, ""); }, &events);
  }
}

Status ResponsesFormat::take(int64_t, const OutputDelta& delta, const ChoiceProgress&, std::string& events) {
  std::string* out = stream_ ? &events : nullptr;
  entries_.push(delta.entries);
  parser_.push(delta.text, &pieces_);
  if (delta.finish) {
    parser_.finish(&pieces_);
    cut_off_ = delta.finish->reason == "length";
  }
  reasoning_tokens_.push(delta.token_starts, parser_, delta.finish.has_value());
  if (Status status = take_pieces(out); !status) return status;
  if (delta.finish) output_.finish(!cut_off_, out);
  return Ok{};
}

Status ResponsesFormat::take_pieces(std::string* out) {
  for (const OutputPiece& piece : pieces_) {
    if (!parallel_calls_ && piece.tool_index > 0) continue;
    HELIOS_RETURN_IF_ERROR(output_.take(piece, entries_, out));
  }
  pieces_.clear();
  entries_.drop_before(parser_.decided());
  return Ok{};
}

void ResponsesFormat::end_stream(const Usage& usage, std::string& events) {
  const std::string type = "response." + std::string(final_status());
  numbered_.write(
      type, [&](JsonWriter& json) { write_response(json.key("response"), final_status(), &usage, ""); }, &events);
}

void ResponsesFormat::fail_stream(const Error& error, std::string& events) {
  const ApiError api = to_api_error(error);
  std::string failure;
  JsonWriter writer(failure);
  writer.begin_object().key("code").string("server_error").key("message").string(api.message).end_object();
  numbered_.write(
      "error",
      [&](JsonWriter& json) {
        json.key("code").string("server_error").key("message").string(api.message).key("param").null();
      },
      &events);
  numbered_.write(
      "response.failed", [&](JsonWriter& json) { write_response(json.key("response"), "failed", nullptr, failure); },
      &events);
}

std::string ResponsesFormat::reply(const Usage& usage) {
  std::string out;
  JsonWriter json(out);
  write_response(json, final_status(), &usage, "");
  return out;
}

void ResponsesFormat::write_response(JsonWriter& json, std::string_view status, const Usage* usage,
                                     std::string_view error) const {
  json.begin_object();
  json.key("id").string(header_.id).key("object").string("response").key("created_at").integer(header_.created);
  json.key("completed_at");
  status == "completed" ? json.integer(unix_seconds()) : json.null();
  json.key("status").string(status);
  json.key("error").raw(error.empty() ? "null" : error);
  json.key("incomplete_details").raw(status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null");
  json.key("instructions").raw(echoed_.instructions).key("metadata").raw(echoed_.metadata);
  json.key("model").string(header_.model);
  json.key("output").begin_array().raw(output_.items()).end_array();
  json.key("parallel_tool_calls").boolean(echoed_.parallel_tool_calls);
  json.key("previous_response_id").null().key("prompt").null().key("reasoning").raw(echoed_.reasoning);
  json.key("background").boolean(false).key("max_output_tokens").raw(echoed_.max_output_tokens);
  json.key("max_tool_calls").raw(echoed_.max_tool_calls).key("service_tier").string("auto");
  json.key("temperature").raw(echoed_.temperature).key("text").raw(echoed_.text);
  json.key("tool_choice").raw(echoed_.tool_choice).key("tools").raw(echoed_.tools);
  json.key("top_logprobs").integer(echoed_.top_logprobs).key("top_p").raw(echoed_.top_p);
  json.key("truncation").raw(echoed_.truncation);
  json.key("usage");
  if (usage) {
    json.begin_object().key("input_tokens").integer(usage->prompt_tokens);
    json.key("input_tokens_details").begin_object();
    json.key("cached_tokens").integer(usage->cached_tokens.value_or(0)).key("cache_write_tokens").integer(0);
    json.end_object();
    json.key("output_tokens").integer(usage->completion_tokens);
    json.key("output_tokens_details")
        .begin_object()
        .key("reasoning_tokens")
        .integer(reasoning_tokens_.count())
        .end_object();
    json.key("total_tokens").integer(usage->prompt_tokens + usage->completion_tokens).end_object();
  } else {
    json.null();
  }
  json.key("user").raw(echoed_.user).end_object();
}

}  // namespace helios
