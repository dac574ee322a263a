#include "coordinator/template/value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

constexpr uint32_t kIndexedFrom = 8;
constexpr int kUnordered = 2;

int order_of(double a, double b) { return a < b ? -1 : a > b ? 1 : a == b ? 0 : kUnordered; }

// -1, 0, 1, or kUnordered with a NaN; exact between integers and floats.
int compare_numbers(Value a, Value b) {
  const auto small = [](Value v) { return v.is(Kind::kInt) || v.is(Kind::kBool); };
  const auto as_int = [](Value v) { return v.is(Kind::kBool) ? int64_t{v.boolean} : v.integer; };
  if (small(a) && small(b)) return as_int(a) < as_int(b) ? -1 : as_int(a) > as_int(b) ? 1 : 0;
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat)) return order_of(a.real, b.real);
  if (b.is(Kind::kFloat)) {
    const int order = compare_numbers(b, a);
    return order == kUnordered ? order : -order;
  }
  if (a.is(Kind::kFloat)) {
    if (std::isnan(a.real)) return kUnordered;
    if (std::isinf(a.real)) return a.real < 0 ? -1 : 1;
    const int order = BigInt::from_double(a.real).compare(to_big(b));
    if (order != 0) return order;
    const double rest = a.real - std::trunc(a.real);
    return order_of(rest, 0.0);
  }
  return to_big(a).compare(to_big(b));
}

uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

uint64_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

bool equal_items(Sandbox& box, std::span<const Value> a, std::span<const Value> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals(box, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Sandbox& box, const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    const Value* other = b.find(box, entry.key);
    if (!other || !equals(box, entry.value, *other)) return false;
  }
  return true;
}

bool holds(Order order, int sign) {
  switch (order) {
    case Order::kLess:
      return sign == -1;
    case Order::kLessEqual:
      return sign == -1 || sign == 0;
    case Order::kGreater:
      return sign == 1;
    case Order::kGreaterEqual:
      return sign == 1 || sign == 0;
  }
  return false;
}

int sign_of(int order) { return order < 0 ? -1 : order > 0 ? 1 : 0; }

constexpr std::string_view kOrderNames[] = {"<", "<=", ">", ">="};

}  // namespace

Value borrow_text(Sandbox& box, std::string_view bytes, bool markup) {
  return Value::from(box.make<Text>(Text{bytes, -1, markup, nullptr}));
}

Value copy_text(Sandbox& box, std::string_view bytes, bool markup) {
  box.scan(bytes.size());
  return borrow_text(box, box.copy(bytes), markup);
}

Value make_integer(Sandbox& box, const BigInt& value) {
  if (const auto small = value.to_int64()) return Value::from(*small);
  auto* limbs = box.make_array<uint32_t>(value.limbs().size());
  std::copy(value.limbs().begin(), value.limbs().end(), limbs);
  Value out = Value::of(Kind::kBigInt);
  out.big = box.make<BigIntData>(BigIntData{value.negative(), {limbs, value.limbs().size()}});
  return out;
}

Value make_undefined(Sandbox& box, std::string_view name, std::string_view owner, bool unsafe) {
  Value out = Value::of(Kind::kUndefined);
  out.undefined = box.make<Undefined>(Undefined{name, owner, unsafe});
  return out;
}

Value make_tuple(Sandbox& box, std::initializer_list<Value> items) {
  auto* data = box.make_array<Value>(items.size());
  std::copy(items.begin(), items.end(), data);
  return Value::from(box.make<List>(List{{data, items.size()}, nullptr, false}), Kind::kTuple);
}

Value make_view(Sandbox& box, const Dict* dict, DictView::What what) {
  Value out = Value::of(Kind::kDictView);
  out.view = box.make<DictView>(DictView{dict, what});
  return out;
}

void ListBuilder::push(Value value) {
  box_.step();
  if (size_ == capacity_) {
    const size_t capacity = std::max<size_t>(8, capacity_ * 2);
    const size_t more = (capacity - capacity_) * sizeof(Value);
    if (!data_ || !box_.extend(reinterpret_cast<const char*>(data_ + capacity_), more)) {
      auto* grown = box_.make_array<Value>(capacity);
      std::copy(data_, data_ + size_, grown);
      data_ = grown;
    }
    capacity_ = capacity;
  }
  data_[size_++] = value;
}

Value ListBuilder::finish(Kind kind) {
  return Value::from(box_.make<List>(List{{data_, size_}, nullptr, false}), kind);
}

void TextBuilder::append(std::string_view bytes) {
  box_.step(bytes.size() / 64);
  const size_t limit = box_.limits().max_output_bytes;
  if (bytes.size() > limit - size_) {
    throw Fault{Errc::kTooLarge, "the text grows beyond " + std::to_string(limit) + " bytes"};
  }
  if (bytes.size() > capacity_ - size_) {
    const size_t capacity = (std::max({size_t{256}, capacity_ * 2, size_ + bytes.size()}) + 7) & ~size_t{7};
    if (!data_ || !box_.extend(data_ + capacity_, capacity - capacity_)) {
      auto* grown = static_cast<char*>(box_.allocate(capacity));
      if (size_ > 0) std::memcpy(grown, data_, size_);
      data_ = grown;
    }
    capacity_ = capacity;
  }
  if (!bytes.empty()) std::memcpy(data_ + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

uint64_t hash_of(Sandbox& box, Value value) {
  switch (value.kind) {
    case Kind::kNone:
      return 0x9D39247E;
    case Kind::kBool:
      return mix(value.boolean ? 1 : 0);
    case Kind::kInt:
      return mix(static_cast<uint64_t>(value.integer));
    case Kind::kBigInt: {
      uint64_t h = value.big->negative ? 7 : 3;
      for (const uint32_t limb : value.big->limbs) h = mix(h ^ limb);
      return h;
    }
    case Kind::kFloat:
      if (std::isfinite(value.real) && value.real == std::trunc(value.real)) {
        return hash_of(box, make_integer(box, BigInt::from_double(value.real)));  // 1.0 and 1 are one key
      }
      return mix(std::bit_cast<uint64_t>(value.real));
    case Kind::kText:
      box.scan(value.str().size());
      return hash_text(value.str());
    case Kind::kTuple: {
      const Nested nested(box);
      uint64_t h = 0x345678;
      for (const Value item : value.list->items) h = mix(h ^ hash_of(box, item));
      return h;
    }
    case Kind::kList:
    case Kind::kDict:
      fail(cat("unhashable type: '", type_name(value), "'"));
    default:
      return mix(static_cast<uint64_t>(value.integer));  // identity: every other member of the union is a pointer
  }
}

const Value* Dict::find(Sandbox& box, Value key) const {
  if (size_ == 0) {
    if (key.is(Kind::kList) || key.is(Kind::kDict)) hash_of(box, key);  // unhashable is an error all the same
    return nullptr;
  }
  const Entry* entry = find_hashed(box, key, hash_of(box, key));
  return entry ? &entry->value : nullptr;
}

const Value* Dict::find(Sandbox& box, std::string_view key) const {
  if (!index_) {
    for (uint32_t i = 0; i < size_; ++i) {
      if (entries_[i].key.is_text() && entries_[i].key.str() == key) return &entries_[i].value;
    }
    return nullptr;
  }
  const Text text{key};
  return find(box, Value::from(&text));
}

const Dict::Entry* Dict::find_hashed(Sandbox& box, Value key, uint64_t hash) const {
  if (!index_) {
    for (uint32_t i = 0; i < size_; ++i) {
      if (entries_[i].hash == hash && equals(box, entries_[i].key, key)) return &entries_[i];
    }
    return nullptr;
  }
  for (uint64_t at = hash;; ++at) {
    const uint32_t slot = index_[at & index_mask_];
    if (slot == 0) return nullptr;
    box.step();  // keys chosen to collide are paid for
    const Entry& entry = entries_[slot - 1];
    if (entry.hash == hash && equals(box, entry.key, key)) return &entry;
  }
}

void Dict::set(Sandbox& box, Value key, Value value) {
  const uint64_t hash = hash_of(box, key);
  if (const Entry* known = find_hashed(box, key, hash)) {
    const_cast<Entry*>(known)->value = value;
    return;
  }
  if (size_ == capacity_) grow(box);
  entries_[size_++] = {key, value, hash};
  if (!index_) return;
  uint64_t at = hash;
  while (index_[at & index_mask_] != 0) ++at;
  index_[at & index_mask_] = size_;
}

void Dict::grow(Sandbox& box) {
  const uint32_t capacity = std::max<uint32_t>(4, capacity_ * 2);
  auto* grown = box.make_array<Entry>(capacity);
  std::copy(entries_, entries_ + size_, grown);
  entries_ = grown;
  capacity_ = capacity;
  if (capacity > kIndexedFrom) reindex(box);
}

void Dict::reindex(Sandbox& box) {
  const uint32_t slots = capacity_ * 2;  // capacity is a power of two times four: so is this
  index_ = box.make_array<uint32_t>(slots);
  std::fill(index_, index_ + slots, 0);
  index_mask_ = slots - 1;
  for (uint32_t i = 0; i < size_; ++i) {
    uint64_t at = entries_[i].hash;
    while (index_[at & index_mask_] != 0) {
      ++at;
      box.step();
    }
    index_[at & index_mask_] = i + 1;
  }
}

std::string_view type_name(Value value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return value.text->markup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return value.list->group ? "_GroupTuple" : "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      return value.view->what == DictView::What::kKeys     ? "dict_keys"
             : value.view->what == DictView::What::kValues ? "dict_values"
                                                           : "dict_items";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kGenerator:
      return "generator";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

void fail_undefined(const Undefined& undefined) {
  const std::string_view name = undefined.name.substr(0, byte_of_char(undefined.name, 80));
  if (undefined.unsafe) {
    fail(cat("access to attribute '", name, "' of '", undefined.owner.substr(0, undefined.owner.find(' ')),
             "' object is unsafe"));
  }
  if (undefined.owner.empty()) fail(cat("'", name, "' is undefined"));
  fail(cat("'", undefined.owner, "' has no attribute '", name, "'"));
}

bool truthy(Value value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kText:
      return !value.str().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.list->items.empty();
    case Kind::kDict:
      return value.dict->size() != 0;
    case Kind::kDictView:
      return value.view->dict->size() != 0;
    case Kind::kRange:
      return value.range->size != 0;
    default:
      return true;
  }
}

size_t num_chars(Sandbox& box, const Text& text) {
  if (text.chars < 0) {
    box.scan(text.bytes.size());
    text.chars = static_cast<int64_t>(count_chars(text.bytes));
  }
  return static_cast<size_t>(text.chars);
}

BigInt to_big(Value v) {
  if (v.is(Kind::kBigInt)) return BigInt(v.big->negative, v.big->limbs);
  return BigInt(v.is(Kind::kBool) ? int64_t{v.boolean} : v.integer);
}

double to_double(Value v) {
  if (v.is(Kind::kFloat)) return v.real;
  const double out = to_big(v).to_double();
  if (std::isinf(out)) fail("int too large to convert to float");
  return out;
}

int64_t to_index(Value value, std::string_view what) {
  need_defined(value);
  if (value.is(Kind::kBool)) return value.boolean ? 1 : 0;
  if (value.is(Kind::kInt)) return value.integer;
  if (value.is(Kind::kBigInt)) fail(cat(what, " does not fit 64 bits"));
  fail(cat(what, ": expected an integer, got '", type_name(value), "'"));
}

bool equals(Sandbox& box, Value a, Value b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      if (a.str().size() != b.str().size()) return false;
      box.step(a.str().size() / 64);
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple: {
      const Nested nested(box);
      box.step();
      return equal_items(box, a.list->items, b.list->items);
    }
    case Kind::kDict: {
      const Nested nested(box);
      box.step();
      return equal_dicts(box, *a.dict, *b.dict);
    }
    case Kind::kRange:
      return a.range->size == b.range->size &&
             (a.range->size == 0 ||
              (a.range->start == b.range->start && (a.range->size == 1 || a.range->step == b.range->step)));
    default:
      return a.integer == b.integer;  // identity
  }
}

bool compare(Sandbox& box, Order order, Value a, Value b) {
  need_defined(a);
  need_defined(b);
  box.step();
  if (a.is_number() && b.is_number()) return holds(order, compare_numbers(a, b));
  if (a.is_text() && b.is_text()) {
    box.step(std::min(a.str().size(), b.str().size()) / 64);
    return holds(order, sign_of(a.str().compare(b.str())));  // UTF-8 sorts as its characters do
  }
  if (a.is_sequence() && a.kind == b.kind) {
    const Nested nested(box);
    const auto x = a.list->items, y = b.list->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(box, x[i], y[i])) return compare(box, order, x[i], y[i]);
    }
    return holds(order, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
  }
  fail(cat("'", kOrderNames[static_cast<int>(order)], "' not supported between instances of '", type_name(a), "' and '",
           type_name(b), "'"));
}

Value concat_text(Sandbox& box, const Text& a, std::string_view b) {
  const size_t size = a.bytes.size() + b.size();
  if (size > box.limits().max_output_bytes) {
    throw Fault{Errc::kTooLarge, "the text grows beyond " + std::to_string(box.limits().max_output_bytes) + " bytes"};
  }
  if (b.empty()) return borrow_text(box, a.bytes, a.markup);
  TextTail* tail = a.tail;
  if (tail && a.bytes.data() + a.bytes.size() == tail->next &&
      b.size() <= static_cast<size_t>(tail->end - tail->next)) {
    box.scan(b.size());
    std::memcpy(tail->next, b.data(), b.size());
    tail->next += b.size();
    return Value::from(box.make<Text>(Text{{a.bytes.data(), size}, -1, a.markup, tail}));
  }
  box.scan(size);
  const size_t capacity = size < 256 ? size : 2 * size;
  auto* data = static_cast<char*>(box.allocate(capacity));
  if (!a.bytes.empty()) std::memcpy(data, a.bytes.data(), a.bytes.size());
  std::memcpy(data + a.bytes.size(), b.data(), b.size());
  tail = capacity == size ? nullptr : box.make<TextTail>(TextTail{data + size, data + capacity});
  return Value::from(box.make<Text>(Text{{data, size}, -1, a.markup, tail}));
}

Value concat_list(Sandbox& box, Value a, Value b) {
  const auto x = a.list->items, y = b.list->items;
  const size_t size = x.size() + y.size();
  ListTail* tail = a.list->tail;
  if (tail && x.data() + x.size() == tail->next && y.size() <= static_cast<size_t>(tail->end - tail->next)) {
    box.step(1 + y.size());
    tail->next = std::copy(y.begin(), y.end(), tail->next);
    return Value::from(box.make<List>(List{{x.data(), size}, tail, false}), a.kind);
  }
  box.step(1 + size);
  const size_t capacity = size < 16 ? size : 2 * size;
  auto* data = box.make_array<Value>(capacity);
  std::copy(y.begin(), y.end(), std::copy(x.begin(), x.end(), data));
  tail = capacity == size ? nullptr : box.make<ListTail>(ListTail{data + size, data + capacity});
  return Value::from(box.make<List>(List{{data, size}, tail, false}), a.kind);
}

}  // namespace helios::jinja
