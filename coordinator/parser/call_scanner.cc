// See call_scanner.h.
#include "coordinator/parser/call_scanner.h"

#include "coordinator/parser/output_parser.h"

namespace helios {
namespace {

constexpr size_t kMaxDepth = 64;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

CallScanner::State CallScanner::feed(char byte) {
  const State state = step(byte);
  ++read_;
  return state;
}

CallScanner::State CallScanner::step(char byte) {
  switch (expect_) {
    case Expect::kString:
    case Expect::kEscape:
    case Expect::kHex:
      return string_byte(byte);
    case Expect::kNumber:
      return number_byte(byte);
    case Expect::kLiteral:
      if (byte != literal_.front()) return State::kBroken;
      literal_.remove_prefix(1);
      return literal_.empty() ? end_value() : State::kMore;
    default:
      break;
  }
  if (is_space(byte)) return open_.empty() ? State::kBroken : State::kMore;
  switch (expect_) {
    case Expect::kKeyOrEnd:
      if (byte == '}') return close('{');
      [[fallthrough]];
    case Expect::kKey:
      if (byte != '"') return State::kBroken;
      string_is_key_ = true;
      text_.clear();
      expect_ = Expect::kString;
      return State::kMore;
    case Expect::kColon:
      if (byte != ':') return State::kBroken;
      expect_ = Expect::kValue;
      return State::kMore;
    case Expect::kCommaOrEnd:
      if (byte == '}') return close('{');
      if (byte == ']') return close('[');
      if (byte != ',') return State::kBroken;
      expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
      return State::kMore;
    case Expect::kValueOrEnd:
      if (byte == ']') return close('[');
      [[fallthrough]];
    default:
      return begin_value(byte);
  }
}

// The arguments must be an object and the name a string; whatever else the call's object holds may be anything.
CallScanner::State CallScanner::begin_value(char byte) {
  if (open_.empty() && byte != '{') return State::kBroken;
  if (at_call()) {
    if (member_ == Member::kArguments && byte != '{') return State::kBroken;
    if (member_ == Member::kName && byte != '"') return State::kBroken;
    if (member_ == Member::kArguments) arguments_begin_ = read_;
  }
  if (byte == '{' || byte == '[') return open(byte);
  if (byte == '"') {
    string_is_key_ = false;
    text_.clear();
    expect_ = Expect::kString;
    return State::kMore;
  }
  if (byte == '-' || is_digit(byte)) {
    digits_ = byte == '-' ? Digits::kSign : byte == '0' ? Digits::kZero : Digits::kWhole;
    expect_ = Expect::kNumber;
    return State::kMore;
  }
  literal_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : byte == 'n' ? "ull" : "";
  expect_ = Expect::kLiteral;
  return literal_.empty() ? State::kBroken : State::kMore;
}

CallScanner::State CallScanner::open(char bracket) {
  if (open_.size() == kMaxDepth) return State::kBroken;
  open_ += bracket;
  expect_ = bracket == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  return State::kMore;
}

CallScanner::State CallScanner::close(char bracket) {
  if (open_.back() != bracket) return State::kBroken;
  open_.pop_back();
  return end_value();
}

CallScanner::State CallScanner::string_byte(char byte) {
  if (expect_ == Expect::kHex) {
    if (!is_hex(byte)) return State::kBroken;
    if (--hex_left_ == 0) expect_ = Expect::kString;
    return State::kMore;
  }
  if (expect_ == Expect::kEscape) {
    if (std::string_view("\"\\/bfnrtu").find(byte) == std::string_view::npos) return State::kBroken;
    expect_ = byte == 'u' ? Expect::kHex : Expect::kString;
    hex_left_ = 4;
    return State::kMore;
  }
  if (byte == '"') return end_string();
  if (static_cast<unsigned char>(byte) < 0x20) return State::kBroken;
  if (byte == '\\') expect_ = Expect::kEscape;
  // Longer than any name that counts, or escaped, which no name needs to be: still JSON, but the empty text.
  const bool wanted = at_call() && (string_is_key_ || member_ == Member::kName);
  if (!wanted) return State::kMore;
  if (text_.size() > kMaxCallNameBytes || byte == '\\') {
    text_.assign(kMaxCallNameBytes + 1, '?');
  } else {
    text_ += byte;
  }
  return State::kMore;
}

CallScanner::State CallScanner::end_string() {
  const bool own_level = at_call();
  if (string_is_key_) {
    expect_ = Expect::kColon;
    if (!own_level) return State::kMore;
    const bool arguments = text_ == "arguments" || text_ == "parameters";
    member_ = arguments ? Member::kArguments : text_ == "name" ? Member::kName : Member::kOther;
    // Twice the same member leaves open which of them is meant.
    if (member_ == Member::kArguments && has_arguments_) return State::kBroken;
    if (member_ == Member::kName && has_name()) return State::kBroken;
    has_arguments_ |= arguments;
    return State::kMore;
  }
  if (own_level && member_ == Member::kName) {
    if (text_.empty() || text_.size() > kMaxCallNameBytes) return State::kBroken;
    name_ = text_;
  }
  return end_value();
}

// A number ends with the byte behind it, which is then read as what it is.
CallScanner::State CallScanner::number_byte(char byte) {
  const bool digit = is_digit(byte);
  const bool exponent = byte == 'e' || byte == 'E';
  switch (digits_) {
    case Digits::kSign:
      digits_ = byte == '0' ? Digits::kZero : Digits::kWhole;
      return digit ? State::kMore : State::kBroken;
    case Digits::kPoint:
      digits_ = Digits::kFraction;
      return digit ? State::kMore : State::kBroken;
    case Digits::kExponent:
      digits_ = digit ? Digits::kExponentDigits : Digits::kExponentSign;
      return digit || byte == '+' || byte == '-' ? State::kMore : State::kBroken;
    case Digits::kExponentSign:
      digits_ = Digits::kExponentDigits;
      return digit ? State::kMore : State::kBroken;
    case Digits::kWhole:
    case Digits::kFraction:
    case Digits::kExponentDigits:
      if (digit) return State::kMore;
      break;
    case Digits::kZero:
      break;
  }
  if (byte == '.' && (digits_ == Digits::kZero || digits_ == Digits::kWhole)) {
    digits_ = Digits::kPoint;
    return State::kMore;
  }
  if (exponent && digits_ != Digits::kExponentDigits) {
    digits_ = Digits::kExponent;
    return State::kMore;
  }
  end_value();
  return step(byte);
}

CallScanner::State CallScanner::end_value() {
  expect_ = Expect::kCommaOrEnd;
  if (open_.empty()) {
    if (arguments_alone_) arguments_end_ = read_ + 1;
    return State::kDone;
  }
  if (at_call()) {
    if (member_ == Member::kArguments) arguments_end_ = read_ + 1;
    member_ = Member::kOther;
  }
  return State::kMore;
}

}  // namespace helios
