// Where reference models and golden values lie: the directory in HELIOS_TEST_DATA. Tests that need it skip without it,
// and say so.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace helios::testing {

inline std::string test_data_dir() {
  const char* dir = std::getenv("HELIOS_TEST_DATA");
  return dir ? dir : "";
}

}  // namespace helios::testing

/// In a test body: `const std::string path = ...; HELIOS_NEED_TEST_DATA(path, "models/stories260k/f32");`
#define HELIOS_NEED_TEST_DATA(variable, relative)                                                              \
  const std::string variable = helios::testing::test_data_dir() + "/" + (relative);                            \
  if (helios::testing::test_data_dir().empty() || !std::filesystem::exists(variable))                          \
  GTEST_SKIP() << "SKIPPED, NOT CHECKED: set HELIOS_TEST_DATA to the directory that holds " << (relative)
