#include "coordinator/protocol/completions_request.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_fields.h"
#include "coordinator/protocol/structured_output_fields.h"

namespace helios {
namespace json = boost::json;
namespace {

constexpr std::string_view kPromptForms =
    "prompt: expected a string, an array of strings, an array of token ids, or an array of arrays of token ids";

Error bad_prompt(const json::value& found) {
  return invalid_argument("prompt", fmt::format("{}; found {}", kPromptForms, kind_of(found)));
}

/// A whole number outside int64 is not a type error: it is an id that no vocabulary has.
Result<int64_t> prompt_id(const json::value& value) {
  if (const std::optional<int64_t> id = integer_value(value)) return *id;
  if (value.is_uint64()) return invalid_argument("prompt", "prompt: a token id is out of vocabulary");
  if (const double* number = value.if_double(); number && (*number > 9e18 || *number < -9e18)) {
    return invalid_argument("prompt", "prompt: a token id is out of vocabulary");
  }
  return bad_prompt(value);
}

Result<std::vector<int64_t>> prompt_ids(const json::array& array) {
  std::vector<int64_t> ids;
  ids.reserve(array.size());
  for (const json::value& element : array) {
    Result<int64_t> id = prompt_id(element);
    if (!id) return id.error();
    ids.push_back(*id);
  }
  return ids;
}

/// The first element decides which form it is; a mixed list is refused.
Result<PromptField> read_prompt(const json::value& value) {
  PromptField prompt{.present = true};
  if (value.is_string()) {
    prompt.texts.emplace_back(value.get_string().data(), value.get_string().size());
    return prompt;
  }
  if (!value.is_array()) return bad_prompt(value);
  const json::array& array = value.get_array();
  if (array.empty()) return prompt;
  if (array[0].is_number()) {
    Result<std::vector<int64_t>> ids = prompt_ids(array);
    if (!ids) return ids.error();
    prompt.ids.push_back(std::move(*ids));
    return prompt;
  }
  for (const json::value& element : array) {
    if (element.kind() != array[0].kind()) return bad_prompt(element);
    if (element.is_string()) {
      prompt.texts.emplace_back(element.get_string().data(), element.get_string().size());
    } else if (element.is_array()) {
      Result<std::vector<int64_t>> ids = prompt_ids(element.get_array());
      if (!ids) return ids.error();
      prompt.ids.push_back(std::move(*ids));
    } else {
      return bad_prompt(element);
    }
  }
  return prompt;
}

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

/// true is 1 and false is absent, since other servers' clients send booleans here.
void read_logprobs(JsonFields& fields, std::optional<int64_t>* out) {
  const json::value* value = fields.find("logprobs");
  if (value && value->is_bool()) {
    if (value->get_bool()) *out = 1;
    return;
  }
  fields.integer("logprobs", out);
}

void read_stream_options(JsonFields& fields, CompletionsRequest* request) {
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

void read_sampling(JsonFields& fields, CompletionsRequest* request) {
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
  read_stop(fields, &request->stop);
  std::optional<std::vector<int64_t>> stop_ids;
  fields.integers("stop_token_ids", &stop_ids);
  if (stop_ids) request->stop_token_ids = std::move(*stop_ids);
  fields.boolean("ignore_eos", &request->ignore_eos);
}

void read_presentation(JsonFields& fields, CompletionsRequest* request) {
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
  read_logprobs(fields, &request->logprobs);
  fields.integers("logprob_token_ids", &request->logprob_token_ids);
  fields.integer("prompt_logprobs", &request->prompt_logprobs);
}

void read_refused_unless_neutral(JsonFields& fields, CompletionsRequest* request) {
  fields.number("length_penalty", &request->length_penalty);
  fields.boolean("use_beam_search", &request->use_beam_search);
  std::optional<std::vector<std::string>> bad_words;
  fields.strings("bad_words", &bad_words);
  if (bad_words) request->bad_words = std::move(*bad_words);
  request->structured = read_structured_output(fields);
  fields.string("suffix", &request->suffix);
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

Result<CompletionsRequest> parse_completions_request(std::string_view body) {
  Result<json::object> object = parse_json_object(body);
  if (!object) return object.error();
  JsonFields fields(*object);
  CompletionsRequest request;
  fields.string("model", &request.model);
  fields.string("request_id", &request.request_id);
  if (const json::value* prompt = fields.find("prompt")) {
    Result<PromptField> read = read_prompt(*prompt);
    if (read) {
      request.prompt = std::move(*read);
    } else {
      fields.fail(read.error());
    }
  }
  read_sampling(fields, &request);
  read_presentation(fields, &request);
  read_refused_unless_neutral(fields, &request);
  fields.integer("priority", &request.priority);
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace helios
