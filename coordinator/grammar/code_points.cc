// Set algebra over sorted ranges, and the general categories out of utf8proc's tables.
#include "coordinator/grammar/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

namespace helios::grammar {
namespace {

constexpr uint32_t kLast = 0x10FFFF;
constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {{"Letter", "L"},
                                                                        {"Uppercase_Letter", "Lu"},
                                                                        {"Lowercase_Letter", "Ll"},
                                                                        {"Titlecase_Letter", "Lt"},
                                                                        {"Mark", "M"},
                                                                        {"Number", "N"},
                                                                        {"Decimal_Number", "Nd"},
                                                                        {"Punctuation", "P"},
                                                                        {"Symbol", "S"},
                                                                        {"Separator", "Z"},
                                                                        {"Space_Separator", "Zs"},
                                                                        {"Other", "C"},
                                                                        {"Control", "Cc"}};

// One scan of the code space gives every category: a pattern may name several.
using Categories = std::array<CodePointSet, 32>;
const Categories& categories() {
  static const Categories table = [] {
    std::array<std::vector<CodePointSet::Range>, 32> ranges;
    for (uint32_t c = 0; c <= kLast; ++c) {
      auto& of = ranges[static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)))];
      if (!of.empty() && of.back().last + 1 == c)
        of.back().last = c;
      else
        of.push_back({c, c});
    }
    Categories sets;
    for (size_t i = 0; i < ranges.size(); ++i) {
      for (const CodePointSet::Range& range : ranges[i])
        if (range.first < kFirstSurrogate || range.first > kLastSurrogate) sets[i].add(range.first, range.last);
    }
    return sets;
  }();
  return table;
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<Range> ranges) : ranges_(ranges) { normalize(); }

CodePointSet CodePointSet::all() { return {{0, kFirstSurrogate - 1}, {kLastSurrogate + 1, kLast}}; }

void CodePointSet::add(uint32_t first, uint32_t last) {
  last = std::min(last, kLast);
  if (first > last) return;
  if (first < kFirstSurrogate && last >= kFirstSurrogate) {
    add(first, kFirstSurrogate - 1);
    first = kFirstSurrogate;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) {
    if (last <= kLastSurrogate) return;
    first = kLastSurrogate + 1;
  }
  const bool in_order = ranges_.empty() || ranges_.back().last + 1 < first;
  ranges_.push_back({first, last});
  if (!in_order) normalize();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

CodePointSet CodePointSet::complement() const { return all().minus(*this); }

CodePointSet CodePointSet::minus(const CodePointSet& other) const {
  CodePointSet out;
  auto cut = other.ranges_.begin();
  for (Range range : ranges_) {
    while (cut != other.ranges_.end() && cut->last < range.first) ++cut;
    for (auto at = cut; at != other.ranges_.end() && at->first <= range.last && range.first <= range.last; ++at) {
      if (at->first > range.first) out.ranges_.push_back({range.first, at->first - 1});
      range.first = at->last + 1;
    }
    if (range.first <= range.last) out.ranges_.push_back(range);
  }
  return out;
}

bool CodePointSet::contains(uint32_t code_point) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                                      [](uint32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

void CodePointSet::normalize() {
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, range.last);
    else
      merged.push_back(range);
  }
  ranges_ = std::move(merged);
}

CodePointSet digit_class() { return {{'0', '9'}}; }

CodePointSet word_class() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }

CodePointSet space_class() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

CodePointSet dot_class() { return CodePointSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement(); }

std::optional<CodePointSet> unicode_property(std::string_view name) {
  if (name == "Any") return CodePointSet::all();
  if (name == "ASCII") return CodePointSet{{0, 0x7F}};
  for (const std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  for (const auto& [long_name, letters] : kLongNames)
    if (name == long_name) name = letters;
  // utf8proc's order of categories.
  static constexpr std::string_view kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  if (name.empty() || name.size() > 2) return std::nullopt;
  std::optional<CodePointSet> found;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (!kNames[i].starts_with(name)) continue;
    if (!found) found.emplace();
    found->add(categories()[i]);
  }
  return found;
}

}  // namespace helios::grammar
