// Sizes for people: "412.5 MiB".
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace helios {

/// The largest binary unit that leaves at least one of it, with one decimal; bytes as they are.
inline std::string readable_bytes(int64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) value /= 1024.0, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

}  // namespace helios
