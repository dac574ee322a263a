#include "coordinator/protocol/generation_request.h"

#include "coordinator/protocol/json_fields.h"
#include "coordinator/protocol/structured_output_fields.h"

namespace helios {
namespace json = boost::json;
namespace {

void read_stop(JsonFields& fields, std::vector<std::string>* stop) {
  const json::value* value = fields.find("stop");
  if (!value) return;
  if (value->is_string()) {
    stop->emplace_back(value->get_string().data(), value->get_string().size());
    return;
  }
  if (!value->is_array()) return fields.fail("stop", "a string or an array of strings", *value);
  std::optional<std::vector<std::string>> list;
  fields.strings("stop", &list);
  if (list) *stop = std::move(*list);
}

void read_stream_options(JsonFields& fields, GenerationRequest* request) {
  const json::object* object = fields.object("stream_options");
  if (!object) return;
  request->has_stream_options = !object->empty();
  JsonFields nested(*object, "stream_options.");
  nested.boolean("include_usage", &request->stream_options.include_usage);
  nested.boolean("continuous_usage_stats", &request->stream_options.continuous_usage_stats);
  if (nested.failed()) fields.fail(nested.error());
}

void read_logit_bias(JsonFields& fields, std::vector<std::pair<std::string, double>>* out) {
  const json::object* object = fields.object("logit_bias");
  if (!object) return;
  JsonFields nested(*object, "logit_bias.");
  for (const auto& member : *object) {
    const std::string id(member.key().data(), member.key().size());
    std::optional<double> bias;
    nested.number(id, &bias);
    if (nested.failed()) return fields.fail(nested.error());
    out->emplace_back(id, bias.value_or(0.0));
  }
}

void read_sampling(JsonFields& fields, GenerationRequest* request) {
  fields.integer("max_tokens", &request->max_tokens);
  fields.integer("min_tokens", &request->min_tokens);
  fields.integer("n", &request->n);
  fields.integer("best_of", &request->best_of);
  fields.number("temperature", &request->temperature);
  fields.number("top_p", &request->top_p);
  fields.integer("top_k", &request->top_k);
  fields.number("min_p", &request->min_p);
  fields.integer("seed", &request->seed);
  fields.number("presence_penalty", &request->presence_penalty);
  fields.number("frequency_penalty", &request->frequency_penalty);
  fields.number("repetition_penalty", &request->repetition_penalty);
  read_logit_bias(fields, &request->logit_bias);
  fields.integers("allowed_token_ids", &request->allowed_token_ids);
  std::optional<std::vector<std::string>> bad_words;
  fields.strings("bad_words", &bad_words);
  if (bad_words) request->bad_words = std::move(*bad_words);
  read_stop(fields, &request->stop);
  std::optional<std::vector<int64_t>> stop_ids;
  fields.integers("stop_token_ids", &stop_ids);
  if (stop_ids) request->stop_token_ids = std::move(*stop_ids);
  fields.boolean("ignore_eos", &request->ignore_eos);
}

void read_presentation(JsonFields& fields, GenerationRequest* request) {
  fields.boolean("echo", &request->echo);
  fields.integer("truncate_prompt_tokens", &request->truncate_prompt_tokens);
  fields.string("truncation_side", &request->truncation_side);
  fields.boolean("stream", &request->stream);
  fields.integer("stream_interval", &request->stream_interval);
  read_stream_options(fields, request);
  fields.boolean("include_stop_str_in_output", &request->include_stop_str_in_output);
  fields.boolean("skip_special_tokens", &request->skip_special_tokens);
  fields.boolean("add_special_tokens", &request->add_special_tokens);
  fields.boolean("return_tokens_as_token_ids", &request->return_tokens_as_token_ids);
  fields.boolean("return_token_ids", &request->return_token_ids);
  bool ignored = false;  // the decoder never puts spaces between special tokens: either value gives the same text
  fields.boolean("spaces_between_special_tokens", &ignored);
  fields.integers("logprob_token_ids", &request->logprob_token_ids);
  fields.integer("prompt_logprobs", &request->prompt_logprobs);
}

void read_refused_unless_neutral(JsonFields& fields, GenerationRequest* request) {
  fields.number("length_penalty", &request->length_penalty);
  fields.boolean("use_beam_search", &request->use_beam_search);
  fields.string("suffix", &request->suffix);
  request->structured = read_structured_output(fields);
  fields.string("cache_salt", &request->cache_salt);
  if (const json::value* budget = fields.find("thinking_token_budget")) {
    if (!budget->is_int64())
      fields.fail("thinking_token_budget", "an integer", *budget);
    else
      request->thinking_token_budget = budget->get_int64();
  }
  for (const char* name : {"prompt_embeds", "kv_transfer_params", "repetition_detection", "logits_processors"}) {
    if (fields.find(name) && request->unbuilt_field.empty()) request->unbuilt_field = name;
  }
}

}  // namespace

void read_generation_fields(JsonFields& fields, GenerationRequest* request) {
  fields.string("model", &request->model);
  fields.string("request_id", &request->request_id);
  read_sampling(fields, request);
  read_presentation(fields, request);
  read_refused_unless_neutral(fields, request);
  fields.integer("priority", &request->priority);
}

}  // namespace helios
