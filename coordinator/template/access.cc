// How a template reaches into values: attributes, items, slices, iteration, membership, length.
//
// Python's rules as Jinja's sandbox applies them: value.name looks at the type's attributes first and then at the keys,
// value['name'] the other way round, and what could change a value is undefined. Thread: the one that renders.
#include <algorithm>
#include <charconv>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {

namespace {

Value loop_cycle(Evaluator&, Value self, const Args& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[static_cast<size_t>(self.loop->index0) % args.positional.size()];
}

Value loop_changed(Evaluator& ev, Value self, const Args& args) {
  auto* items = ev.box().make_array<Value>(args.positional.size());
  std::copy(args.positional.begin(), args.positional.end(), items);
  const Value now =
      Value::from(ev.box().make<List>(List{{items, args.positional.size()}, nullptr, false}), Kind::kTuple);
  const bool changed = self.loop->last_changed.is(Kind::kAbsent) || !equals(ev.box(), self.loop->last_changed, now);
  self.loop->last_changed = now;
  return Value::from(changed);
}

Value cycler_next(Evaluator&, Value self, const Args& args) {
  bind_arguments("next", args, {}, 0, {});
  Cycler& cycler = *self.cycler;
  const Value out = cycler.items->items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items->items.size();
  return out;
}

Value cycler_reset(Evaluator&, Value self, const Args& args) {
  bind_arguments("reset", args, {}, 0, {});
  self.cycler->position = 0;
  return Value::none();
}

constexpr Method kLoopCycle{{}, "cycle", loop_cycle};
constexpr Method kLoopChanged{{}, "changed", loop_changed};
constexpr Method kCyclerNext{{}, "next", cycler_next};
constexpr Method kCyclerReset{{}, "reset", cycler_reset};

Value bind_method(Evaluator& ev, const Method& method, Value self) {
  Value out = Value::of(Kind::kMethod);
  out.method = ev.box().make<Method>(Method{self, method.name, method.call});
  return out;
}

// "str object", as Jinja's messages name the owner of a missing attribute.
std::string_view owner_name(Evaluator& ev, Value value) {
  if (value.is(Kind::kNone)) return "None";
  return ev.box().copy(cat(type_name(value), " object"));
}

// What a sandbox hides: anything with a leading underscore that Python has, and methods that change their object.
bool changes_its_object(Value value, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (value.is(Kind::kList) && has(kList)) || (value.is(Kind::kDict) && has(kDict));
}

bool is_python_internal(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "__class__",        "__doc__", "__init__",         "__dict__",   "__module__",   "__eq__",   "__repr__",
      "__str__",          "__new__", "__getattribute__", "__reduce__", "__sizeof__",   "__hash__", "__ne__",
      "__subclasshook__", "__len__", "__getitem__",      "__iter__",   "__contains__", "__add__",  "__format__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Attributes of the Python type, data or method; absent when there is none.
Value type_attribute(Evaluator& ev, Value value, std::string_view name) {
  if (name.starts_with('_')) {
    return is_python_internal(name) ? make_undefined(ev.box(), name, owner_name(ev, value), true) : Value::absent();
  }
  if (changes_its_object(value, name)) return make_undefined(ev.box(), name, owner_name(ev, value), true);
  switch (value.kind) {
    case Kind::kTuple:
      if (!value.list->group) break;
      if (name == "grouper") return value.list->items[0];
      if (name == "list") return value.list->items[1];
      break;
    case Kind::kRange:
      if (name == "start") return Value::from(value.range->start);
      if (name == "stop") return Value::from(value.range->stop);
      if (name == "step") return Value::from(value.range->step);
      break;
    case Kind::kMacro:
      if (name == "name") return ev.text(value.macro->node->name);
      if (name == "caller") return Value::from(value.macro->node->uses_caller);
      if (name == "catch_kwargs") return Value::from(value.macro->node->uses_kwargs);
      if (name == "catch_varargs") return Value::from(value.macro->node->uses_varargs);
      if (name == "arguments") {
        ListBuilder names(ev.box());
        for (const Parameter& p : value.macro->node->parameters) names.push(ev.text(p.text));
        return names.finish(Kind::kTuple);
      }
      return Value::absent();
    case Kind::kCycler:
      if (name == "current") return value.cycler->items->items[value.cycler->position];
      if (name == "pos") return Value::from_size(value.cycler->position);
      if (name == "items") return Value::from(value.cycler->items, Kind::kTuple);
      if (name == "next") return bind_method(ev, kCyclerNext, value);
      if (name == "reset") return bind_method(ev, kCyclerReset, value);
      return Value::absent();
    case Kind::kJoiner:
      if (name == "sep") return value.joiner->separator;
      if (name == "used") return Value::from(value.joiner->used);
      return Value::absent();
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kBool:
      if (name == "real" || name == "numerator")
        return value.is(Kind::kBool) ? Value::from(int64_t{value.boolean}) : value;
      if (name == "imag") return Value::from(int64_t{0});
      if (name == "denominator") return Value::from(int64_t{1});
      break;
    case Kind::kFloat:
      if (name == "real") return value;
      if (name == "imag") return Value::from(0.0);
      break;
    default:
      break;
  }
  if (const Method* method = find_method(ev, value, name)) return bind_method(ev, *method, value);
  return Value::absent();
}

// value[key] by the container's own rule; absent when Python would raise LookupError or TypeError.
Value own_item(Evaluator& ev, Value value, Value key) {
  const auto index_within = [&](size_t size) -> std::optional<size_t> {
    if (!key.is(Kind::kInt) && !key.is(Kind::kBool)) return std::nullopt;
    int64_t at = key.is(Kind::kBool) ? int64_t{key.boolean} : key.integer;
    if (at < 0) at += static_cast<int64_t>(size);
    if (at < 0 || at >= static_cast<int64_t>(size)) return std::nullopt;
    return static_cast<size_t>(at);
  };
  switch (value.kind) {
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return Value::absent();
      const Value* found = key.is_text() ? value.dict->find(ev.box(), key.str()) : value.dict->find(ev.box(), key);
      return found ? *found : Value::absent();
    }
    case Kind::kList:
    case Kind::kTuple:
      if (const auto at = index_within(value.list->items.size())) return value.list->items[*at];
      return Value::absent();
    case Kind::kText: {
      const std::string_view bytes = value.str();
      const size_t chars = num_chars(ev.box(), *value.text);
      const auto at = index_within(chars);
      if (!at) return Value::absent();
      if (chars == bytes.size()) return borrow_text(ev.box(), bytes.substr(*at, 1), value.text->markup);
      ev.box().scan(bytes.size());
      const size_t begin = byte_of_char(bytes, *at);
      size_t end = begin;
      next_char(bytes, &end);
      return borrow_text(ev.box(), bytes.substr(begin, end - begin), value.text->markup);
    }
    case Kind::kRange:
      if (const auto at = index_within(value.range->size)) {
        return Value::from(value.range->start + static_cast<int64_t>(*at) * value.range->step);
      }
      return Value::absent();
    default:
      return Value::absent();
  }
}

}  // namespace

Value Evaluator::attribute(Value value, std::string_view name) {
  need_defined(value);
  if (value.is(Kind::kLoop)) {
    if (name == "cycle") return bind_method(*this, kLoopCycle, value);
    if (name == "changed") return bind_method(*this, kLoopChanged, value);
    const Value found = loop_attribute(value.loop, name);
    return found.is(Kind::kAbsent) ? make_undefined(box_, name, owner_name(*this, value)) : found;
  }
  if (value.is(Kind::kNamespace)) {
    if (const Value* found = value.dict->find(box_, name)) return *found;
    return make_undefined(box_, name, owner_name(*this, value));
  }
  const Value own = type_attribute(*this, value, name);
  if (!own.is(Kind::kAbsent)) return own;
  if (value.is(Kind::kDict)) {
    if (const Value* found = value.dict->find(box_, name)) return *found;
  }
  return make_undefined(box_, name, owner_name(*this, value));
}

Value Evaluator::item(Value value, Value key) {
  need_defined(value);
  const Value own = own_item(*this, value, key);
  if (!own.is(Kind::kAbsent)) return own;
  if (key.is_text()) {
    if (value.is(Kind::kNamespace) || value.is(Kind::kLoop)) return attribute(value, key.str());
    const Value found = type_attribute(*this, value, key.str());
    if (!found.is(Kind::kAbsent)) return found;
    return make_undefined(box_, key.str(), owner_name(*this, value));
  }
  TextBuilder name(box_);
  append_str(box_, &name, key.is_integral() || key.is(Kind::kNone) ? key : text(type_name(key)));
  return make_undefined(box_, name.view(), owner_name(*this, value));
}

Value Evaluator::attribute_path(Value value, std::string_view path) {
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits =
        !part.empty() && part[0] != '-' && parsed.ec == std::errc{} && parsed.ptr == part.data() + part.size();
    value = item(value, digits ? Value::from(index) : text(part));
    if (dot == path.npos) return value;
    path.remove_prefix(dot + 1);
  }
}

Cursor Evaluator::iterate(Value value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kGenerator:
    case Kind::kLoop:
      return {value};
    default:
      fail(cat("'", type_name(value), "' object is not iterable"));
  }
}

bool Evaluator::next(Cursor* cursor, Value* out) {
  const Value source = cursor->source;
  size_t& at = cursor->at;
  switch (source.kind) {
    case Kind::kText: {
      const std::string_view bytes = source.str();
      if (at >= bytes.size()) return false;
      const size_t begin = at;
      next_char(bytes, &at);
      *out = text(bytes.substr(begin, at - begin));
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at >= source.list->items.size()) return false;
      *out = source.list->items[at++];
      return true;
    case Kind::kDict:
      if (at >= source.dict->size()) return false;
      *out = source.dict->entries()[at++].key;
      return true;
    case Kind::kDictView: {
      if (at >= source.view->dict->size()) return false;
      const Dict::Entry& entry = source.view->dict->entries()[at++];
      *out = source.view->what == DictView::What::kKeys     ? entry.key
             : source.view->what == DictView::What::kValues ? entry.value
                                                            : make_tuple(box_, {entry.key, entry.value});
      return true;
    }
    case Kind::kRange:
      if (at >= source.range->size) return false;
      *out = Value::from(source.range->start + static_cast<int64_t>(at++) * source.range->step);
      return true;
    case Kind::kGenerator: {
      const Nested nested(box_);
      box_.step();
      return source.generator->next(*this, *source.generator, out);
    }
    default:
      return false;
  }
}

std::span<const Value> Evaluator::items_of(Value value) {
  if (value.is_sequence()) return value.list->items;
  Cursor cursor = iterate(value);
  ListBuilder out(box_);
  Value item;
  while (next(&cursor, &item)) out.push(item);
  return out.items();
}

std::optional<size_t> Evaluator::length_of(Value value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return num_chars(box_, *value.text);
    case Kind::kList:
    case Kind::kTuple:
      return value.list->items.size();
    case Kind::kDict:
      return value.dict->size();
    case Kind::kDictView:
      return value.view->dict->size();
    case Kind::kRange:
      return value.range->size;
    case Kind::kLoop:
      return static_cast<size_t>(loop_length(value.loop));
    default:
      return std::nullopt;
  }
}

bool Evaluator::contains(Value container, Value item) {
  box_.step();
  switch (container.kind) {
    case Kind::kText:
      need_defined(item);
      if (!item.is_text()) fail(cat("'in <string>' requires string as left operand, not ", type_name(item)));
      box_.scan(container.str().size());
      return find_bytes(container.str(), item.str()) != std::string_view::npos;
    case Kind::kDict:
      if (item.is_text()) return container.dict->find(box_, item.str()) != nullptr;
      return container.dict->find(box_, item) != nullptr;
    case Kind::kDictView:
      if (container.view->what == DictView::What::kKeys) return container.view->dict->find(box_, item) != nullptr;
      break;
    case Kind::kUndefined:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
    case Kind::kGenerator:
      break;
    default:
      fail(cat("argument of type '", type_name(container), "' is not iterable"));
  }
  Cursor cursor = iterate(container);
  Value candidate;
  while (next(&cursor, &candidate)) {
    box_.step();
    if (equals(box_, candidate, item)) return true;
  }
  return false;
}

Value slice(Evaluator& ev, Value sequence, Value start, Value stop, Value step_value) {
  need_defined(sequence);
  const bool text = sequence.is_text();
  if (!text && !sequence.is_sequence() && !sequence.is(Kind::kRange)) {
    // Jinja's lookup swallows the error and gives an undefined value.
    return make_undefined(ev.box(), "slice", owner_name(ev, sequence));
  }
  const auto bound = [](Value v, std::string_view what) { return to_index(v, what); };
  const int64_t step = step_value.is(Kind::kNone) ? 1 : bound(step_value, "slice step");
  if (step == 0) fail("slice step cannot be zero");
  const auto size = static_cast<int64_t>(*ev.length_of(sequence));
  const auto clamp = [&](Value v, int64_t otherwise, std::string_view what) {
    if (v.is(Kind::kNone)) return otherwise;
    int64_t at = bound(v, what);
    if (at < 0)
      at = at < -size ? -1 : at + size;
    else if (at > size)
      at = size;
    if (step > 0) return std::max<int64_t>(at, 0);
    return std::min(at, size - 1);
  };
  const int64_t begin = clamp(start, step > 0 ? 0 : size - 1, "slice start");
  const int64_t end = clamp(stop, step > 0 ? size : -1, "slice stop");
  Sandbox& box = ev.box();
  if (text && step == 1) {
    const std::string_view bytes = sequence.str();
    if (begin >= end) return borrow_text(box, {}, sequence.text->markup);
    size_t from = static_cast<size_t>(begin), to = static_cast<size_t>(end);
    if (num_chars(box, *sequence.text) != bytes.size()) {
      box.scan(bytes.size());
      from = byte_of_char(bytes, from);
      to = from + byte_of_char(bytes.substr(from), static_cast<size_t>(end - begin));
    }
    return borrow_text(box, bytes.substr(from, to - from), sequence.text->markup);
  }
  if (sequence.is_sequence() && step == 1) {
    const auto items = begin < end
                           ? sequence.list->items.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))
                           : std::span<const Value>{};
    return Value::from(box.make<List>(List{items, nullptr, false}), sequence.kind);
  }
  const auto items = ev.items_of(sequence);
  ListBuilder list(box);
  TextBuilder joined(box);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t distance = step > 0 ? (end > begin ? static_cast<uint64_t>(end - begin) : 0)
                                     : (begin > end ? static_cast<uint64_t>(begin - end) : 0);
  const uint64_t count = distance == 0 ? 0 : (distance - 1) / stride + 1;
  for (uint64_t i = 0; i < count; ++i) {
    box.step();
    const Value item = items[static_cast<size_t>(begin + static_cast<int64_t>(i) * step)];
    if (text) {
      joined.append(item.str());
    } else {
      list.push(item);
    }
  }
  if (text) return joined.finish(sequence.text->markup);
  return list.finish(sequence.is(Kind::kTuple) ? Kind::kTuple : Kind::kList);
}

}  // namespace helios::jinja
