// Distinct integer types for the things that are easy to swap: a slot is not a rank, an epoch is not a frame.
//
// Token ids stay plain int32: they travel in bulk as int32 tensors between host, device and JSON.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace helios {

template <class Tag, class Rep>
struct Id {
  using rep = Rep;
  Rep value{};

  constexpr Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

/// A physical request place on the device, 0 <= slot < capacity.
using SlotIndex = Id<struct SlotIndexTag, int32_t>;
/// A slot's tenancy counter; never reused, starts at 1 (0 means never owned).
using Epoch = Id<struct EpochTag, uint32_t>;
/// Which of the two alternating output halves: 0 or 1.
using FrameIndex = Id<struct FrameIndexTag, int32_t>;
/// Position in the tensor-parallel group, 0 <= rank < world size.
using Rank = Id<struct RankTag, int32_t>;
/// The coordinator's name for one generated sequence. Workers never see it.
using RequestId = Id<struct RequestIdTag, uint64_t>;
/// Submission counter; each submission is one more than the last. The first is 1.
using Sequence = Id<struct SequenceTag, uint64_t>;

/// Index into the vocabulary, 0 <= id < vocab_size; -1 marks "none" in tensors.
using TokenId = int32_t;

}  // namespace helios

template <class Tag, class Rep>
struct std::hash<helios::Id<Tag, Rep>> {
  size_t operator()(helios::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
