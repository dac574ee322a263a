// The stand-in for GoogleTest finds what it must: tests that fail here on purpose, counted. Exit status 0 when all is
// so.
#include <cstdio>

#include <gtest/gtest.h>

namespace {

int reached = 0;

TEST(Standin, Passes) {
  EXPECT_EQ(2 + 2, 4) << "unread";
  EXPECT_NEAR(1.0, 1.05, 0.1);
  ASSERT_TRUE(!::testing::Test::HasFailure());
  EXPECT_THROW(throw std::runtime_error("x"), std::runtime_error);
  EXPECT_EQ(std::vector<int>({1, 2}), std::vector<int>({1, 2}));
  if (reached == 0) EXPECT_LT(1, 2);
  else FAIL() << "a hanging else";
}
TEST(Standin, FailsAndGoesOn) {
  EXPECT_EQ(1, 2) << "on purpose";
  EXPECT_TRUE(::testing::Test::HasFailure());
  EXPECT_FALSE(::testing::Test::HasFatalFailure());
  ++reached;
}
TEST(Standin, FailsAndStops) {
  SCOPED_TRACE(::testing::Message() << "trace " << 7);
  ASSERT_NEAR(std::nan(""), 0.0, 1e9) << "a NaN is near nothing";
  reached += 100;
}
TEST(Standin, Throws) { throw std::runtime_error("on purpose"); }
TEST(Standin, Skips) {
  GTEST_SKIP() << "asked to";
  reached += 100;
}
TEST(Standin, SkipsByThrowing) { throw ::testing::SkipTest("from below"); }
TEST(Standin, MissesAThrow) { EXPECT_THROW(++reached, std::runtime_error); }
TEST(Standin, BreaksTheDevice) { reached += 10; }

class Fixture : public ::testing::Test {
 protected:
  void SetUp() override { ready_ = true; }
  bool ready_ = false;
};
TEST_F(Fixture, IsSetUp) { ASSERT_TRUE(ready_); }

class Pairs : public ::testing::TestWithParam<std::tuple<int, char>> {};
TEST_P(Pairs, Meet) {
  const auto [number, letter] = GetParam();
  EXPECT_FALSE(number == 3 && letter == 'b') << "one of six, on purpose";
}
INSTANTIATE_TEST_SUITE_P(All, Pairs,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::ValuesIn(std::vector<char>{'a', 'b'})));

}  // namespace

int main() {
  bool broken = false;
  const auto device = [&] {
    const bool now = reached >= 10 && !std::exchange(broken, reached >= 10);
    return std::string(now ? "on purpose" : "");
  };
  const ::testing::standin::Counts counts = ::testing::standin::run_all("", device);
  std::printf("%d passed, %d failed, %d skipped, reached %d\n", counts.passed, counts.failed, counts.skipped, reached);
  return counts.passed == 7 && counts.failed == 6 && counts.skipped == 2 && reached == 12 ? 0 : 1;
}
