// Reads the JSON object of one tool call byte by byte: the function's name, and where its arguments lie.
//
// A strict reader of JSON with a stack of brackets, no tree and no text kept but the name, so that arguments can be
// passed on while they arrive. Thread: its owner's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace helios {

class CallScanner {
 public:
  enum class State {
    kMore,    // the object goes on
    kDone,    // this byte closed it
    kBroken,  // with this byte it is not JSON, or not a call; nothing more may be fed
  };

  /// `arguments_alone`: the object is the arguments, and the name stood elsewhere.
  explicit CallScanner(bool arguments_alone = false)
      : arguments_alone_(arguments_alone), arguments_begin_(arguments_alone ? 0 : -1) {}

  /// The object's next byte; the first one is its opening brace.
  State feed(char byte);

  bool has_name() const { return !name_.empty(); }
  const std::string& name() const { return name_; }
  /// Bytes from the object's opening brace to the arguments' own; -1 while unknown.
  int64_t arguments_begin() const { return arguments_begin_; }
  int64_t arguments_end() const { return arguments_end_; }

 private:
  enum class Expect {
    kValue,
    kValueOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kNumber
  };
  enum class Member { kOther, kName, kArguments };
  enum class Digits { kSign, kZero, kWhole, kPoint, kFraction, kExponent, kExponentSign, kExponentDigits };

  /// Whether what is read now is a member of a call's object.
  bool at_call() const { return open_.size() == 1 && !arguments_alone_; }
  State step(char byte);
  State begin_value(char byte);
  State open(char bracket);
  State close(char bracket);
  State string_byte(char byte);
  State end_string();
  State number_byte(char byte);
  State end_value();

  bool arguments_alone_;
  Expect expect_ = Expect::kValue;
  Member member_ = Member::kOther;  // whose value is read, at the object's own level
  Digits digits_ = Digits::kSign;
  bool string_is_key_ = false;
  bool has_arguments_ = false;
  int hex_left_ = 0;
  std::string_view literal_;  // what is left of true, false or null
  std::string open_;          // brackets, the object's own first
  std::string text_;          // of a key or name at the object's own level
  std::string name_;
  int64_t read_ = 0;
  int64_t arguments_begin_;
  int64_t arguments_end_ = -1;
};

}  // namespace helios
