#include "coordinator/protocol/completions_request.h"

#include <fmt/format.h>
#include <boost/json/array.hpp>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_fields.h"

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

/// true is 1 and false is absent, since other servers' clients send booleans here.
void read_logprobs(JsonFields& fields, std::optional<int64_t>* out) {
  const json::value* value = fields.find("logprobs");
  if (value && value->is_bool()) {
    if (value->get_bool()) *out = 1;
    return;
  }
  fields.integer("logprobs", out);
}

}  // namespace

Result<CompletionsRequest> parse_completions_request(std::string_view body) {
  Result<json::object> object = parse_json_object(body);
  if (!object) return object.error();
  JsonFields fields(*object);
  CompletionsRequest request;
  if (const json::value* prompt = fields.find("prompt")) {
    Result<PromptField> read = read_prompt(*prompt);
    if (read) {
      request.prompt = std::move(*read);
    } else {
      fields.fail(read.error());
    }
  }
  read_logprobs(fields, &request.logprobs);
  read_generation_fields(fields, &request);
  if (fields.failed()) return fields.error();
  return request;
}

}  // namespace helios
