#include "coordinator/scheduler/slot_table.h"

#include <limits>

#include "common/base/check.h"

namespace helios {

SlotTable::SlotTable(int capacity) : slots_(capacity) {
  for (int32_t slot = 0; slot < capacity; ++slot) free_.push_back(slot);
}

std::optional<Tenancy> SlotTable::peek(int i) const {
  if (i >= num_free()) return std::nullopt;
  const int32_t slot = free_[i];
  return Tenancy{SlotIndex(slot), Epoch(slots_[slot].last_epoch + 1)};
}

void SlotTable::open(Tenancy tenancy, RequestId request) {
  HELIOS_CHECK(peek(0) == tenancy, tenancy.slot.value, tenancy.epoch.value);
  free_.pop_front();
  Slot& slot = slots_[tenancy.slot.value];
  slot.last_epoch = tenancy.epoch.value;
  slot.owner = request;
}

void SlotTable::close(SlotIndex index) {
  Slot& slot = slots_[index.value];
  HELIOS_CHECK(slot.owner.has_value(), index.value);
  slot.owner.reset();
  // After four billion tenancies a slot retires rather than repeat an epoch.
  if (slot.last_epoch < std::numeric_limits<uint32_t>::max()) free_.push_back(index.value);
}

std::optional<RequestId> SlotTable::owner(SlotIndex index, Epoch epoch) const {
  if (index.value < 0 || index.value >= capacity()) return std::nullopt;
  const Slot& slot = slots_[index.value];
  return slot.last_epoch == epoch.value ? slot.owner : std::nullopt;
}

}  // namespace helios
