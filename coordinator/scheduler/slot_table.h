// Maps physical slots to the requests that hold them, and counts each slot's tenancies.
//
// A slot is reused; an epoch is not. Whatever comes back from a rank names both, so a late completion for a former
// tenant is recognised and dropped. Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/base/ids.h"

namespace helios {

struct Tenancy {
  SlotIndex slot;
  Epoch epoch;
  friend bool operator==(const Tenancy&, const Tenancy&) = default;
};

class SlotTable {
 public:
  explicit SlotTable(int capacity);

  /// The tenancy that the (i+1)-th open() from now would give; empty when fewer slots are free. Changes nothing.
  std::optional<Tenancy> peek(int i) const;

  /// Gives `tenancy`, which must be peek(0), to a request. Epochs of a slot run 1, 2, 3, ...
  void open(Tenancy tenancy, RequestId request);

  /// Ends the tenancy; the slot goes to the end of the free queue, so that the longest free slot is reused first.
  void close(SlotIndex slot);

  /// Who holds the slot in that epoch; empty for a free slot, a past epoch or a slot out of range.
  std::optional<RequestId> owner(SlotIndex slot, Epoch epoch) const;

  int capacity() const { return static_cast<int>(slots_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }

 private:
  struct Slot {
    uint32_t last_epoch = 0;
    std::optional<RequestId> owner;
  };
  std::vector<Slot> slots_;
  std::deque<int32_t> free_;
};

}  // namespace helios
