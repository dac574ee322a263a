#include "coordinator/protocol/models.h"

#include "common/contract/completion_layout.h"
#include "coordinator/protocol/json_writer.h"
#include "coordinator/protocol/validation.h"

namespace helios {
namespace {

/// Like the model's name, the permission's id must not change from call to call.
std::string permission_id(const ServedModel& model) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  std::string digits;
  for (const char c : model.name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  constexpr char kHex[] = "0123456789abcdef";
  for (int i = 0; i < 32; ++i) {
    digits += kHex[hash >> 60];
    hash = hash * 6364136223846793005u + 1442695040888963407u;
  }
  return "modelperm-" + digits;
}

void write_permission(JsonWriter& json, const ServedModel& model, bool allow_logprobs) {
  json.begin_object();
  json.key("id").string(permission_id(model));
  json.key("object").string("model_permission");
  json.key("created").integer(model.created);
  json.key("allow_create_engine").boolean(false);
  json.key("allow_sampling").boolean(true);
  json.key("allow_logprobs").boolean(allow_logprobs);  // R34
  json.key("allow_search_indices").boolean(false);
  json.key("allow_view").boolean(true);
  json.key("allow_fine_tuning").boolean(false);
  json.key("organization").string("*");
  json.key("group").null();
  json.key("is_blocking").boolean(false);
  json.end_object();
}

void write_card(JsonWriter& json, const ServedModel& model, const std::optional<Capabilities>& capabilities) {
  json.begin_object();
  json.key("id").string(model.name);
  json.key("object").string("model");
  json.key("created").integer(model.created);
  json.key("owned_by").string("helios");
  json.key("root").string(model.root);
  json.key("parent").null();
  json.key("max_model_len");
  capabilities ? json.integer(context_limit(*capabilities)) : json.null();
  const int max_top = capabilities ? capabilities->max_logprobs : 0;
  json.key("permission").begin_array();
  write_permission(json, model, max_top > 0);
  json.end_array();
  json.key("logprobs").begin_object();
  json.key("max_top").integer(max_top);
  json.key("max_token_ids").integer(capabilities && capabilities->logprob_token_ids ? kMaxSelectedIds : 0);
  json.key("prompt").boolean(capabilities && capabilities->prompt_scoring);  // R45
  json.end_object();
  json.end_object();
}

}  // namespace

std::string models_reply(const ServedModel& model, const std::optional<Capabilities>& capabilities) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.key("object").string("list");
  json.key("data").begin_array();
  write_card(json, model, capabilities);
  json.end_array().end_object();
  return out;
}

Result<std::string> model_reply(const std::string& id, const ServedModel& model,
                                const std::optional<Capabilities>& capabilities) {
  if (id.empty()) return Error{Errc::kNotFound, "no model is named in the path", "model"};
  if (Status status = check_model(id, model); !status) return status.error();
  std::string out;
  JsonWriter json(out);
  write_card(json, model, capabilities);
  return out;
}

}  // namespace helios
