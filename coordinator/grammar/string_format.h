// The values of `format` that schemas may ask for, as regular expressions for the whole string.
//
// Each is a subset of what its RFC allows in which every text is valid; what is rare there (IPv6 zones, quoted local
// parts, leap seconds) is left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace helios::grammar {

/// date-time, date, time, duration, email, hostname, ipv4, ipv6, uuid, uri. Nothing for others.
std::optional<std::string> format_regex(std::string_view format);

}  // namespace helios::grammar
