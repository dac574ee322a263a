#include "coordinator/template/filters.h"

#include <algorithm>
#include <string>

namespace helios::jinja {

void bind_arguments(std::string_view function, const Args& args, std::span<const std::string_view> names,
                    size_t num_required, std::span<const Value*> out) {
  if (args.positional.size() > names.size()) {
    fail(cat(function, "() takes at most ", std::to_string(names.size()), " argument(s), got ",
             std::to_string(args.positional.size())));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) out[i] = &args.positional[i];
  for (const NamedValue& named : args.named) {
    const auto at = std::find(names.begin(), names.end(), named.name);
    if (at == names.end()) {
      fail(cat(function, "() got an unexpected keyword argument '", named.name.substr(0, 80), "'"));
    }
    const Value*& slot = out[static_cast<size_t>(at - names.begin())];
    if (slot) fail(cat(function, "() got multiple values for argument '", named.name, "'"));
    slot = &named.value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!out[i]) fail(cat(function, "() missing required argument '", names[i], "'"));
  }
}

FilterFunction find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), sequence_filters()}) {
    for (const NamedFilter& filter : filters) {
      if (filter.name == name) return filter.function;
    }
  }
  return nullptr;
}

std::string_view why_no_filter(std::string_view name) {
  if (name == "random") return "a prompt must come out the same each time";
  for (const std::string_view html : {"urlize", "xmlattr", "striptags"}) {
    if (name == html) return "a prompt is not HTML";
  }
  for (const std::string_view layout : {"pprint", "wordwrap"}) {
    if (name == layout) return "its line breaks cannot be reproduced exactly";
  }
  return {};
}

}  // namespace helios::jinja
