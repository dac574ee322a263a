// See responses_output.h.
#include "coordinator/protocol/responses_output.h"

#include "common/base/check.h"
#include "coordinator/protocol/api_error.h"
#include "coordinator/protocol/identity.h"
#include "coordinator/protocol/logprob_json.h"

namespace helios {
namespace {

using Kind = OutputPiece::Kind;

void write_list(JsonWriter& json, std::string_view key, std::string_view elements) {
  json.key(key).begin_array().raw(elements).end_array();
}

}  // namespace

void ResponseEvents::write(std::string_view type, const Members& members, std::string* out) {
  if (!out) return;
  *out += "event: ";
  *out += type;
  *out += "\ndata: ";
  JsonWriter json(*out);
  json.begin_object().key("type").string(type).key("sequence_number").integer(sequence_++);
  members(json);
  json.end_object();
  *out += "\n\n";
}

Status ResponsesOutput::take(const OutputPiece& piece, ContentEntries& entries, std::string* out) {
  switch (piece.kind) {
    case Kind::kReasoning:
      if (open_ != Open::kReasoning) open(Open::kReasoning, "", out);
      return append_text(piece, entries, out);
    case Kind::kContent:
      if (open_ != Open::kMessage) open(Open::kMessage, "", out);
      return append_text(piece, entries, out);
    case Kind::kToolCall:
      open(Open::kCall, piece.text, out);
      return Ok{};
    case Kind::kToolArguments:
      HELIOS_CHECK(open_ == Open::kCall, piece.begin);
      text_ += piece.text;
      events_.write(
          "response.function_call_arguments.delta",
          [&](JsonWriter& json) {
            json.key("item_id").string(id_).key("output_index").integer(num_items_);
            json.key("delta").string(piece.text);
          },
          out);
      return Ok{};
    case Kind::kToolCallEnd:
      call_is_whole_ = true;
      close(true, out);
      return Ok{};
  }
  return Ok{};
}

Status ResponsesOutput::append_text(const OutputPiece& piece, ContentEntries& entries, std::string* out) {
  text_ += piece.text;
  const bool message = open_ == Open::kMessage;
  std::string new_entries;
  if (message) {
    for (const OutputEntry& entry : entries.take(piece.begin, piece.end)) {
      if (!new_entries.empty()) new_entries += ',';
      HELIOS_RETURN_IF_ERROR(append_chat_entry(new_entries, entry, tokenizer_, false));
    }
    if (!entries_.empty() && !new_entries.empty()) entries_ += ',';
    entries_ += new_entries;
  }
  events_.write(
      message ? "response.output_text.delta" : "response.reasoning_text.delta",
      [&](JsonWriter& json) {
        write_place(json);
        json.key("delta").string(piece.text);
        if (message) write_list(json, "logprobs", new_entries);
      },
      out);
  return Ok{};
}

void ResponsesOutput::open(Open kind, std::string_view name, std::string* out) {
  close(true, out);
  open_ = kind;
  name_ = name;
  call_is_whole_ = false;
  id_ = (kind == Open::kReasoning ? "rs_" : kind == Open::kMessage ? "msg_" : "fc_") + random_hex();
  if (kind == Open::kCall) call_id_ = "call_" + random_hex();
  events_.write(
      "response.output_item.added",
      [&](JsonWriter& json) {
        json.key("output_index").integer(num_items_).key("item").raw(item("in_progress", false));
      },
      out);
  if (kind == Open::kCall) return;
  events_.write(
      "response.content_part.added",
      [&](JsonWriter& json) {
        write_place(json);
        json.key("part").raw(part(false));
      },
      out);
}

void ResponsesOutput::close(bool whole, std::string* out) {
  if (open_ == Open::kNothing) return;
  const bool call = open_ == Open::kCall, message = open_ == Open::kMessage;
  const std::string_view type = call      ? "response.function_call_arguments.done"
                                : message ? "response.output_text.done"
                                          : "response.reasoning_text.done";
  events_.write(
      type,
      [&](JsonWriter& json) {
        if (call) {
          json.key("item_id").string(id_).key("output_index").integer(num_items_);
          json.key("arguments").string(text_).key("name").string(name_);
          return;
        }
        write_place(json);
        json.key("text").string(text_);
        if (message) write_list(json, "logprobs", entries_);
      },
      out);
  if (!call) {
    events_.write(
        "response.content_part.done",
        [&](JsonWriter& json) {
          write_place(json);
          json.key("part").raw(part(true));
        },
        out);
  }
  const std::string done = item(whole && (!call || call_is_whole_) ? "completed" : "incomplete", true);
  events_.write(
      "response.output_item.done",
      [&](JsonWriter& json) { json.key("output_index").integer(num_items_).key("item").raw(done); }, out);
  if (!items_.empty()) items_ += ',';
  items_ += done;
  ++num_items_;
  open_ = Open::kNothing;
  text_.clear();
  entries_.clear();
}

void ResponsesOutput::finish(bool whole, std::string* out) {
  if (open_ == Open::kNothing && num_items_ == 0) open(Open::kMessage, "", out);
  close(whole, out);
}

std::string ResponsesOutput::part(bool with_content) const {
  std::string out;
  JsonWriter json(out);
  const bool message = open_ == Open::kMessage;
  json.begin_object().key("type").string(message ? "output_text" : "reasoning_text");
  json.key("text").string(with_content ? text_ : "");
  if (message) {
    json.key("annotations").begin_array().end_array();
    write_list(json, "logprobs", with_content ? entries_ : "");
  }
  json.end_object();
  return out;
}

std::string ResponsesOutput::item(std::string_view status, bool with_content) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  switch (open_) {
    case Open::kCall:
      json.key("type").string("function_call").key("id").string(id_).key("call_id").string(call_id_);
      json.key("name").string(name_).key("arguments").string(with_content ? text_ : "");
      break;
    case Open::kMessage:
      json.key("type").string("message").key("id").string(id_).key("role").string("assistant");
      write_list(json, "content", with_content ? part(true) : "");
      break;
    case Open::kReasoning:
    case Open::kNothing:
      json.key("type").string("reasoning").key("id").string(id_).key("summary").begin_array().end_array();
      write_list(json, "content", with_content ? part(true) : "");
      break;
  }
  json.key("status").string(status).end_object();
  return out;
}

void ResponsesOutput::write_place(JsonWriter& json) const {
  json.key("item_id").string(id_).key("output_index").integer(num_items_).key("content_index").integer(0);
}

}  // namespace helios
