#include "common/launch/speculative_config.h"

#include <optional>
#include <string>

#include <fmt/format.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace helios {
namespace {

namespace json = boost::json;

Error refused(std::string message) { return {Errc::kInvalidArgument, std::move(message), ""}; }

/// What was written, cut where it would fill the line.
std::string shown(const json::value& value) {
  std::string text = json::serialize(value);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

Result<std::optional<int32_t>> integer(const json::object& object, std::string_view name, int32_t most) {
  const json::value* found = object.if_contains(name);
  if (!found) return std::optional<int32_t>();
  const auto* number = found->if_int64();
  if (!number || *number < 1 || *number > most) {
    return refused(fmt::format("{}: expected a number from 1 to {}, found {}", name, most, shown(*found)));
  }
  return std::optional(static_cast<int32_t>(*number));
}

}  // namespace

Result<SpeculativeConfig> parse_speculative_config(std::string_view text) {
  json::error_code failed;
  const json::value parsed = json::parse(text, failed);
  if (failed || !parsed.is_object()) {
    return refused(R"(expected a JSON object such as {"method":"ngram","num_speculative_tokens":4})");
  }
  const json::object& object = parsed.get_object();
  for (const auto& member : object) {
    const std::string_view name = member.key();
    if (name == "method" || name == "num_speculative_tokens" || name == "prompt_lookup_max" ||
        name == "prompt_lookup_min") {
      continue;
    }
    return refused(fmt::format("unknown member {}", shown(json::value(name))));
  }
  const json::value* method = object.if_contains("method");
  if (!method || *method != "ngram") {
    return refused(fmt::format("method: expected \"ngram\", found {}", method ? shown(*method) : "none"));
  }
  const auto tokens = integer(object, "num_speculative_tokens", kMostProposals);
  if (!tokens) return tokens.error();
  if (!*tokens) return refused("num_speculative_tokens is missing");
  const auto longest = integer(object, "prompt_lookup_max", kLongestLookup);
  if (!longest) return longest.error();
  const auto shortest = integer(object, "prompt_lookup_min", kLongestLookup);
  if (!shortest) return shortest.error();
  const int32_t max = longest->value_or(shortest->value_or(kDefaultLookup)), min = shortest->value_or(max);
  if (min > max) return refused(fmt::format("prompt_lookup_min {} is above prompt_lookup_max {}", min, max));
  return SpeculativeConfig{**tokens, min, max};
}

}  // namespace helios
