// Put together from parts; the calendar is exact, leap years included.
#include "coordinator/grammar/string_format.h"

namespace helios::grammar {
namespace {

const std::string kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
const std::string kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

// Four labels of 62 at most: under the 253 octets of a name.
const std::string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,60}[A-Za-z0-9])?";
const std::string kHostname = kLabel + "(?:\\." + kLabel + "){0,3}";
const std::string kAtom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
const std::string kEmail = kAtom + "(?:\\." + kAtom + "){0,2}@" + kHostname;

const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const std::string kIpv4 = kByte + "(?:\\." + kByte + "){3}";

std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string all = "(?:" + group + ":){7}" + group;
  // `before` groups, ::, and up to what is left after it.
  for (int before = 0; before <= 7; ++before) {
    std::string way;
    for (int i = 0; i < before; ++i) way += (i > 0 ? ":" : "") + group;
    way += "::";
    if (before < 7) way += "(?:" + group + "(?::" + group + "){0," + std::to_string(6 - before) + "})?";
    all += "|" + way;
  }
  return "(?:" + all + ")";
}

std::string duration() {
  const std::string n = "[0-9]{1,9}";
  const std::string seconds = n + "S", minutes = n + "M(?:" + seconds + ")?", hours = n + "H(?:" + minutes + ")?";
  const std::string time = "T(?:" + hours + "|" + minutes + "|" + seconds + ")";
  const std::string days = n + "D", months = n + "M(?:" + days + ")?", years = n + "Y(?:" + months + ")?";
  return "P(?:(?:" + days + "|" + months + "|" + years + ")(?:" + time + ")?|" + time + "|" + n + "W)";
}

const std::string kUri = "[A-Za-z][A-Za-z0-9+.-]{0,15}://" + kHostname +
                         "(?::[0-9]{1,5})?(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*"
                         "(?:\\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/"
                         "?-]|%[0-9A-Fa-f]{2})*)?";

}  // namespace

std::optional<std::string> format_regex(std::string_view format) {
  if (format == "date") return kDate;
  if (format == "time") return kTime;
  if (format == "date-time") return kDate + "T" + kTime;
  if (format == "duration") return duration();
  if (format == "email") return kEmail;
  if (format == "hostname") return kHostname;
  if (format == "ipv4") return kIpv4;
  if (format == "ipv6") return ipv6();
  if (format == "uuid") return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (format == "uri") return kUri;
  return std::nullopt;
}

}  // namespace helios::grammar
