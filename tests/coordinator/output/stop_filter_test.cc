// The stop matcher against brute force, and its cost against the worst strings.
#include "coordinator/output/stop_filter.h"

#include <gtest/gtest.h>

#include <random>

namespace helios {
namespace {

struct Found {
  size_t stop;
  size_t begin, end;
};

// The earliest end; at one end, the first of the list.
std::optional<Found> brute_force(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!stops[i].empty() && std::string_view(text).substr(0, end).ends_with(stops[i])) {
        return Found{i, end - stops[i].size(), end};
      }
    }
  }
  return std::nullopt;
}

size_t longest_undecided(const std::vector<std::string>& stops, const std::string& text) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t size = 1; size <= stop.size(); ++size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) longest = std::max(longest, size);
    }
  }
  return longest;
}

TEST(StopFilter, EarliestCompletionWinsThenListOrder) {
  const std::vector<std::string> stops = {"bcd", "abcd", "d", "bc"};
  StopFilter filter(stops);
  const auto match = filter.feed("xabcd", true);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->stop, 3u);
  EXPECT_EQ(match->begin, 2);
  EXPECT_EQ(match->end, 4);
  const std::vector<std::string> ties = {"abcd", "d", "bcd"};
  StopFilter tied(ties);
  EXPECT_EQ(tied.feed("abcd", true)->stop, 0u);
  const std::vector<std::string> reversed = {"d", "abcd"};
  StopFilter short_first(reversed);
  EXPECT_EQ(short_first.feed("abcd", true)->begin, 3);
}

TEST(StopFilter, WithoutStringsNothingIsUndecided) {
  StopFilter filter({});
  EXPECT_FALSE(filter.feed("anything", true));
  EXPECT_EQ(filter.undecided_bytes(), 0);
}

TEST(StopFilter, MatchesThatCompleteWhileUnarmedDoNotCount) {
  const std::vector<std::string> stops = {"ab"};
  StopFilter filter(stops);
  EXPECT_FALSE(filter.feed("ab a", false));
  const auto match = filter.feed("b", true);  // completes now, though it began before
  ASSERT_TRUE(match);
  EXPECT_EQ(match->begin, 3);
}

TEST(StopFilter, RandomTextsAgreeWithBruteForce) {
  std::mt19937 random(3);
  const auto draw = [&](size_t least, size_t most) {
    std::string text(least + random() % (most - least + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2 + (random() % 8 == 0));
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops(1 + random() % 4);
    for (std::string& stop : stops) stop = draw(2, 6);
    const std::string text = draw(0, 24);
    StopFilter filter(stops);
    std::optional<StopFilter::Match> match;
    for (size_t at = 0; at < text.size() && !match;) {
      const size_t size = std::min<size_t>(1 + random() % 5, text.size() - at);
      match = filter.feed(std::string_view(text).substr(at, size), true);
      at += size;
      if (!match) {
        ASSERT_EQ(filter.undecided_bytes(), static_cast<int64_t>(longest_undecided(stops, text.substr(0, at))));
      }
    }
    const std::optional<Found> expected = brute_force(stops, text);
    ASSERT_EQ(match.has_value(), expected.has_value()) << text;
    if (!expected) continue;
    ASSERT_EQ(match->stop, expected->stop);
    ASSERT_EQ(match->begin, static_cast<int64_t>(expected->begin));
    ASSERT_EQ(match->end, static_cast<int64_t>(expected->end));
  }
}

// 64 strings of 1 KB that all but match everywhere: a quadratic matcher would need 2^36 steps and the test's time
// limit.
TEST(StopFilter, LongNearMissesAreLinear) {
  std::vector<std::string> stops;
  for (int i = 0; i < 64; ++i) stops.push_back(std::string(1000 + i, 'a') + static_cast<char>('A' + i % 26));
  StopFilter filter(stops);
  const std::string text(1 << 20, 'a');
  EXPECT_FALSE(filter.feed(text, true));
  EXPECT_EQ(filter.undecided_bytes(), 1063);
  EXPECT_TRUE(filter.feed("A", true));
}

}  // namespace
}  // namespace helios
