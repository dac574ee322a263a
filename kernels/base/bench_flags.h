// The flags and the summary that benchmarks of single kernels share. Thread: main.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace helios::bench {

struct Flags {
  int threads = 1;
  int rounds = 7;
  bool best = false;  // summarise by the best round
};

/// Reads --threads (1 to 256), --rounds (1 to 10000) and, where `takes_best`, --best over the defaults in `*flags`.
/// --help prints `usage` and ends the program. False after one line on stderr that names `program` and the flag.
inline bool parse_flags(int argc, char** argv, const char* program, const char* usage, bool takes_best, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") {
      std::fputs(usage, stdout);
      std::exit(0);
    }
    if (takes_best && flag == "--best") {
      flags->best = true;
      continue;
    }
    int* const value = flag == "--threads" ? &flags->threads : flag == "--rounds" ? &flags->rounds : nullptr;
    if (!value) {
      std::fprintf(stderr, "%s: %s: unknown flag; see --help\n", program, flag.c_str());
      return false;
    }
    const int most = value == &flags->threads ? 256 : 10000;
    char* end = nullptr;
    const long number = i + 1 < argc ? std::strtol(argv[++i], &end, 10) : 0;
    if (!end || *end != '\0' || number < 1 || number > most) {
      std::fprintf(stderr, "%s: %s: expected a number from 1 to %d\n", program, flag.c_str(), most);
      return false;
    }
    *value = static_cast<int>(number);
  }
  return true;
}

/// The upper median; `values` is not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace helios::bench
