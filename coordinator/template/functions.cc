// The functions that every template sees: range, dict, namespace, cycler, joiner, and the two of chat templates,
// raise_exception and strftime_now.
//
// Thread: the one that renders.
#include <algorithm>
#include <ctime>
#include <string>

#include "coordinator/template/evaluator.h"
#include "coordinator/template/python_text.h"

namespace helios::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja's sandbox has the same

Value make_range(Evaluator& ev, const Args& args) {
  if (!args.named.empty() || args.positional.empty() || args.positional.size() > 3) {
    fail("range takes one to three positional arguments");
  }
  const auto argument = [&](size_t i) { return to_index(args.positional[i], "range() argument"); };
  const bool single = args.positional.size() == 1;
  const int64_t start = single ? 0 : argument(0);
  const int64_t stop = argument(single ? 0 : 1);
  const int64_t step = args.positional.size() == 3 ? argument(2) : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  const auto span = [](int64_t from, int64_t to) {
    return to > from ? static_cast<uint64_t>(to) - static_cast<uint64_t>(from) : uint64_t{0};
  };
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t distance = step > 0 ? span(start, stop) : span(stop, start);
  const uint64_t size = distance == 0 ? 0 : (distance - 1) / stride + 1;
  if (size > kMaxRange) fail(cat("range too big: the sandbox allows ", std::to_string(kMaxRange), " items"));
  Value out = Value::of(Kind::kRange);
  out.range = ev.box().make<Range>(Range{start, stop, step, static_cast<size_t>(size)});
  return out;
}

Dict* dict_of_arguments(Evaluator& ev, const Args& args) {
  Dict* out = ev.box().make<Dict>();
  if (args.positional.size() > 1) fail("dict expected at most 1 argument");
  if (args.positional.size() == 1) {
    const Value from = args.positional[0];
    if (from.is(Kind::kDict)) {
      for (const Dict::Entry& entry : from.dict->entries()) out->set(ev.box(), entry.key, entry.value);
    } else {
      need_defined(from);
      for (const Value pair : ev.items_of(from)) {
        const auto both = ev.items_of(pair);
        if (both.size() != 2) fail("dictionary update sequence element has length other than 2");
        out->set(ev.box(), both[0], both[1]);
      }
    }
  }
  for (const NamedValue& named : args.named) out->set(ev.box(), ev.text(named.name), named.value);
  return out;
}

Value make_dict(Evaluator& ev, const Args& args) { return Value::from(dict_of_arguments(ev, args)); }

Value make_namespace(Evaluator& ev, const Args& args) {
  return Value::from(dict_of_arguments(ev, args), Kind::kNamespace);
}

Value make_cycler(Evaluator& ev, const Args& args) {
  if (!args.named.empty() || args.positional.empty()) fail("at least one item has to be provided");
  ListBuilder items(ev.box());
  for (const Value v : args.positional) items.push(v);
  Value out = Value::of(Kind::kCycler);
  out.cycler = ev.box().make<Cycler>(Cycler{items.finish().list, 0});
  return out;
}

Value make_joiner(Evaluator& ev, const Args& args) {
  const Bound<1> bound("joiner", args, {"sep"});
  Value out = Value::of(Kind::kJoiner);
  out.joiner = ev.box().make<Joiner>(Joiner{bound.get(0, ev.text(", ")), false});
  return out;
}

Value raise_exception(Evaluator& ev, const Args& args) {
  const Bound<1> bound("raise_exception", args, {"message"}, 1);
  throw Fault{Errc::kInvalidArgument, std::string(ev.str(bound[0]))};
}

Value strftime_now(Evaluator& ev, const Args& args) {
  const Bound<1> bound("strftime_now", args, {"format"}, 1);
  need_defined(bound[0]);
  if (!bound[0].is_text()) fail(cat("strftime() argument 1 must be str, not ", type_name(bound[0])));
  std::string format(bound[0].str());
  // Python fills in microseconds itself, and a time without a zone has no %z and %Z.
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(ev.now().time_since_epoch()).count() % 1'000'000;
  std::string digits = std::to_string(micros < 0 ? micros + 1'000'000 : micros);
  digits.insert(0, 6 - digits.size(), '0');
  for (size_t at = 0; (at = format.find('%', at)) != format.npos && at + 1 < format.size();) {
    const char what = format[at + 1];
    const std::string_view with = what == 'f' ? std::string_view(digits) : std::string_view();
    if (what == 'f' || what == 'z' || what == 'Z') {
      format.replace(at, 2, with);
      at += with.size();
    } else {
      at += 2;
    }
  }
  if (format.empty()) return ev.text("");
  if (format.find('\0') != format.npos) fail("embedded null character");
  const std::time_t seconds = std::chrono::system_clock::to_time_t(ev.now());
  std::tm local{};
  localtime_r(&seconds, &local);
  char buffer[1024];
  const size_t length = format.size() > 256 ? 0 : std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  if (length == 0) fail("strftime_now: a format without result, or one of more than 256 bytes");
  return ev.new_text({buffer, length});
}

constexpr Function kFunctions[] = {
    {"range", make_range},          {"dict", make_dict},     {"namespace", make_namespace},
    {"cycler", make_cycler},        {"joiner", make_joiner}, {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

const Function* find_function(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& f) { return f.name == name; });
  return at == std::end(kFunctions) ? nullptr : at;
}

}  // namespace helios::jinja
