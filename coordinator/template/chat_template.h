// Messages to prompt text, as the model's own chat template writes it.
//
// Loaded from a model directory the way transformers does: chat_template.jinja, else the chat_template of
// tokenizer_config.json (one template or a named list), else chat_template.json; additional_chat_templates/*.jinja by
// name. Parsed once, immutable; thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace helios {

namespace jinja {
class JinjaTemplate;
}

/// What one chat request gives its template. JSON is given as text: the request's own bytes keep numbers exact (see
/// raw_json_member).
struct ChatTemplateInput {
  std::string_view messages;          // an array
  std::string_view tools;             // an array; empty or "null": none
  std::string_view documents;         // an array; empty or "null": none
  std::string_view kwargs;            // chat_template_kwargs: an object; empty or "null": none
  std::string_view template_name;     // of a named list; empty: tool_use when there are tools, else default
  std::string_view reasoning_effort;  // sets reasoning_effort and enable_thinking, where kwargs do not; empty: neither
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  /// False: messages go to the template as they are (as transformers' apply_chat_template does), not as the chat API
  /// means them.
  bool from_chat_api = true;
  std::chrono::system_clock::time_point now = std::chrono::system_clock::now();
};

class ChatTemplate {
 public:
  /// Errors: kNotFound when the directory has no chat template at all (a base model); kCorruptFile, kUnsupported, with
  /// path and line. `file`, when not empty, is read as the default template in place of the model's own.
  static Result<std::shared_ptr<const ChatTemplate>> load(const std::string& model_dir, const std::string& file = "");
  /// One template from its source; `special_tokens`: an object of names to strings, may be empty.
  static Result<std::shared_ptr<const ChatTemplate>> from_source(std::string_view source,
                                                                 std::string_view special_tokens = {});
  ~ChatTemplate();

  /// The prompt's text; it spells its own special tokens, so it is tokenized without adding any. Errors, all the
  /// request's: kInvalidArgument with `param` set, kTooLarge. What raise_exception says is the whole message.
  Result<std::string> render(const ChatTemplateInput& input) const;

  /// The source that a request without tools uses; for /tokenizer_info.
  std::string_view source() const;
  /// The one that a request with tools uses.
  std::string_view tool_source() const;
  std::vector<std::string_view> names() const;

 private:
  struct Named;
  ChatTemplate();
  Status add(std::string name, std::string_view source);
  Result<const Named*> choose(const ChatTemplateInput& input) const;

  std::map<std::string, std::unique_ptr<const Named>, std::less<>> templates_;
  std::string special_tokens_ = "{}";  // JSON
};

/// The text of member `name` in the JSON object `body`, which must be valid JSON; of repeated names the last, however
/// each is escaped. Empty when there is none.
std::string_view raw_json_member(std::string_view body, std::string_view name);

}  // namespace helios
