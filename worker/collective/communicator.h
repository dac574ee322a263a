// The exchanges between the ranks of one group: all-gather of bytes is all that Helios needs.
//
// Partial sums, normalisers, sort keys and sampling statistics are gathered, and every rank combines them in the same
// fixed order, so the result does not depend on a library's reduction order. Calls happen in the same order on every
// rank. Thread: rank, except abort().
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "common/base/ids.h"

namespace helios {

/// The group is gone: a peer died, stopped for longer than the limit, or abort() was called. Nothing can be exchanged
/// any more; the rank reports a fault and exits.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int world_size() const = 0;

  /// Every rank gives `in`; rank r's part comes to out + r * rank_stride. `in` may not overlap the parts, except that
  /// it may be exactly this rank's own. Sizes agree on all ranks. Throws CollectiveError.
  virtual void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) = 0;

  /// An exchange of a step: `in` [max_rows, row_bytes] and `out` [world, max_rows, row_bytes] in device memory, of
  /// which the first *num_rows rows are this step's, the same number on every rank. On the CPU only those travel, and
  /// for none nothing is exchanged; a device whose exchanges are captured sends max_rows, because only its kernels can
  /// read the count. `in` may be this rank's part of `out`. Throws CollectiveError.
  virtual void all_gather_rows(const void* in, void* out, size_t row_bytes, const int32_t* num_rows, int64_t max_rows);

  /// True for a group that was made to add partial sums itself, in its library's order instead of the canonical tree:
  /// faster, and other bits at each tensor-parallel degree.
  virtual bool adds_rows() const { return false; }
  /// out = the sum of the ranks' `in`, [max_rows, row_words] FP32 in device memory; `out` may be `in`. Only where
  /// adds_rows(). Throws CollectiveError.
  virtual void add_rows(const float* in, float* out, size_t row_words, int64_t max_rows);

  /// Whether the group still stands, for one whose captured exchanges run without a call of this rank: what breaks
  /// there nobody is told. Never waits. Throws CollectiveError, and leaves the abort to whoever reports it: that makes
  /// the step in flight end, with numbers that nobody may take.
  virtual void check_group() {}

  /// Returns when every rank has come. Throws CollectiveError.
  virtual void barrier() = 0;

  /// From any thread: pending and later calls throw CollectiveError on this rank (and, where the transport can, on its
  /// peers).
  virtual void abort(const std::string& reason) noexcept = 0;

  /// `out` holds world_size * in.size() bytes, rank r's at r * in.size().
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out);

  /// All-gather of typed words.
  template <class T>
  void all_gather_words(std::span<const T> in, std::span<T> out) {
    all_gather(std::as_bytes(in), std::as_writable_bytes(out));
  }
};

/// World size 1: copies, never waits.
class SingleRankCommunicator final : public Communicator {
 public:
  Rank rank() const override { return Rank(0); }
  int world_size() const override { return 1; }
  void gather(std::span<const std::byte> in, std::byte* out, size_t rank_stride) override;
  void barrier() override {}
  void abort(const std::string&) noexcept override {}
};

}  // namespace helios
