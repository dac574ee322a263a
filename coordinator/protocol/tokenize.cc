#include "coordinator/protocol/tokenize.h"

#include <fmt/format.h>

#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/json_fields.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

void write_string_or_null(JsonWriter& json, std::string_view name, std::string_view text) {
  json.key(name);
  text.empty() ? json.null() : json.string(text);
}

/// What is to be tokenized: the prompt, or what the chat template makes of the messages.
Result<std::string> text_to_tokenize(JsonFields& fields, std::string_view body, std::optional<std::string> prompt,
                                     const ChatTemplates& templates) {
  if (prompt) {
    if (fields.find("messages")) return invalid_argument("messages", "send either prompt or messages");
    return std::move(*prompt);
  }
  if (!fields.find("messages")) return invalid_argument("prompt", "prompt or messages is required");
  Conversation conversation;
  read_conversation(fields, body, &conversation);
  if (fields.failed()) return fields.error();
  return render_conversation(conversation, templates);
}

}  // namespace

Result<std::string> tokenize_reply(std::string_view body, const Tokenizer& tokenizer, const ChatTemplates& templates,
                                   const ServedModel& model, std::optional<int64_t> max_model_len) {
  Result<boost::json::object> object = parse_json_object(body);
  if (!object) return object.error();
  JsonFields fields(*object);
  std::optional<std::string> name, prompt;
  bool add_special_tokens = !fields.find("messages"), return_token_strs = false;
  fields.string("model", &name);
  fields.string("prompt", &prompt);
  fields.boolean("add_special_tokens", &add_special_tokens);
  fields.boolean("return_token_strs", &return_token_strs);
  if (fields.failed()) return fields.error();
  if (Status status = check_model(name, model); !status) return status.error();
  const std::string field = prompt ? "prompt" : "messages";
  const Result<std::string> text = text_to_tokenize(fields, body, std::move(prompt), templates);
  if (!text) return text.error();
  Result<std::vector<TokenId>> ids = tokenizer.encode(*text, add_special_tokens);
  if (!ids) return invalid_argument(field, field + ": " + ids.error().message);

  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.key("count").integer(static_cast<int64_t>(ids->size()));
  json.key("max_model_len");
  max_model_len ? json.integer(*max_model_len) : json.null();
  json.key("tokens").begin_array();
  for (const TokenId id : *ids) json.integer(id);
  json.end_array();
  json.key("token_strs");
  if (return_token_strs) {
    json.begin_array();
    for (const TokenId id : *ids) json.string(tokenizer.piece(id));
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return out;
}

Result<std::string> detokenize_reply(std::string_view body, const Tokenizer& tokenizer, const ServedModel& model,
                                     int64_t vocab_size) {
  Result<boost::json::object> object = parse_json_object(body);
  if (!object) return object.error();
  JsonFields fields(*object);
  std::optional<std::string> name;
  std::optional<std::vector<int64_t>> tokens;
  fields.string("model", &name);
  fields.integers("tokens", &tokens);
  if (fields.failed()) return fields.error();
  if (Status status = check_model(name, model); !status) return status.error();
  if (!tokens) return invalid_argument("tokens", "tokens is required");
  std::vector<TokenId> ids;
  ids.reserve(tokens->size());
  for (const int64_t id : *tokens) {
    if (id < 0 || id >= vocab_size) {
      return invalid_argument("tokens", fmt::format("tokens: {} is out of vocabulary, [0, {})", id, vocab_size));
    }
    if (tokenizer.contains(static_cast<TokenId>(id))) ids.push_back(static_cast<TokenId>(id));
  }
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.key("prompt").string(tokenizer.decode(ids, false));
  json.end_object();
  return out;
}

std::string tokenizer_info_reply(const Tokenizer& tokenizer, const ChatTemplates& templates) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_string_or_null(json, "tokenizer_class", tokenizer.tokenizer_class());
  write_string_or_null(json, "bos_token", tokenizer.bos_token());
  write_string_or_null(json, "eos_token", tokenizer.eos_token());
  write_string_or_null(json, "pad_token", tokenizer.pad_token());
  write_string_or_null(json, "chat_template",
                       templates.loaded ? templates.loaded->source() : tokenizer.chat_template());
  json.end_object();
  return out;
}

}  // namespace helios
