// The part of a request that a chat template turns into a prompt: messages, tools, and how to write them out.
//
// Kept as the request's own JSON text, since templates print numbers as they were written. Chat and /tokenize read it
// from their bodies; an endpoint with other items can build one. Thread: any.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "coordinator/template/chat_template.h"

namespace helios {

class JsonFields;

struct Conversation {
  std::string messages;   // a JSON array
  std::string tools;      // a JSON array, or empty
  std::string documents;  // a JSON array, or empty
  std::string kwargs;     // a JSON object, or empty
  std::string reasoning_effort;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string final_assistant_text;  // what the last message says, if the assistant said it
  std::optional<Error> malformed;    // the first fault in the form of the messages; told in its turn
};

/// none, minimal, low, medium, high, xhigh or max.
bool is_reasoning_effort(std::string_view effort);

/// `body`: the JSON that `fields` reads. `fields` keeps a member of the wrong type as its error.
void read_conversation(JsonFields& fields, std::string_view body, Conversation* out);

/// The chat templates of the served model, or why there are none.
struct ChatTemplates {
  std::shared_ptr<const ChatTemplate> loaded;  // null: none
  std::string reason;                          // then: why, one line
};

/// The prompt's text. Errors: kInvalidArgument with the field; what the template's raise_exception says is one.
Result<std::string> render_conversation(const Conversation& conversation, const ChatTemplates& templates);

}  // namespace helios
