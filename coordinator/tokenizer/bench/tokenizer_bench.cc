// How long encoding takes: one JSON line a text, with a digest of the ids, so that another encoder can be held beside.
//
//   helios-tokenizer-bench DIR ROUNDS FILE...    DIR holds tokenizer.json and tokenizer_config.json
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_json.h"

namespace helios {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

/// FNV-1a over the ids as 32-bit words: a script can do the same.
uint32_t digest(const std::vector<TokenId>& ids) {
  uint32_t hash = 2166136261u;
  for (const TokenId id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 16777619u;
  return hash;
}

int run(const std::string& dir, int rounds, const std::vector<std::string>& files) {
  const auto begin = Clock::now();
  const auto tokenizer = Tokenizer::load(dir);
  if (!tokenizer) return fmt::print(stderr, "{}\n", tokenizer.error().message), 1;
  fmt::print("{{\"load_ms\":{:.1f}}}\n", milliseconds(begin));
  for (const std::string& file : files) {
    const auto text = read_text_file(file, size_t{256} << 20);
    if (!text) return fmt::print(stderr, "{}\n", text.error().message), 1;
    std::vector<double> times;
    std::vector<TokenId> ids;
    for (int round = 0; round < rounds; ++round) {
      const auto from = Clock::now();
      auto encoded = (**tokenizer).encode(*text, false);
      times.push_back(milliseconds(from));
      if (!encoded) return fmt::print(stderr, "{}: {}\n", file, encoded.error().message), 1;
      ids = std::move(encoded).value();
    }
    std::sort(times.begin(), times.end());
    fmt::print("{{\"file\":\"{}\",\"bytes\":{},\"tokens\":{},\"digest\":{},\"median_ms\":{:.2f}}}\n", file,
               text->size(), ids.size(), digest(ids), times[times.size() / 2]);
  }
  return 0;
}

}  // namespace
}  // namespace helios

int main(int argc, char** argv) {
  const int rounds = argc > 3 ? std::atoi(argv[2]) : 0;
  if (rounds < 1) return std::fprintf(stderr, "usage: helios-tokenizer-bench TOKENIZER_DIR ROUNDS FILE...\n"), 2;
  return helios::run(argv[1], rounds, {argv + 3, argv + argc});
}
