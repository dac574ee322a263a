// Filters over sequences and mappings: join, map, select, sort, groupby, items and so on.
//
// What is a generator in Jinja is one here: it counts as true even when it has no items, has no length, and is used up
// by one pass. Templates depend on all three. Thread: the one that renders.
#include <algorithm>
#include <numeric>
#include <vector>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/python_text.h"
#include "coordinator/template/unicode.h"

namespace helios::jinja {
namespace {

using std::string_view;

Value generator(Evaluator& ev, Generator prepared) {
  Value out = Value::of(Kind::kGenerator);
  out.generator = ev.box().make<Generator>(prepared);
  return out;
}

// Jinja's attribute getter: "a.b.0" step by step; `otherwise` stands in for what is undefined.
struct Getter {
  string_view path;
  bool identity = true;
  Value index;  // an attribute that is not text: used as it is
  bool indexed = false;
  Value otherwise = Value::none();

  Value operator()(Evaluator& ev, Value item) const {
    if (identity) return item;
    if (indexed) return fill(ev.item(item, index));
    string_view rest = path;
    while (true) {
      const size_t dot = rest.find('.');
      item = fill(ev.attribute_path(item, rest.substr(0, dot)));
      if (dot == rest.npos) return item;
      rest.remove_prefix(dot + 1);
    }
  }
  Value fill(Value item) const { return item.is(Kind::kUndefined) && !otherwise.is(Kind::kNone) ? otherwise : item; }
};

Getter getter_for(const Value* attribute, Value otherwise = Value::none()) {
  Getter out;
  out.otherwise = otherwise;
  if (!attribute || attribute->is(Kind::kNone)) return out;
  out.identity = false;
  if (attribute->is_text()) {
    out.path = attribute->str();
  } else {
    out.indexed = true;
    out.index = *attribute;
  }
  return out;
}

Value without_case(Evaluator& ev, Value value) {
  if (!value.is_text()) return value;
  ev.box().scan(4 * value.str().size());
  return ev.new_text(lower(value.str()));
}

size_t need_length(Evaluator& ev, Value value) {
  const auto length = ev.length_of(value);
  if (!length) fail(cat("object of type '", type_name(value), "' has no len()"));
  return *length;
}

Value length(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("length", args, {}, 0, {});
  return Value::from_size(need_length(ev, v));
}

Value default_filter(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("default", args, {"default_value", "boolean"});
  const bool replace = v.is(Kind::kUndefined) || (bound.has(1) && truthy(bound[1]) && !truthy(v));
  return replace ? bound.get(0, ev.text("")) : v;
}

Value attr(Evaluator& ev, Value v, const Args& args) {
  const Bound<1> bound("attr", args, {"name"}, 1);
  const string_view name = ev.str(bound[0]);
  if (v.is(Kind::kDict) && !find_method(ev, v, name)) return make_undefined(ev.box(), name, "dict object");  // no keys
  return ev.attribute(v, name);
}

Value list_filter(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("list", args, {}, 0, {});
  if (v.is(Kind::kList)) return v;
  return Value::from(ev.box().make<List>(List{ev.items_of(v), nullptr, false}));
}

Value first(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("first", args, {}, 0, {});
  Cursor cursor = ev.iterate(v);
  Value out;
  return ev.next(&cursor, &out) ? out : make_undefined(ev.box(), "the first item of an empty sequence");
}

Value last(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("last", args, {}, 0, {});
  if (v.is(Kind::kGenerator)) fail("'generator' object is not reversible");
  const auto items = ev.items_of(v);
  return items.empty() ? make_undefined(ev.box(), "the last item of an empty sequence") : items.back();
}

Value join(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("join", args, {"d", "attribute"});
  const Getter get = getter_for(bound.pointer(1));
  const string_view between = bound.has(0) ? ev.str(bound[0]) : "";
  TextBuilder out(ev.box());
  Cursor cursor = ev.iterate(v);
  Value item;
  for (bool begun = false; ev.next(&cursor, &item); begun = true) {
    ev.box().step();
    if (begun) out.append(between);
    append_str(ev.box(), &out, get(ev, item));
  }
  return out.finish();
}

Value reverse(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("reverse", args, {}, 0, {});
  const bool text = v.is_text();
  const bool list = v.is(Kind::kGenerator);  // cannot be stepped through backwards: Jinja makes a list of it
  const auto items = ev.items_of(v);
  if (text) {
    TextBuilder out(ev.box());
    for (size_t i = items.size(); i-- > 0;) out.append(items[i].str());
    return out.finish();
  }
  ListBuilder out(ev.box());
  for (size_t i = items.size(); i-- > 0;) out.push(items[i]);
  const Value reversed = out.finish();
  if (list) return reversed;
  Generator g{[](Evaluator& e, Generator& self, Value* item) { return e.next(&self.source, item); }};
  g.source = ev.iterate(reversed);
  return generator(ev, g);
}

Value items(Evaluator& ev, Value v, const Args& args) {
  bind_arguments("items", args, {}, 0, {});
  Generator g{[](Evaluator& e, Generator& self, Value* item) {
    if (!self.source.source.is(Kind::kDictView) && !self.source.source.is(Kind::kUndefined)) {
      fail("Can only get item pairs from a mapping.");
    }
    return e.next(&self.source, item);
  }};
  g.source.source = v.is(Kind::kDict) ? make_view(ev.box(), v.dict, DictView::What::kItems) : v;
  return generator(ev, g);
}

// --- map, select and their kin ---

Value map(Evaluator& ev, Value v, const Args& args) {
  Generator g{};
  if (args.positional.empty() && !args.named.empty() && args.named[0].name == "attribute") {
    const Bound<2> bound("map", args, {"attribute", "default"});
    g.extra = bound.get(1, Value::none());
    g.args = Args{std::span(bound.pointer(0), 1), {}};
    g.next = [](Evaluator& e, Generator& self, Value* item) {
      if (!e.next(&self.source, item)) return false;
      *item = getter_for(&self.args.positional[0], self.extra)(e, *item);
      return true;
    };
  } else {
    if (args.positional.empty() || !args.positional[0].is_text()) fail("map requires a filter argument");
    g.filter = find_filter(args.positional[0].str());
    if (!g.filter) fail(cat("no filter named '", args.positional[0].str().substr(0, 80), "'"));
    g.args = {args.positional.subspan(1), args.named};
    g.next = [](Evaluator& e, Generator& self, Value* item) {
      if (!e.next(&self.source, item)) return false;
      *item = self.filter(e, *item, self.args);
      return true;
    };
  }
  g.source = truthy(v) ? ev.iterate(v) : Cursor{make_undefined(ev.box(), "nothing")};
  return generator(ev, g);
}

bool next_selected(Evaluator& ev, Generator& self, Value* item) {
  while (ev.next(&self.source, item)) {
    ev.box().step();
    const Value subject = self.by_attribute ? getter_for(&self.extra)(ev, *item) : *item;
    const bool holds = self.test ? self.test(ev, subject, self.args) : truthy(subject);
    if (holds != self.reject) return true;
  }
  return false;
}

template <bool by_attribute, bool reject>
Value select(Evaluator& ev, Value v, const Args& args) {
  Generator g{next_selected};
  g.by_attribute = by_attribute;
  g.reject = reject;
  size_t used = 0;
  if (by_attribute) {
    if (args.positional.empty()) fail("missing parameter for attribute name");
    g.extra = args.positional[used++];
  }
  if (args.positional.size() > used) {
    const string_view name = ev.str(args.positional[used++]);
    g.test = find_test(name);
    if (!g.test) fail(cat("no test named '", name.substr(0, 80), "'"));
  }
  g.args = {args.positional.subspan(used), args.named};
  g.source = truthy(v) ? ev.iterate(v) : Cursor{make_undefined(ev.box(), "nothing")};
  return generator(ev, g);
}

// --- order ---

// Items with the keys they are ordered by.
struct Keyed {
  std::span<const Value> keys;
  Value item;
};

std::vector<Keyed> with_keys(Evaluator& ev, Value v, std::span<const Getter> getters, bool case_sensitive) {
  std::vector<Keyed> out;
  Cursor cursor = ev.iterate(v);
  Value item;
  while (ev.next(&cursor, &item)) {
    auto* keys = ev.box().make_array<Value>(getters.size());
    for (size_t i = 0; i < getters.size(); ++i) {
      keys[i] = getters[i](ev, item);
      if (!case_sensitive) keys[i] = without_case(ev, keys[i]);
    }
    out.push_back({{keys, getters.size()}, item});
  }
  return out;
}

bool keys_less(Sandbox& box, std::span<const Value> a, std::span<const Value> b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (i + 1 == a.size() || !equals(box, a[i], b[i])) return compare(box, Order::kLess, a[i], b[i]);
  }
  return false;
}

void sort_keyed(Evaluator& ev, std::vector<Keyed>* items, bool descending) {
  std::stable_sort(items->begin(), items->end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? keys_less(ev.box(), b.keys, a.keys) : keys_less(ev.box(), a.keys, b.keys);
  });
}

// "a,b" sorts by a, then by b.
std::vector<Getter> getters_for(Evaluator& ev, const Value* attribute) {
  std::vector<Getter> out;
  if (!attribute || !attribute->is_text()) return {getter_for(attribute)};
  string_view rest = attribute->str();
  while (true) {
    const size_t comma = rest.find(',');
    const Value part = ev.text(rest.substr(0, comma));
    out.push_back(getter_for(&part));
    if (comma == rest.npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

Value sort(Evaluator& ev, Value v, const Args& args) {
  const Bound<3> bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  auto keyed = with_keys(ev, v, getters_for(ev, bound.pointer(2)), bound.has(1) && truthy(bound[1]));
  sort_keyed(ev, &keyed, bound.has(0) && truthy(bound[0]));
  ListBuilder out(ev.box());
  for (const Keyed& k : keyed) out.push(k.item);
  return out.finish();
}

Value dictsort(Evaluator& ev, Value v, const Args& args) {
  const Bound<3> bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  need_defined(v);
  if (!v.is(Kind::kDict)) fail(cat("'", type_name(v), "' object has no attribute 'items'"));
  const string_view by = bound.has(1) ? ev.str(bound[1]) : "key";
  if (by != "key" && by != "value") fail("you can only sort by either \"key\" or \"value\"");
  Getter get;
  get.identity = false;
  get.indexed = true;
  get.index = Value::from(int64_t{by == "key" ? 0 : 1});
  auto keyed =
      with_keys(ev, make_view(ev.box(), v.dict, DictView::What::kItems), {&get, 1}, bound.has(0) && truthy(bound[0]));
  sort_keyed(ev, &keyed, bound.has(2) && truthy(bound[2]));
  ListBuilder out(ev.box());
  for (const Keyed& k : keyed) out.push(k.item);
  return out.finish();
}

Value groupby(Evaluator& ev, Value v, const Args& args) {
  const Bound<3> bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = bound.has(2) && truthy(bound[2]);
  const Getter get = getter_for(bound.pointer(0), bound.get(1, Value::none()));
  auto keyed = with_keys(ev, v, {&get, 1}, case_sensitive);
  sort_keyed(ev, &keyed, false);
  ListBuilder out(ev.box());
  for (size_t begin = 0; begin < keyed.size();) {
    ListBuilder members(ev.box());
    size_t end = begin;
    for (; end < keyed.size() && equals(ev.box(), keyed[begin].keys[0], keyed[end].keys[0]); ++end) {
      members.push(keyed[end].item);
    }
    if (end == begin) members.push(keyed[end++].item);  // a NaN equals nothing, itself included
    auto* both = ev.box().make_array<Value>(2);
    both[0] = get(ev, keyed[begin].item);
    both[1] = members.finish();
    out.push(Value::from(ev.box().make<List>(List{{both, 2}, nullptr, true}), Kind::kTuple));
    begin = end;
  }
  return out.finish();
}

template <bool maximum>
Value extreme(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound(maximum ? "max" : "min", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.has(0) && truthy(bound[0]);
  const Getter get = getter_for(bound.pointer(1));
  Cursor cursor = ev.iterate(v);
  Value item, best = Value::absent(), best_key;
  while (ev.next(&cursor, &item)) {
    Value key = get(ev, item);
    if (!case_sensitive) key = without_case(ev, key);
    if (best.is(Kind::kAbsent) || compare(ev.box(), maximum ? Order::kGreater : Order::kLess, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  return best.is(Kind::kAbsent) ? make_undefined(ev.box(), "an item of an empty sequence") : best;
}

Value unique(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("unique", args, {"case_sensitive", "attribute"});
  Generator g{[](Evaluator& e, Generator& self, Value* item) {
    const Value* attribute = self.args.positional.empty() ? nullptr : &self.args.positional[0];
    while (e.next(&self.source, item)) {
      Value key = getter_for(attribute)(e, *item);
      if (self.number == 0) key = without_case(e, key);
      if (self.extra.dict->find(e.box(), key)) continue;
      self.extra.dict->set(e.box(), key, Value::none());
      return true;
    }
    return false;
  }};
  g.number = bound.has(0) && truthy(bound[0]) ? 1 : 0;
  if (bound.has(1)) g.args.positional = std::span(bound.pointer(1), 1);
  g.extra = Value::from(ev.box().make<Dict>());
  g.source = ev.iterate(v);
  return generator(ev, g);
}

Value sum(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("sum", args, {"attribute", "start"});
  const Getter get = getter_for(bound.pointer(0));
  Value total = bound.get(1, Value::from(int64_t{0}));
  if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Cursor cursor = ev.iterate(v);
  Value item;
  while (ev.next(&cursor, &item)) {
    ev.box().step();
    total = apply_binary(ev, BinaryOp::kAdd, total, get(ev, item));
  }
  return total;
}

// --- portions ---

int64_t portion_count(Value value, string_view what) {
  const int64_t count = to_index(value, what);
  if (count < 1) fail(cat(what, ": expected a positive number"));
  return count;
}

Value batch(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("batch", args, {"linecount", "fill_with"}, 1);
  Generator g{[](Evaluator& e, Generator& self, Value* out) {
    ListBuilder portion(e.box());
    Value item;
    while (static_cast<int64_t>(portion.size()) < self.number && e.next(&self.source, &item)) portion.push(item);
    if (portion.size() == 0) return false;
    while (!self.extra.is(Kind::kNone) && static_cast<int64_t>(portion.size()) < self.number) portion.push(self.extra);
    *out = portion.finish();
    return true;
  }};
  g.number = portion_count(bound[0], "batch size");
  g.extra = bound.get(1, Value::none());
  g.source = ev.iterate(v);
  return generator(ev, g);
}

Value slice_filter(Evaluator& ev, Value v, const Args& args) {
  const Bound<2> bound("slice", args, {"slices", "fill_with"}, 1);
  Generator g{[](Evaluator& e, Generator& self, Value* out) {
    if (self.count >= self.number) return false;
    const auto all = self.source.source.list->items;
    const auto slices = static_cast<size_t>(self.number), at = static_cast<size_t>(self.count++);
    const size_t each = all.size() / slices, longer = all.size() % slices;
    const size_t begin = at * each + std::min(at, longer);
    ListBuilder portion(e.box());
    for (const Value item : all.subspan(begin, each + (at < longer ? 1 : 0))) portion.push(item);
    if (!self.extra.is(Kind::kNone) && at >= longer) portion.push(self.extra);
    *out = portion.finish();
    return true;
  }};
  g.number = portion_count(bound[0], "number of slices");
  g.extra = bound.get(1, Value::none());
  g.source.source = Value::from(ev.box().make<List>(List{ev.items_of(v), nullptr, false}));
  return generator(ev, g);
}

constexpr NamedFilter kSequenceFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list_filter},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, true>},
    {"rejectattr", select<true, true>},
    {"reverse", reverse},
    {"select", select<false, false>},
    {"selectattr", select<true, false>},
    {"slice", slice_filter},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const NamedFilter> sequence_filters() { return kSequenceFilters; }

}  // namespace helios::jinja
