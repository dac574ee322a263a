// The values of a template, with Python's meaning: truth, equality, order, hashing, item order.
//
// A Value is a kind and a word; what it points to lies in the Sandbox of the render (or, for constants, of the parsed
// template) and is never freed alone. Everything is immutable once built, except namespaces, cyclers, joiners and
// generators, as in Jinja's immutable sandbox. Thread: the one that renders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/template/big_int.h"
#include "coordinator/template/sandbox.h"

namespace helios::jinja {

enum class Kind : uint8_t {
  kAbsent,  // no such variable; never a value that a template sees
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kNamespace,
  kFunction,
  kMethod,
  kMacro,
  kLoop,
  kGenerator,
  kCycler,
  kJoiner,
};

struct Undefined;
struct BigIntData;
struct Text;
struct List;
class Dict;
struct DictView;
struct Range;
struct Function;
struct Method;
struct Macro;
struct Loop;
struct Generator;
struct Cycler;
struct Joiner;

struct Value {
  Kind kind = Kind::kNone;
  union {
    int64_t integer = 0;
    bool boolean;
    double real;
    const Undefined* undefined;
    const BigIntData* big;
    const Text* text;
    const List* list;  // kList, kTuple
    Dict* dict;        // kDict, kNamespace
    const DictView* view;
    const Range* range;
    const Function* function;
    const Method* method;
    const Macro* macro;
    Loop* loop;
    Generator* generator;
    Cycler* cycler;
    Joiner* joiner;
  };

  static Value absent() { return of(Kind::kAbsent); }
  static Value none() { return of(Kind::kNone); }
  static Value of(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
  static Value from(bool b) {
    Value v = of(Kind::kBool);
    v.boolean = b;
    return v;
  }
  static Value from(int64_t i) {
    Value v = of(Kind::kInt);
    v.integer = i;
    return v;
  }
  static Value from_size(size_t size) { return from(static_cast<int64_t>(size)); }
  static Value from(double d) {
    Value v = of(Kind::kFloat);
    v.real = d;
    return v;
  }
  static Value from(const Text* t) {
    Value v = of(Kind::kText);
    v.text = t;
    return v;
  }
  static Value from(const List* l, Kind kind = Kind::kList) {
    Value v = of(kind);
    v.list = l;
    return v;
  }
  static Value from(Dict* d, Kind kind = Kind::kDict) {
    Value v = of(kind);
    v.dict = d;
    return v;
  }

  bool is(Kind k) const { return kind == k; }
  bool is_text() const { return kind == Kind::kText; }
  bool is_sequence() const { return kind == Kind::kList || kind == Kind::kTuple; }
  /// bool counts, as in Python.
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kBigInt; }
  bool is_number() const { return is_integral() || kind == Kind::kFloat; }
  std::string_view str() const;  // Precondition: kText.
};
static_assert(sizeof(Value) == 16);

/// A missing variable or attribute: prints as nothing, is false and empty; anything else with it is an error.
struct Undefined {
  std::string_view name;
  std::string_view owner;  // "dict object" for a missing attribute; empty for a variable
  bool unsafe = false;     // exists in Python, and the sandbox denies it
};

struct BigIntData {
  bool negative;
  std::span<const uint32_t> limbs;
};

/// Room behind a text that was built by appending, so that the next append costs only what it adds.
struct TextTail {
  char* next;
  char* end;
};

struct Text {
  std::string_view bytes;
  mutable int64_t chars = -1;  // -1: not counted yet. Constants of a template are counted when it is parsed
  bool markup = false;         // escaped for HTML: a filter said so; + with it escapes the other side
  TextTail* tail = nullptr;
};

struct ListTail {
  Value* next;
  Value* end;
};

struct List {
  std::span<const Value> items;
  ListTail* tail = nullptr;
  bool group = false;  // a tuple with the names grouper and list (groupby)
};

/// Keys in insertion order; looked up by hash once there are more than a few.
class Dict {
 public:
  struct Entry {
    Value key, value;
    uint64_t hash;
  };

  std::span<const Entry> entries() const { return {entries_, size_}; }
  size_t size() const { return size_; }
  /// Null when absent. Errors (Fault): an unhashable key.
  const Value* find(Sandbox& box, Value key) const;
  const Value* find(Sandbox& box, std::string_view key) const;
  /// A known key keeps its place.
  void set(Sandbox& box, Value key, Value value);

 private:
  const Entry* find_hashed(Sandbox& box, Value key, uint64_t hash) const;
  void grow(Sandbox& box);
  void reindex(Sandbox& box);

  Entry* entries_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
  uint32_t* index_ = nullptr;  // open addressing, entry + 1, 0 is free; null while small
  uint32_t index_mask_ = 0;
};

struct DictView {
  enum class What : uint8_t { kKeys, kValues, kItems };
  const Dict* dict;
  What what;
};

struct Range {
  int64_t start, stop, step;
  size_t size;
};

struct Cycler {
  const List* items;
  size_t position;
};

struct Joiner {
  Value separator;
  bool used;
};

inline std::string_view Value::str() const { return text->bytes; }

// Makers. Those that take a view borrow it: it must outlive the render (input, template or arena).
Value borrow_text(Sandbox& box, std::string_view bytes, bool markup = false);
Value copy_text(Sandbox& box, std::string_view bytes, bool markup = false);
Value make_integer(Sandbox& box, const BigInt& value);
Value make_undefined(Sandbox& box, std::string_view name, std::string_view owner = {}, bool unsafe = false);
Value make_tuple(Sandbox& box, std::initializer_list<Value> items);
Value make_view(Sandbox& box, const Dict* dict, DictView::What what);

/// Grows an array in the sandbox.
class ListBuilder {
 public:
  explicit ListBuilder(Sandbox& box) : box_(box) {}
  void push(Value value);
  size_t size() const { return size_; }
  std::span<Value> items() { return {data_, size_}; }
  Value finish(Kind kind = Kind::kList);

 private:
  Sandbox& box_;
  Value* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

/// Grows a text in the sandbox, up to the output limit.
class TextBuilder {
 public:
  explicit TextBuilder(Sandbox& box) : box_(box) {}
  void append(std::string_view bytes);
  void append(char c) { append(std::string_view(&c, 1)); }
  std::string_view view() const { return {data_, size_}; }
  Value finish(bool markup = false) { return borrow_text(box_, view(), markup); }

 private:
  Sandbox& box_;
  char* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

/// Python's name of the type: "str", "NoneType".
std::string_view type_name(Value value);
/// What an error about an undefined value says. Ends the render.
[[noreturn]] void fail_undefined(const Undefined& undefined);
/// Errors with "'missing' is undefined" when the value is.
inline void need_defined(Value value) {
  if (value.is(Kind::kUndefined)) [[unlikely]]
    fail_undefined(*value.undefined);
}

bool truthy(Value value);
size_t num_chars(Sandbox& box, const Text& text);
BigInt to_big(Value integral);
double to_double(Value number);
/// As an index or count; a Fault for anything that is not an integer of 64 bits. `what` names it.
int64_t to_index(Value value, std::string_view what);

bool equals(Sandbox& box, Value a, Value b);
enum class Order : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };
bool compare(Sandbox& box, Order order, Value a, Value b);
uint64_t hash_of(Sandbox& box, Value value);

/// Concatenation that appends in place when the left text or list was the last one built there.
Value concat_text(Sandbox& box, const Text& a, std::string_view b);
Value concat_list(Sandbox& box, Value a, Value b);

}  // namespace helios::jinja
