#include "coordinator/scheduler/slot_table.h"

#include <gtest/gtest.h>

namespace helios {
namespace {

TEST(SlotTable, ReusedSlotGetsANewEpoch) {
  SlotTable slots(1);
  const Tenancy first = *slots.peek(0);
  EXPECT_EQ(first.epoch, Epoch(1));
  slots.open(first, RequestId(7));
  EXPECT_FALSE(slots.peek(0).has_value());
  slots.close(first.slot);
  const Tenancy second = *slots.peek(0);
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_EQ(second.epoch, Epoch(2));
}

TEST(SlotTable, APastEpochHasNoOwner) {
  SlotTable slots(1);
  const Tenancy first = *slots.peek(0);
  slots.open(first, RequestId(7));
  EXPECT_EQ(slots.owner(first.slot, first.epoch), RequestId(7));
  slots.close(first.slot);
  EXPECT_FALSE(slots.owner(first.slot, first.epoch).has_value());
  slots.open(*slots.peek(0), RequestId(8));
  EXPECT_FALSE(slots.owner(first.slot, first.epoch).has_value());
  EXPECT_EQ(slots.owner(first.slot, Epoch(2)), RequestId(8));
}

TEST(SlotTable, SlotsOutOfRangeHaveNoOwner) {
  const SlotTable slots(2);
  EXPECT_FALSE(slots.owner(SlotIndex(-1), Epoch(1)).has_value());
  EXPECT_FALSE(slots.owner(SlotIndex(2), Epoch(1)).has_value());
  EXPECT_FALSE(slots.owner(SlotIndex(0), Epoch(0)).has_value());
}

TEST(SlotTable, PeekNamesTheComingTenanciesInOrder) {
  SlotTable slots(3);
  const Tenancy a = *slots.peek(0), b = *slots.peek(1);
  EXPECT_NE(a.slot, b.slot);
  slots.open(a, RequestId(1));
  EXPECT_EQ(*slots.peek(0), b);
  EXPECT_EQ(slots.num_free(), 2);
}

}  // namespace
}  // namespace helios
