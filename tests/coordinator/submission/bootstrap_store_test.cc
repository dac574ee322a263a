#include "coordinator/submission/bootstrap_store.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

TEST(BootstrapStore, AGetIsAnsweredAtOnceWhenTheKeyIsThere) {
  BootstrapStore store;
  EXPECT_TRUE(store.set({"a", "1"})->empty());
  const auto answers = *store.get("rank-0", {"a"});
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].identity, "rank-0");
  EXPECT_EQ(answers[0].value, (StoreValue{"a", "1"}));
}

TEST(BootstrapStore, AGetWaitsForItsKey) {
  BootstrapStore store;
  EXPECT_TRUE(store.get("rank-0", {"a"})->empty());
  EXPECT_TRUE(store.get("rank-1", {"a"})->empty());
  EXPECT_TRUE(store.get("rank-0", {"a"})->empty());  // ranks repeat a get; it is answered once
  EXPECT_TRUE(store.set({"b", "2"})->empty());
  const auto answers = *store.set({"a", "1"});
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].identity, "rank-1");
  EXPECT_TRUE(store.set({"a", "3"})->empty());  // nobody waits any more
  EXPECT_EQ((*store.get("rank-0", {"a"}))[0].value.value, "3");
}

TEST(BootstrapStore, RefusesMoreThanItsBounds) {
  BootstrapStore store;
  EXPECT_FALSE(store.set({"a", std::string(BootstrapStore::kMaxBytes, 'x')}).ok());
  for (size_t i = 0; i < BootstrapStore::kMaxEntries; ++i) ASSERT_TRUE(store.get("r", {std::to_string(i)}).ok());
  EXPECT_EQ(store.get("r", {"one more"}).error().code, Errc::kTooLarge);
}

}  // namespace
}  // namespace helios
