// The methods that Python's str, list, tuple, dict and range have and a template may call.
//
// Text is counted in characters and moved in bytes. Methods of Markup keep it markup and escape their text arguments.
// Thread: the one that renders.
#include <algorithm>
#include <array>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/format_spec.h"
#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

using std::string_view;

string_view text_argument(Value value, string_view what) {
  need_defined(value);
  if (!value.is_text()) fail(cat(what, " must be str, not ", type_name(value)));
  return value.str();
}

Value same_kind(Evaluator& ev, Value self, string_view borrowed) {
  return borrow_text(ev.box(), borrowed, self.text->markup);
}

Value made(Evaluator& ev, Value self, const std::string& bytes) {
  return copy_text(ev.box(), bytes, self.text->markup);
}

template <std::string (*convert)(string_view)>
Value converted(Evaluator& ev, Value self, const Args& args) {
  bind_arguments("method", args, {}, 0, {});
  ev.box().scan(4 * self.str().size());
  return made(ev, self, convert(self.str()));
}

template <bool left, bool right>
Value stripped(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("strip", args, {"chars"});
  ev.box().scan(self.str().size());
  if (!bound.has(0) || bound[0].is(Kind::kNone)) return same_kind(ev, self, strip(self.str(), left, right));
  const string_view chars = text_argument(bound[0], "strip arg");
  ev.box().step(self.str().size() * chars.size() / 64);
  return same_kind(ev, self, strip(self.str(), left, right, &chars));
}

// The part of `self` between two character positions, as str.find and its like take them; nullopt when start is past
// the end.
struct Section {
  string_view bytes;
  size_t begin_byte;
  size_t begin_char;
};
std::optional<Section> section(Evaluator& ev, Value self, const Value* start, const Value* stop) {
  const auto size = static_cast<int64_t>(num_chars(ev.box(), *self.text));
  const auto position = [&](const Value* v, int64_t otherwise) {
    if (!v || v->is(Kind::kNone)) return otherwise;
    const int64_t at = to_index(*v, "slice index");
    return at < 0 ? std::max<int64_t>(0, at < -size ? 0 : at + size) : at;
  };
  const int64_t begin = position(start, 0);
  const int64_t end = std::min(size, position(stop, size));
  if (begin > size || begin > end) return std::nullopt;
  ev.box().scan(self.str().size());
  const size_t from = byte_of_char(self.str(), static_cast<size_t>(begin));
  const size_t length = byte_of_char(self.str().substr(from), static_cast<size_t>(end - begin));
  return Section{self.str().substr(from, length), from, static_cast<size_t>(begin)};
}

// rfind looks at up to part.size() bytes in each place; a long part is paid for before.
size_t rfind_bytes(Evaluator& ev, string_view text, string_view part) {
  constexpr size_t kShort = 32;
  if (part.size() > kShort) ev.box().step(text.size() / 1024 * (part.size() / 64 + 1));
  const size_t at = text.rfind(part);
  ev.box().scan(text.size() - std::min(text.size(), at));
  return at;
}

template <bool from_right, bool must_find>
Value found(Evaluator& ev, Value self, const Args& args) {
  const Bound<3> bound("find", args, {"sub", "start", "end"}, 1);
  const string_view part = text_argument(bound[0], "argument 1");
  const auto where = section(ev, self, bound.pointer(1), bound.pointer(2));
  if (where) {
    const size_t at = from_right ? rfind_bytes(ev, where->bytes, part) : find_bytes(where->bytes, part);
    if (at != string_view::npos) return Value::from_size(where->begin_char + count_chars(where->bytes.substr(0, at)));
  }
  if (must_find) fail("substring not found");
  return Value::from(int64_t{-1});
}

Value count_in_text(Evaluator& ev, Value self, const Args& args) {
  const Bound<3> bound("count", args, {"sub", "start", "end"}, 1);
  const string_view part = text_argument(bound[0], "argument 1");
  const auto where = section(ev, self, bound.pointer(1), bound.pointer(2));
  if (!where) return Value::from(int64_t{0});
  if (part.empty()) return Value::from_size(count_chars(where->bytes) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = find_bytes(where->bytes, part, at)) != string_view::npos; at += part.size()) {
    ++count;
    ev.box().step();
  }
  return Value::from(count);
}

template <bool at_end>
Value begins_or_ends(Evaluator& ev, Value self, const Args& args) {
  const Bound<3> bound("startswith", args, {"prefix", "start", "end"}, 1);
  const auto where = section(ev, self, bound.pointer(1), bound.pointer(2));
  const auto fits = [&](Value part) {
    if (!part.is_text()) {
      need_defined(part);
      fail(cat(at_end ? "endswith" : "startswith", " first arg must be str or a tuple of str, not ", type_name(part)));
    }
    if (!where) return false;
    ev.box().scan(part.str().size());
    return at_end ? where->bytes.ends_with(part.str()) : where->bytes.starts_with(part.str());
  };
  if (!bound[0].is(Kind::kTuple)) return Value::from(fits(bound[0]));
  for (const Value part : bound[0].list->items) {
    if (fits(part)) return Value::from(true);
  }
  return Value::from(false);
}

Value replaced(Evaluator& ev, Value self, const Args& args) {
  const Bound<3> bound("replace", args, {"old", "new", "count"}, 2);
  const string_view from = text_argument(bound[0], "replace() argument 1");
  const string_view to = text_argument(bound[1], "replace() argument 2");
  int64_t left = bound.has(2) ? to_index(bound[2], "count") : -1;
  const string_view text = self.str();
  ev.box().scan(text.size());
  TextBuilder out(ev.box());
  size_t at = 0;
  while (left != 0) {
    // An empty pattern stands before every character and at the end.
    size_t hit = find_bytes(text, from, at);
    if (hit == text.npos) break;
    ev.box().step();
    out.append(text.substr(at, hit - at));
    out.append(to);
    --left;
    at = hit + from.size();
    if (!from.empty()) continue;
    if (at >= text.size()) return out.finish(self.text->markup);
    size_t next = at;
    next_char(text, &next);
    out.append(text.substr(at, next - at));
    at = next;
  }
  out.append(text.substr(at));
  return out.finish(self.text->markup);
}

void split_at_space(Evaluator& ev, Value self, int64_t limit, ListBuilder* out) {
  const string_view text = self.str();
  size_t at = 0;
  while (true) {
    const string_view rest = strip(text.substr(at), true, false);
    if (rest.empty()) return;
    at = text.size() - rest.size();
    if (limit == 0) return out->push(same_kind(ev, self, rest));
    size_t end = at;
    while (end < text.size()) {
      size_t next = end;
      if (is_space(next_char(text, &next))) break;
      end = next;
    }
    out->push(same_kind(ev, self, text.substr(at, end - at)));
    at = end;
    --limit;
  }
}

void rsplit_at_space(Evaluator& ev, Value self, int64_t limit, ListBuilder* out) {
  string_view text = self.str();
  while (true) {
    text = strip(text, false, true);
    if (text.empty()) return;
    if (limit == 0) return out->push(same_kind(ev, self, text));
    size_t begin = text.size();
    while (begin > 0) {
      const size_t previous = previous_char(text, begin);
      size_t position = previous;
      if (is_space(next_char(text, &position))) break;
      begin = previous;
    }
    out->push(same_kind(ev, self, text.substr(begin)));
    text = text.substr(0, begin);
    --limit;
  }
}

template <bool from_right>
Value split(Evaluator& ev, Value self, const Args& args) {
  const Bound<2> bound("split", args, {"sep", "maxsplit"});
  int64_t limit = bound.has(1) ? to_index(bound[1], "maxsplit") : -1;
  ListBuilder out(ev.box());
  ev.box().scan(self.str().size());
  if (!bound.has(0) || bound[0].is(Kind::kNone)) {
    from_right ? rsplit_at_space(ev, self, limit, &out) : split_at_space(ev, self, limit, &out);
  } else {
    const string_view separator = text_argument(bound[0], "separator");
    if (separator.empty()) fail("empty separator");
    string_view rest = self.str();
    for (; limit != 0; --limit) {
      const size_t at = from_right ? rfind_bytes(ev, rest, separator) : find_bytes(rest, separator);
      if (at == rest.npos) break;
      out.push(same_kind(ev, self, from_right ? rest.substr(at + separator.size()) : rest.substr(0, at)));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + separator.size());
    }
    out.push(same_kind(ev, self, rest));
  }
  if (from_right) std::reverse(out.items().begin(), out.items().end());
  return out.finish();
}

Value splitlines(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("splitlines", args, {"keepends"});
  const bool keep = bound.has(0) && truthy(bound[0]);
  const string_view text = self.str();
  ev.box().scan(text.size());
  ListBuilder out(ev.box());
  for (size_t begin = 0, at = 0; begin < text.size();) {
    size_t end = at;
    bool breaks = false;
    while (at < text.size() && !breaks) {
      end = at;
      const char32_t c = next_char(text, &at);
      breaks = (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
      if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    }
    if (!breaks) end = at;
    out.push(same_kind(ev, self, text.substr(begin, (keep ? at : end) - begin)));
    begin = at;
  }
  return out.finish();
}

template <bool from_right>
Value partition(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("partition", args, {"sep"}, 1);
  const string_view separator = text_argument(bound[0], "separator");
  if (separator.empty()) fail("empty separator");
  const string_view text = self.str();
  ev.box().scan(text.size());
  const size_t at = from_right ? rfind_bytes(ev, text, separator) : find_bytes(text, separator);
  const auto part = [&](string_view bytes) { return same_kind(ev, self, bytes); };
  if (at == text.npos) {
    return from_right ? make_tuple(ev.box(), {part({}), part({}), self})
                      : make_tuple(ev.box(), {self, part({}), part({})});
  }
  return make_tuple(ev.box(), {part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

Value join_method(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("join", args, {"iterable"}, 1);
  need_defined(bound[0]);
  TextBuilder out(ev.box());
  Cursor cursor = ev.iterate(bound[0]);
  Value item;
  for (size_t i = 0; ev.next(&cursor, &item); ++i) {
    ev.box().step();
    if (!item.is_text()) {
      fail(cat("sequence item ", std::to_string(i), ": expected str instance, ", type_name(item), " found"));
    }
    if (i > 0) out.append(self.str());
    if (self.text->markup && !item.text->markup) {
      append_html_escaped(&out, item.str());
    } else {
      out.append(item.str());
    }
  }
  return out.finish(self.text->markup);
}

template <char align>
Value justified(Evaluator& ev, Value self, const Args& args) {
  const Bound<2> bound("ljust", args, {"width", "fillchar"}, 1);
  FormatSpec spec;
  spec.align = align;
  spec.width = to_index(bound[0], "width");
  if (bound.has(1)) {
    spec.fill = text_argument(bound[1], "The fill character");
    if (count_chars(spec.fill) != 1) fail("The fill character must be exactly one character long");
  }
  if (spec.width > static_cast<int64_t>(ev.box().limits().max_output_bytes)) fail("a width that no prompt needs");
  ev.box().scan(static_cast<size_t>(std::max<int64_t>(0, spec.width)) + self.str().size());
  if (align != '^') return made(ev, self, pad(self.str(), spec, align, 0));
  // str.center puts the odd space to the left when both the margin and the width are odd.
  const auto chars = static_cast<int64_t>(num_chars(ev.box(), *self.text));
  if (spec.width <= chars) return self;
  const int64_t margin = spec.width - chars;
  const int64_t left = margin / 2 + (margin & spec.width & 1);
  FormatSpec left_pad = spec, right_pad = spec;
  left_pad.width = chars + left;
  left_pad.align = '>';
  right_pad.align = '<';
  return made(ev, self, pad(pad(self.str(), left_pad, '>', 0), right_pad, '<', 0));
}

Value zfill(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("zfill", args, {"width"}, 1);
  FormatSpec spec;
  spec.align = '=';
  spec.fill = "0";
  spec.width = to_index(bound[0], "width");
  if (spec.width > static_cast<int64_t>(ev.box().limits().max_output_bytes)) fail("a width that no prompt needs");
  const bool signed_text = self.str().starts_with('+') || self.str().starts_with('-');
  return made(ev, self, pad(self.str(), spec, '=', signed_text ? 1 : 0));
}

Value expandtabs(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("expandtabs", args, {"tabsize"});
  const int64_t size = std::min<int64_t>(bound.has(0) ? to_index(bound[0], "tabsize") : 8, 1 << 16);
  TextBuilder out(ev.box());
  int64_t column = 0;
  const string_view text = self.str();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    ev.box().step();
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      for (int64_t i = 0; i < spaces; ++i) out.append(' ');
      column += spaces;
    } else {
      out.append(text.substr(begin, at - begin));
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return out.finish(self.text->markup);
}

template <bool prefix>
Value removed(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound(prefix ? "removeprefix" : "removesuffix", args, {"part"}, 1);
  const string_view part = text_argument(bound[0], "argument");
  string_view text = self.str();
  if (prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!prefix && text.ends_with(part)) text.remove_suffix(part.size());
  return same_kind(ev, self, text);
}

Value format_method(Evaluator& ev, Value self, const Args& args) { return format_braces(ev, *self.text, args); }

template <bool (*holds)(char32_t)>
Value all_are(Evaluator& ev, Value self, const Args& args) {
  bind_arguments("method", args, {}, 0, {});
  ev.box().scan(self.str().size());
  const string_view text = self.str();
  for (size_t at = 0; at < text.size();) {
    if (!holds(next_char(text, &at))) return Value::from(false);
  }
  return Value::from(!text.empty());
}

bool is_ascii(char32_t c) { return c < 0x80; }

// isascii and isprintable hold for the empty text too.
template <bool (*holds)(char32_t)>
Value none_is_not(Evaluator& ev, Value self, const Args& args) {
  return Value::from(self.str().empty() || truthy(all_are<holds>(ev, self, args)));
}

template <bool wants_upper>
Value is_cased_as(Evaluator& ev, Value self, const Args& args) {
  bind_arguments("method", args, {}, 0, {});
  ev.box().scan(self.str().size());
  const string_view text = self.str();
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, &at);
    const bool upper_case = is_upper(c), lower_case = is_lower(c);
    if (is_title(c) || (wants_upper ? lower_case : upper_case)) return Value::from(false);
    any |= wants_upper ? upper_case : lower_case;
  }
  return Value::from(any);
}

Value istitle(Evaluator& ev, Value self, const Args& args) {
  bind_arguments("istitle", args, {}, 0, {});
  ev.box().scan(self.str().size());
  const string_view text = self.str();
  bool previous_cased = false, any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, &at);
    const bool capital = is_upper(c) || is_title(c);
    if (capital ? previous_cased : is_lower(c) && !previous_cased) return Value::from(false);
    previous_cased = capital || is_lower(c);
    any |= previous_cased;
  }
  return Value::from(any);
}

Value isidentifier(Evaluator& ev, Value self, const Args& args) {
  bind_arguments("isidentifier", args, {}, 0, {});
  ev.box().scan(self.str().size());
  const string_view text = self.str();
  size_t at = 0;
  if (text.empty() || !is_identifier_start(next_char(text, &at))) return Value::from(false);
  while (at < text.size()) {
    if (!is_identifier_part(next_char(text, &at))) return Value::from(false);
  }
  return Value::from(true);
}

// --- list, tuple, range, dict ---

Value sequence_index(Evaluator& ev, Value self, const Args& args) {
  const Bound<3> bound("index", args, {"value", "start", "stop"}, 1);
  const auto items = ev.items_of(self);
  const auto size = static_cast<int64_t>(items.size());
  const auto position = [&](size_t i, int64_t otherwise) {
    if (!bound.has(i)) return otherwise;
    const int64_t at = to_index(bound[i], "index");
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  for (int64_t i = position(1, 0); i < position(2, size); ++i) {
    ev.box().step();
    if (equals(ev.box(), items[static_cast<size_t>(i)], bound[0])) return Value::from(i);
  }
  fail("value is not in list");
}

Value sequence_count(Evaluator& ev, Value self, const Args& args) {
  const Bound<1> bound("count", args, {"value"}, 1);
  int64_t count = 0;
  for (const Value item : ev.items_of(self)) {
    ev.box().step();
    if (equals(ev.box(), item, bound[0])) ++count;
  }
  return Value::from(count);
}

Value copied(Evaluator&, Value self, const Args& args) {
  bind_arguments("copy", args, {}, 0, {});
  return self;  // nothing can change it
}

Value dict_get(Evaluator& ev, Value self, const Args& args) {
  const Bound<2> bound("get", args, {"key", "default"}, 1);
  const Value* item = self.dict->find(ev.box(), bound[0]);
  return item ? *item : bound.get(1, Value::none());
}

template <DictView::What what>
Value dict_view(Evaluator& ev, Value self, const Args& args) {
  bind_arguments("method", args, {}, 0, {});
  return make_view(ev.box(), self.dict, what);
}

// Sorted by name. A null call: Python has it, this engine does not.
constexpr Method kTextMethods[] = {
    {{}, "capitalize", converted<capitalize>},
    {{}, "casefold", converted<casefold>},
    {{}, "center", justified<'^'>},
    {{}, "count", count_in_text},
    {{}, "encode", nullptr},
    {{}, "endswith", begins_or_ends<true>},
    {{}, "expandtabs", expandtabs},
    {{}, "find", found<false, false>},
    {{}, "format", format_method},
    {{}, "format_map", nullptr},
    {{}, "index", found<false, true>},
    {{}, "isalnum", all_are<is_alnum>},
    {{}, "isalpha", all_are<is_alpha>},
    {{}, "isascii", none_is_not<is_ascii>},
    {{}, "isdecimal", all_are<is_decimal>},
    {{}, "isdigit", all_are<is_digit>},
    {{}, "isidentifier", isidentifier},
    {{}, "islower", is_cased_as<false>},
    {{}, "isnumeric", all_are<is_numeric>},
    {{}, "isprintable", none_is_not<is_printable>},
    {{}, "isspace", all_are<is_space>},
    {{}, "istitle", istitle},
    {{}, "isupper", is_cased_as<true>},
    {{}, "join", join_method},
    {{}, "ljust", justified<'<'>},
    {{}, "lower", converted<lower>},
    {{}, "lstrip", stripped<true, false>},
    {{}, "maketrans", nullptr},
    {{}, "partition", partition<false>},
    {{}, "removeprefix", removed<true>},
    {{}, "removesuffix", removed<false>},
    {{}, "replace", replaced},
    {{}, "rfind", found<true, false>},
    {{}, "rindex", found<true, true>},
    {{}, "rjust", justified<'>'>},
    {{}, "rpartition", partition<true>},
    {{}, "rsplit", split<true>},
    {{}, "rstrip", stripped<false, true>},
    {{}, "split", split<false>},
    {{}, "splitlines", splitlines},
    {{}, "startswith", begins_or_ends<false>},
    {{}, "strip", stripped<true, true>},
    {{}, "swapcase", converted<swapcase>},
    {{}, "title", converted<title>},
    {{}, "translate", nullptr},
    {{}, "upper", converted<upper>},
    {{}, "zfill", zfill},
};
constexpr Method kListMethods[] = {{{}, "copy", copied}, {{}, "count", sequence_count}, {{}, "index", sequence_index}};
constexpr Method kTupleMethods[] = {{{}, "count", sequence_count}, {{}, "index", sequence_index}};
constexpr Method kDictMethods[] = {{{}, "copy", copied},
                                   {{}, "fromkeys", nullptr},
                                   {{}, "get", dict_get},
                                   {{}, "items", dict_view<DictView::What::kItems>},
                                   {{}, "keys", dict_view<DictView::What::kKeys>},
                                   {{}, "values", dict_view<DictView::What::kValues>}};
constexpr Method kIntMethods[] = {{{}, "as_integer_ratio", nullptr}, {{}, "bit_count", nullptr},
                                  {{}, "bit_length", nullptr},       {{}, "conjugate", nullptr},
                                  {{}, "from_bytes", nullptr},       {{}, "to_bytes", nullptr}};
constexpr Method kFloatMethods[] = {{{}, "as_integer_ratio", nullptr},
                                    {{}, "conjugate", nullptr},
                                    {{}, "fromhex", nullptr},
                                    {{}, "hex", nullptr},
                                    {{}, "is_integer", nullptr}};

std::span<const Method> methods_of(Value value) {
  switch (value.kind) {
    case Kind::kText:
      return kTextMethods;
    case Kind::kList:
      return kListMethods;
    case Kind::kTuple:
    case Kind::kRange:
      return kTupleMethods;
    case Kind::kDict:
      return kDictMethods;
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kBool:
      return kIntMethods;
    case Kind::kFloat:
      return kFloatMethods;
    default:
      return {};
  }
}

}  // namespace

const Method* find_method(Evaluator&, Value self, string_view name) {
  const auto methods = methods_of(self);
  const auto at = std::lower_bound(methods.begin(), methods.end(), name,
                                   [](const Method& method, string_view wanted) { return method.name < wanted; });
  return at != methods.end() && at->name == name ? &*at : nullptr;
}

}  // namespace helios::jinja
