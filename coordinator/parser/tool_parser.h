// Takes tool calls out of a model's content, with their delimiters and the whitespace around them.
//
// A call is one from the moment its name is known and its arguments have begun: from there on they are passed on as
// they arrive, broken or not. Until then everything is held, and released as content when it turns out to be no call.
// Thread: its owner's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/parser/call_scanner.h"
#include "coordinator/parser/output_parser.h"
#include "coordinator/parser/pending_text.h"

namespace helios {

class ToolParser {
 public:
  explicit ToolParser(ToolFormat format);

  /// The next part of the content, at `begin` in the source; parts are consecutive. Appends kContent and kTool* pieces.
  void push(std::string_view text, int64_t begin, std::vector<OutputPiece>* out);
  void finish(std::vector<OutputPiece>* out);

  bool undecided() const { return !pending_.view().empty(); }
  int64_t decided() const { return pending_.begin(); }

 private:
  enum class Stage {
    kText,
    kHead,  // behind an opening delimiter, the name or the arguments still to come
    kArguments,
    kTail,    // of the call's object, behind its arguments
    kAfter,   // behind the object: is there another one?
    kBroken,  // the arguments are no JSON: all up to the closing delimiter
  };
  struct Delimiters {
    std::string_view open, close;  // close may be empty: calls end with their JSON
    char separator;                // between calls behind one opening; 0: each has its own
    bool bracket;                  // the calls are a JSON array, or have their names before them
    bool bare;                     // a call may also start the content without any delimiter
  };
  static Delimiters delimiters_of(ToolFormat format);

  /// One decision; false when it takes more text.
  bool step(bool at_end, std::vector<OutputPiece>* out);
  bool step_text(bool at_end, std::vector<OutputPiece>* out);
  bool step_head(bool at_end, std::vector<OutputPiece>* out);
  bool step_arguments(std::vector<OutputPiece>* out);
  bool step_tail();
  bool step_after(bool at_end);
  bool step_broken(bool at_end, std::vector<OutputPiece>* out);

  /// Pending now begins with `space` bytes of whitespace and `delimiter` bytes that open a call.
  void begin_head(size_t space, size_t delimiter, bool bracket);
  enum class Head { kMore, kCall, kNone };
  Head scan_head();
  /// Of a call whose name stands before its arguments: NAME, perhaps [CALL_ID] and an id, perhaps [ARGS].
  Head scan_named_head();
  void end_call();
  void emit(OutputPiece::Kind kind, size_t size, std::vector<OutputPiece>* out);
  void emit_mark(OutputPiece::Kind kind, std::string text, int64_t begin, int64_t end, std::vector<OutputPiece>* out);

  const Delimiters format_;
  Stage stage_ = Stage::kText;
  PendingText pending_;
  bool at_start_ = true;        // nothing but whitespace so far
  bool strip_leading_ = false;  // whitespace that comes next belongs to a delimiter
  bool open_ = false;           // a call's closing delimiter has not come yet
  int64_t num_calls_ = 0;

  // Of the call being read.
  CallScanner scanner_;
  std::string name_;
  bool need_bracket_ = false;
  size_t space_ = 0, head_ = 0;  // pending bytes: whitespace, and with the opening delimiter
  size_t scanned_ = 0;           // pending bytes looked at
  int64_t object_ = -1;          // where its object begins in the source; -1: not yet
};

}  // namespace helios
