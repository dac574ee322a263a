#include "coordinator/protocol/parsed_choice.h"

#include <utility>

#include "coordinator/protocol/identity.h"

namespace helios {

ParsedChoice::ParsedChoice(const OutputParsing& parsing)
    : parallel_calls_(parsing.parallel_tool_calls), parser_(parsing.format, parsing.in_reasoning) {}

ParsedDelta ParsedChoice::push(const OutputDelta& delta) {
  pieces_.clear();
  parser_.push(delta.text, &pieces_);
  if (delta.finish) parser_.finish(&pieces_);
  ParsedDelta out;
  for (OutputPiece& piece : pieces_) {
    switch (piece.kind) {
      case OutputPiece::Kind::kReasoning:
        out.reasoning += piece.text;
        break;
      case OutputPiece::Kind::kContent:
        out.content += piece.text;
        break;
      default:
        add_call_piece(std::move(piece), &out);
    }
  }
  reasoning_tokens_.push(delta.token_starts, parser_, delta.finish.has_value());
  return out;
}

void ParsedChoice::add_call_piece(OutputPiece piece, ParsedDelta* out) {
  if (piece.tool_index > 0 && !parallel_calls_) return;  // the client wants one call
  if (out->calls.empty() || out->calls.back().index != piece.tool_index) {
    out->calls.push_back({.index = piece.tool_index, .id = "", .name = "", .arguments = ""});
  }
  ParsedDelta::Call& call = out->calls.back();
  if (piece.kind == OutputPiece::Kind::kToolCall) {
    ++num_calls_;
    call.id = "chatcmpl-tool-" + random_hex();
    call.name = std::move(piece.text);
  } else if (piece.kind == OutputPiece::Kind::kToolArguments) {
    call.arguments += piece.text;
  } else if (call.name.empty() && call.arguments.empty()) {
    out->calls.pop_back();  // an end alone tells a chat client nothing
  }
}

}  // namespace helios
