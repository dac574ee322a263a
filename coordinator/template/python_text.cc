#include "coordinator/template/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

void append_hex(TextBuilder* out, std::string_view prefix, char32_t c, int digits) {
  out->append(prefix);
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out->append("0123456789abcdef"[c >> shift & 15]);
}

void append_text_repr(TextBuilder* out, std::string_view text, bool ascii) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out->append(quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out->append('\\');
      out->append(static_cast<char>(c));
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (c < 0x20 || c == 0x7F) {
      append_hex(out, "\\x", c, 2);
    } else if (c < 0x7F || (!ascii && is_printable(c))) {
      out->append(text.substr(begin, at - begin));
    } else if (c < 0x100) {
      append_hex(out, "\\x", c, 2);
    } else if (c < 0x10000) {
      append_hex(out, "\\u", c, 4);
    } else {
      append_hex(out, "\\U", c, 8);
    }
  }
  out->append(quote);
}

void append_items_repr(Sandbox& box, TextBuilder* out, std::span<const Value> items, bool ascii) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->append(", ");
    append_repr(box, out, items[i], ascii);
  }
}

void append_dict_repr(Sandbox& box, TextBuilder* out, const Dict& dict, bool ascii) {
  out->append('{');
  bool first = true;
  for (const Dict::Entry& entry : dict.entries()) {
    if (!first) out->append(", ");
    first = false;
    append_repr(box, out, entry.key, ascii);
    out->append(": ");
    append_repr(box, out, entry.value, ascii);
  }
  out->append('}');
}

void append_view_repr(Sandbox& box, TextBuilder* out, const DictView& view, std::string_view name) {
  out->append(name);
  out->append("([");
  bool first = true;
  for (const Dict::Entry& entry : view.dict->entries()) {
    if (!first) out->append(", ");
    first = false;
    if (view.what == DictView::What::kItems) out->append('(');
    if (view.what != DictView::What::kValues) append_repr(box, out, entry.key);
    if (view.what == DictView::What::kItems) out->append(", ");
    if (view.what != DictView::What::kKeys) append_repr(box, out, entry.value);
    if (view.what == DictView::What::kItems) out->append(')');
  }
  out->append("])");
}

void append_range_repr(TextBuilder* out, const Range& range) {
  out->append(cat("range(", std::to_string(range.start), ", ", std::to_string(range.stop)));
  if (range.step != 1) out->append(cat(", ", std::to_string(range.step)));
  out->append(')');
}

class JsonWriter {
 public:
  JsonWriter(Sandbox& box, TextBuilder* out, const JsonStyle& style) : box_(box), out_(out), style_(style) {}

  void write(Value value, size_t level) {
    const Nested nested(box_);
    box_.step();
    switch (value.kind) {
      case Kind::kNone:
        return out_->append("null");
      case Kind::kBool:
        return out_->append(value.boolean ? "true" : "false");
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        return number(value);
      case Kind::kText:
        return string(value.str());
      case Kind::kList:
      case Kind::kTuple:
        return array(value.list->items, level);
      case Kind::kDict:
        return object(*value.dict, level);
      default:
        fail(cat("Object of type ", type_name(value), " is not JSON serializable"));
    }
  }

 private:
  void number(Value value) {
    if (!value.is(Kind::kFloat)) return out_->append(to_big(value).to_string());
    if (std::isnan(value.real)) return out_->append("NaN");
    if (std::isinf(value.real)) return out_->append(value.real < 0 ? "-Infinity" : "Infinity");
    out_->append(float_repr(value.real));
  }

  void string(std::string_view text) {
    out_->append('"');
    size_t plain = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_char(text, &at);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !style_.ensure_ascii)) continue;
      if (c == 0x7F) continue;
      out_->append(text.substr(plain, begin - plain));
      plain = at;
      escape(c);
    }
    out_->append(text.substr(plain));
    out_->append('"');
  }

  void escape(char32_t c) {
    switch (c) {
      case '"':
        return out_->append("\\\"");
      case '\\':
        return out_->append("\\\\");
      case '\n':
        return out_->append("\\n");
      case '\r':
        return out_->append("\\r");
      case '\t':
        return out_->append("\\t");
      case '\f':
        return out_->append("\\f");
      case '\b':
        return out_->append("\\b");
      default:
        if (c < 0x10000) return append_hex(out_, "\\u", c, 4);
        append_hex(out_, "\\u", 0xD800 + ((c - 0x10000) >> 10), 4);
        append_hex(out_, "\\u", 0xDC00 + ((c - 0x10000) & 0x3FF), 4);
    }
  }

  void new_line(size_t level) {
    if (!style_.indent) return;
    out_->append('\n');
    for (size_t i = 0; i < level; ++i) out_->append(*style_.indent);
  }

  void array(std::span<const Value> items, size_t level) {
    if (items.empty()) return out_->append("[]");
    out_->append('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_->append(style_.item_separator);
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_->append(']');
  }

  void object(const Dict& dict, size_t level) {
    if (dict.size() == 0) return out_->append("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
        return compare(box_, Order::kLess, a->key, b->key);
      });
    }
    out_->append('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_->append(style_.item_separator);
      new_line(level + 1);
      key(entries[i]->key);
      out_->append(style_.key_separator);
      write(entries[i]->value, level + 1);
    }
    new_line(level);
    out_->append('}');
  }

  void key(Value key) {
    if (key.is_text()) return string(key.str());
    if (!key.is_number() && !key.is(Kind::kNone)) {
      fail(cat("keys must be str, int, float, bool or None, not ", type_name(key)));
    }
    out_->append('"');
    write(key, 0);
    out_->append('"');
  }

  Sandbox& box_;
  TextBuilder* out_;
  const JsonStyle& style_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64] = {};  // to_chars writes no end, atoi looks for one
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view written(buffer, static_cast<size_t>(end - buffer));
  const size_t e = written.find('e');
  const int exponent = std::atoi(written.data() + e + 1);
  if (exponent < -4 || exponent >= 16) return std::string(written);  // two exponent digits at least: as Python's
  std::string digits;
  std::string out;
  for (const char c : written.substr(0, e)) {
    if (c == '-') out = "-";
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_repr(Sandbox& box, TextBuilder* out, Value value, bool ascii) {
  const Nested nested(box);
  box.step();
  switch (value.kind) {
    case Kind::kUndefined:
      return out->append("Undefined");
    case Kind::kText:
      if (!value.text->markup) return append_text_repr(out, value.str(), ascii);
      out->append("Markup(");
      append_text_repr(out, value.str(), ascii);
      return out->append(')');
    case Kind::kList:
      out->append('[');
      append_items_repr(box, out, value.list->items, ascii);
      return out->append(']');
    case Kind::kTuple:
      out->append('(');
      append_items_repr(box, out, value.list->items, ascii);
      return out->append(value.list->items.size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return append_dict_repr(box, out, *value.dict, ascii);
    case Kind::kNamespace:
      out->append("<Namespace ");
      append_dict_repr(box, out, *value.dict, ascii);
      return out->append('>');
    case Kind::kDictView:
      return append_view_repr(box, out, *value.view, type_name(value));
    case Kind::kRange:
      return append_range_repr(out, *value.range);
    default:
      append_str(box, out, value);
  }
}

void append_str(Sandbox& box, TextBuilder* out, Value value) {
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
      return;
    case Kind::kNone:
      return out->append("None");
    case Kind::kBool:
      return out->append(value.boolean ? "True" : "False");
    case Kind::kInt:
      return out->append(std::to_string(value.integer));
    case Kind::kBigInt:
      return out->append(to_big(value).to_string());
    case Kind::kFloat:
      return out->append(float_repr(value.real));
    case Kind::kText:
      return out->append(value.str());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kNamespace:
      return append_repr(box, out, value);
    default:
      // Python prints an address here; no prompt should depend on one.
      fail(cat("printing a '", type_name(value), "' object: its text would differ from run to run"));
  }
}

void append_json(Sandbox& box, TextBuilder* out, Value value, const JsonStyle& style) {
  JsonWriter(box, out, style).write(value, 0);
}

std::string_view str_of(Sandbox& box, Value value) {
  if (value.is_text()) return value.str();
  TextBuilder out(box);
  append_str(box, &out, value);
  return out.view();
}

void append_html_escaped(TextBuilder* out, std::string_view text) {
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char* escaped = text[i] == '&'    ? "&amp;"
                          : text[i] == '<'  ? "&lt;"
                          : text[i] == '>'  ? "&gt;"
                          : text[i] == '"'  ? "&#34;"
                          : text[i] == '\'' ? "&#39;"
                                            : nullptr;
    if (!escaped) continue;
    out->append(text.substr(plain, i - plain));
    out->append(escaped);
    plain = i + 1;
  }
  out->append(text.substr(plain));
}

}  // namespace helios::jinja
