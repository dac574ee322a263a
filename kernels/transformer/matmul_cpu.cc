// Matrix products from packed panels by register tiles (matmul_tile-inl.h; matmul_pairs.h where inputs are BF16 and
// weights that or 8 bits, and the processor multiplies pairs of them).
//
// Order (X1): an output element has one accumulator. Blocks along k store it as FP32 and load it back, which changes no
// bit; threads and row tiles cut n and m only. The order is the same for every vector width. What does not hold across
// machines: a baseline without fused multiply-add rounds each product, so its bits differ from those of AVX2 and
// AVX-512 (which agree); products of BF16 by BF16 are exact, and so are all the same.
//
// Mapping: a thread begins with a rectangle of row tiles x panels. Bytes: each panel is read once a block of rows; for
// few rows several panels stream side by side, enough accumulators to hide the FMA latency.
#include "kernels/transformer/matmul.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/base/flush_subnormals.h"
#include "kernels/transformer/matmul_cpu.h"
#include "kernels/transformer/matmul_pairs.h"
#include "kernels/transformer/matmul_panels.h"
#include "kernels/transformer/matmul_shares.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transformer/matmul_cpu.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/transformer/matmul_tile-inl.h"
#include "kernels/transformer/matmul_widen-inl.h"
#include "kernels/transformer/pack_rows-inl.h"

#ifndef HELIOS_MATMUL_JOB
#define HELIOS_MATMUL_JOB
namespace helios {
namespace {

constexpr int64_t kBlockRows = 192;         // rows that meet a panel before the next panel comes
constexpr int64_t kBlockK = 256;            // 192 x 256 activations fit L2
constexpr int64_t kGroupPanels = 8;         // panels that share a k-block of the activations while it is in L2
constexpr int64_t kSerialWork = 64 * 1024;  // multiply-adds not worth a fork

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Threads as a grid over tiles x panels, the rectangle's cost being even; prefers to cut panels.
struct ThreadGrid {
  int64_t across_tiles = 1, across_panels = 1;
  ThreadGrid() = default;
  ThreadGrid(int64_t tiles, int64_t panels, int64_t threads) {
    int64_t best = -1;
    for (int64_t a = 1; a <= std::min(threads, tiles); ++a) {
      const int64_t b = std::min(threads / a, panels);
      const int64_t cost = ((tiles + a - 1) / a) * ((panels + b - 1) / b);
      if (best < 0 || cost < best) best = cost, across_tiles = a, across_panels = b;
    }
  }
};

/// A matmul in progress, shared by its threads.
struct MatmulJob {
  MatmulArgs args;
  int64_t m = 0;  // rows of this step
  PanelView w;
  WorkShares shares;
  float* buffers = nullptr;    // [threads], each ThreadBuffers
  int64_t partial_floats = 0;  // of a thread, at each level
  bool rounded = false;        // BF16 by BF16 or 8 bits: subnormals are flushed, whichever tiles multiply
  bool pairs = false;          // by pair tiles, whose x are pairs of k, packed as such; never without `rounded`
  bool direct = false;         // few rows: not packed
  int64_t packed_k = 0;        // words of a packed row
  ThreadGrid grid;
  alignas(64) uint32_t odd_mask[16];
};

/// The binary tree over segments, as a stack: after segment s, as many merges as s + 1 has trailing zero bits.
int merges_after(int64_t segment) { return __builtin_ctzll(static_cast<uint64_t>(segment) + 1); }

}  // namespace
}  // namespace helios
#endif  // HELIOS_MATMUL_JOB

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Whether this instruction set's panels are those of pair tiles.
constexpr bool kPairPanels = HWY_TARGET == HWY_AVX3;
static_assert(!kPairPanels || (kWidth == kPairWidth && kTileRows <= kPairTileRows && kDirectRows <= kPairDirectRows));

/// The most rows that are not packed.
int64_t DirectRows(bool pairs) { return pairs ? kPairDirectRows : kDirectRows; }
/// Panels that a tile in place takes side by side.
int64_t DirectPanels(const MatmulJob& job) {
  return job.pairs ? direct_pair_panels(job.w.dtype, job.m) : kDirectPanels[static_cast<size_t>(job.m)];
}

/// A rectangle of tiles x panels whose partial sums fit the thread's buffers.
struct Block {
  int64_t tile_begin, tile_end, panel_begin, panel_end;
};

/// A thread's part of the scratch.
struct ThreadBuffers {
  float* partials;  // [kMaxLevels][partial_floats]
  float* widened;   // [kBlockK][kWidth]; or pairs of k
  float* run;       // a run's sums: one panel of packed rows, or all that is direct
  float* packed;    // [tile][k][rows of the tile] of a block of rows, k being pairs for pair tiles; or row by row
};
constexpr int64_t kRunFloats = kBlockRows * kWidth;
static_assert(kRunFloats >= 4 * kDirectRows * kWidth);
/// Room for packed rows; pairs take at most as much.
int64_t PackedFloats(int64_t max_rows, int64_t k) {
  return round_up(std::min(max_rows, kBlockRows) * std::max<int64_t>(k, 1), kLanes);
}
constexpr int64_t kThreadFloats = kBlockK * kWidth + kRunFloats;  // besides partial sums and packed rows
int64_t ThreadFloats(int64_t partial_floats, int64_t packed_floats) {
  return kMaxLevels * partial_floats + kThreadFloats + packed_floats;
}
ThreadBuffers BuffersOf(const MatmulJob& job, int64_t thread) {
  float* const base = job.buffers + thread * ThreadFloats(job.partial_floats, PackedFloats(job.m, job.w.k));
  float* const widened = base + kMaxLevels * job.partial_floats;
  return {base, widened, widened + kBlockK * kWidth, widened + kThreadFloats};
}

/// Whether weights may be widened in registers: E4M3 may be subnormal on the way, and is not to be flushed.
bool InRegisters(const MatmulJob& job) { return job.pairs || !job.rounded || job.w.dtype != DType::kFloat8E4M3; }
/// What x is multiplied by when it is packed or copied.
float LiftOfX(const MatmulJob& job) { return job.rounded ? 1 : lift_of(job.w.dtype); }

/// One row of a panel: sums (+)= run * scales, `run` being sums too where that is all. A segment's first run starts
/// from +0.
HWY_INLINE void AddScaled(const float* run, const float* HWY_RESTRICT scales, bool first, float* sums) {
  const F32 d;
  for (int64_t i = 0; i < kWidth; i += kLanes) {
    const auto before = first ? hn::Zero(d) : hn::Load(d, sums + i);
    hn::Store(hn::MulAdd(hn::Load(d, run + i), hn::Load(d, scales + i), before), d, sums + i);
  }
}

/// Fetches a panel's scales of one run, which is long enough for them to arrive.
HWY_INLINE void FetchRow(const float* scales) {
  for (int64_t i = 0; i < kWidth; i += 16) hwy::Prefetch(scales + i);
}

/// A piece of k within one run, and where its weights lie in the first panel.
struct Piece {
  const uint32_t* words;
  int64_t k, len;
  int64_t packed_k;  // words of a packed row before it
  bool begins_run, ends_run, begins_segment;
};

/// Adds one piece's products to the running partial sums, laid out [panel][row][kWidth]. Meanwhile each call fetches
/// its share of what the same four panels need next: the following piece, or the next group's first. Many tiles share
/// weights that are widened once; a few widen them in registers on the way.
void AddPackedBlock(const MatmulJob& job, const RowTiles& tiles, const Block& block, const Piece& piece,
                    const ThreadBuffers& buffers, float* running) {
  const int64_t first_row = tiles.begin(block.tile_begin);
  const int64_t rows = tiles.begin(block.tile_end) - first_row;
  const bool bytes = is_eight_bit(job.w.dtype);
  const bool folds = job.w.scale_blocks.block != 0;  // then a piece is a whole run
  const int64_t num_tiles = block.tile_end - block.tile_begin;
  const bool widen =
      job.pairs ? bytes : !InRegisters(job) || (job.w.dtype != DType::kFloat32 && num_tiles >= kWidenTiles);
  const int64_t block_bytes = run_rows(job.w.dtype, piece.len) * kRowBytes;  // of one panel
  const int64_t step = 8 * kRowBytes / k_per_row(job.w.dtype) / kStreams / num_tiles, share = piece.len / 8 * step;
  const uint32_t* next = piece.words + run_rows(job.w.dtype, piece.len) * kWidth;
  if (next - job.w.words >= job.w.panel_words) {
    next = job.w.words + (block.panel_end - block.panel_begin) * job.w.panel_words;
  }
  for (int64_t p = block.panel_begin; p < block.panel_end; ++p) {
    const int64_t within = p - block.panel_begin, four = within / kStreams * kStreams + block.panel_begin;
    const uint32_t* panel = piece.words + p * job.w.panel_words;
    if (widen && job.pairs) {
      bytes_to_pairs(job.w.dtype, panel, piece.len, reinterpret_cast<uint32_t*>(buffers.widened));
    } else if (!InRegisters(job)) {
      WidenAndLiftE4m3Panel(panel, piece.len, buffers.widened);
    } else if (widen) {
      WidenPanel(job.w.dtype, panel, piece.len, job.odd_mask, buffers.widened);
    }
    Ahead ahead{
        reinterpret_cast<const char*>(next + four * job.w.panel_words) + within % kStreams * block_bytes / kStreams,
        job.w.panel_words * 4, step};
    float* panel_sums = running + within * rows * kWidth;
    float* const sums = folds ? buffers.run : panel_sums;
    for (int64_t t = block.tile_begin; t < block.tile_end; ++t, ahead.from += share) {
      const int64_t row = tiles.begin(t), height = tiles.begin(t + 1) - row;
      const float* x = buffers.packed + (row - first_row) * job.packed_k + piece.packed_k * height;
      const TileFunction tile =
          job.pairs ? packed_pair_tile(height) : PackedTile(widen ? DType::kFloat32 : job.w.dtype, height);
      tile(widen ? reinterpret_cast<const uint32_t*>(buffers.widened) : panel, 0, x, 0, piece.len,
           sums + (row - first_row) * kWidth, piece.begins_run, job.odd_mask, ahead);
    }
    if (!bytes || !piece.ends_run) continue;
    const float* scales = job.w.scales_at(p, piece.k);
    for (int64_t r = 0; r < rows; ++r) {
      AddScaled(sums + r * kWidth, scales, piece.begins_segment || !folds, panel_sums + r * kWidth);
    }
  }
}

/// left += right: the segments' tree.
void AddPartials(float* HWY_RESTRICT left, const float* HWY_RESTRICT right, int64_t floats) {
  const F32 d;
  for (int64_t i = 0; i < floats; i += kLanes)
    hn::Store(hn::Add(hn::Load(d, left + i), hn::Load(d, right + i)), d, left + i);
}

/// Copies a finished row of one panel to `out`, with the bias; never past column n.
void WriteRow(const MatmulJob& job, const float* sums, int64_t row, int64_t panel) {
  const F32 d;
  const int64_t column = panel * kWidth;
  const int64_t columns = std::min(kWidth, job.w.n - column);
  float* out = job.args.out + row * job.args.out_stride + column;
  const float* bias = job.args.bias ? job.args.bias + column : nullptr;
  int64_t i = 0;
  for (; i + kLanes <= columns; i += kLanes) {
    auto value = hn::Load(d, sums + i);
    if (bias) value = hn::Add(value, hn::LoadU(d, bias + i));
    hn::StoreU(value, d, out + i);
  }
  for (; i < columns; ++i) out[i] = bias ? sums[i] + bias[i] : sums[i];
}

/// Runs all segments over a block. `add(piece, running)` adds at most `max_block_k` of k; an empty segment is +0. The
/// result lies in partials[0].
template <class Add>
void SumSegments(const MatmulJob& job, int64_t max_block_k, int64_t floats, float* partials, const Add& add) {
  const uint32_t* words = job.w.words;
  int64_t level = 0, pairs = 0;
  for (int64_t s = 0; s < job.w.num_segments; ++s) {
    const int64_t begin = job.w.segments[s], end = job.w.segments[s + 1];
    float* running = partials + level * job.partial_floats;
    if (begin == end) std::fill_n(running, floats, 0.0f);
    for (int64_t run = begin, run_end = begin; run < end; run = run_end) {
      run_end = job.w.run_end(run, end);
      // Pieces of equal length: each fetches the next one ahead.
      const int64_t pieces = (run_end - run + max_block_k - 1) / max_block_k;
      const int64_t piece_k = round_up((run_end - run + pieces - 1) / pieces, 8);
      for (int64_t k = run; k < run_end; k += piece_k) {
        const int64_t len = std::min(piece_k, run_end - k);
        add(Piece{words, k, len, job.pairs ? pairs : k, k == run, k + len == run_end, k == begin}, running);
        pairs += (len + 1) / 2;
        words += run_rows(job.w.dtype, len) * kWidth;
      }
    }
    for (int merges = merges_after(s); merges > 0; --merges, --level) {
      AddPartials(partials + (level - 1) * job.partial_floats, partials + level * job.partial_floats, floats);
    }
    ++level;
  }
}

void RunPackedBlock(const MatmulJob& job, const RowTiles& tiles, const Block& block, const ThreadBuffers& buffers) {
  const int64_t first_row = tiles.begin(block.tile_begin), rows = tiles.begin(block.tile_end) - first_row;
  const int64_t panels = block.panel_end - block.panel_begin;
  SumSegments(job, kBlockK, panels * rows * kWidth, buffers.partials,
              [&](const Piece& piece, float* running) { AddPackedBlock(job, tiles, block, piece, buffers, running); });
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t p = 0; p < panels; ++p) {
      WriteRow(job, buffers.partials + (p * rows + r) * kWidth, first_row + r, block.panel_begin + p);
    }
  }
}

/// Words of a packed row: a run's pairs are its own.
int64_t PackedWords(const PanelView& w, bool pairs) {
  int64_t words = 0;
  w.for_each_run([&](int64_t begin, int64_t end) { words += (end - begin + 1) / 2; });
  return pairs ? words : w.k;
}

void Multiply(float factor, int64_t count, float* values) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  }
  for (; i < count; ++i) values[i] *= factor;
}

/// A tile's rows of x into [k][rows], k being pairs for pair tiles; a single row in order.
void PackTile(const MatmulJob& job, int64_t row, int64_t height, float* packed) {
  const float* x = job.args.x + row * job.args.x_stride;
  if (!job.pairs) {
    if (height == 1) {
      std::copy_n(x, job.w.k, packed);
    } else {
      PackTileRows<false>(x, job.args.x_stride, job.w.k, height, packed);
    }
    if (LiftOfX(job) != 1) Multiply(LiftOfX(job), job.w.k * height, packed);
    return;
  }
  job.w.for_each_run([&](int64_t begin, int64_t end) {
    if (height == 1) {
      PackRowPairs(x + begin, end - begin, packed);
    } else {
      PackTileRows<true>(x + begin, job.args.x_stride, end - begin, height, packed);
    }
    packed += (end - begin + 1) / 2 * height;
  });
}

/// A block's rows of x, tile by tile.
void PackRows(const MatmulJob& job, const RowTiles& tiles, const Block& block, float* packed) {
  for (int64_t t = block.tile_begin; t < block.tile_end; ++t) {
    const int64_t row = tiles.begin(t), height = tiles.begin(t + 1) - row;
    PackTile(job, row, height, packed);
    packed += height * job.packed_k;
  }
}

constexpr int64_t kBlockTiles = kBlockRows / kTileRows;
int64_t NumBlocks(const Block& share) { return (share.tile_end - share.tile_begin + kBlockTiles - 1) / kBlockTiles; }

/// What the grid gives to a thread; nothing to those beside it.
Block ShareOf(const MatmulJob& job, int64_t thread) {
  const ThreadGrid& grid = job.grid;
  if (thread >= grid.across_tiles * grid.across_panels) return {0, 0, 0, 0};
  const int64_t tiles = job.direct ? 1 : RowTiles(job.m, kTileRows).count, panels = job.w.num_panels();
  const int64_t a = thread / grid.across_panels, b = thread % grid.across_panels;
  return {tiles * a / grid.across_tiles, tiles * (a + 1) / grid.across_tiles, panels * b / grid.across_panels,
          panels * (b + 1) / grid.across_panels};
}

/// Packed rows: a unit is one panel and a block of rows, block after block. `packed` is what the buffer holds.
void RunPackedUnits(const MatmulJob& job, const WorkShares::Units& units, const ThreadBuffers& buffers, Block& packed) {
  const Block share = ShareOf(job, units.owner);
  const int64_t panels = share.panel_end - share.panel_begin, block = units.begin / panels;
  const int64_t tile_begin = share.tile_begin + block * kBlockTiles;
  const RowTiles tiles(job.m, kTileRows);
  const Block mine{tile_begin, std::min(tile_begin + kBlockTiles, share.tile_end),
                   share.panel_begin + units.begin - block * panels, share.panel_begin + units.end - block * panels};
  if (mine.tile_begin != packed.tile_begin || mine.tile_end != packed.tile_end) {
    PackRows(job, tiles, mine, buffers.packed);
    packed = mine;
  }
  RunPackedBlock(job, tiles, mine, buffers);
}

/// Whether few rows of x are multiplied as copies.
bool CopiesRows(const MatmulJob& job) { return job.pairs || LiftOfX(job) != 1; }

/// `panels` panels from `first`, `apart` apart, for all (at most kDirectRows) rows.
void RunDirectPanels(const MatmulJob& job, int64_t first, int64_t panels, int64_t apart, const ThreadBuffers& buffers) {
  const int64_t rows = job.m, stride = apart * job.w.panel_words;
  constexpr int64_t kMostPanels = 4;  // side by side
  const bool scaled = is_eight_bit(job.w.dtype);
  const DType stored = job.w.dtype;
  const TileFunction tile =
      job.pairs ? direct_pair_tile(stored, rows, panels > 1) : DirectTile(stored, rows, panels > 1);
  const float* const x = CopiesRows(job) ? buffers.packed : job.args.x;
  const int64_t x_stride = CopiesRows(job) ? job.packed_k : job.args.x_stride;
  float* const partials = buffers.partials;
  SumSegments(job, std::max<int64_t>(job.w.k, 1), rows * panels * kWidth, partials,
              [&](const Piece& piece, float* running) {  // always a whole run
                const float* scales[kMostPanels];
                for (int64_t q = 0; scaled && q < panels; ++q) {
                  FetchRow(scales[q] = job.w.scales_at(first + q * apart, piece.k));
                }
                tile(piece.words + first * job.w.panel_words, stride, x + piece.packed_k, x_stride, piece.len,
                     scaled ? buffers.run : running, true, job.odd_mask, Ahead());
                for (int64_t r = 0, i = 0; scaled && r < rows; ++r) {
                  for (int64_t q = 0; q < panels; ++q, i += kWidth) {
                    AddScaled(buffers.run + i, scales[q], piece.begins_segment, running + i);
                  }
                }
              });
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t q = 0; q < panels; ++q) WriteRow(job, partials + (r * panels + q) * kWidth, r, first + q * apart);
  }
}

/// Rows in place: the share's panels are cut into as many runs as stream side by side, each read from its begin to its
/// end. A unit is one panel of each; those left over come last, one by one.
struct DirectRuns {
  int64_t together, length, num_units;
  DirectRuns(const MatmulJob& job, const Block& share)
      : together(DirectPanels(job)),
        length((share.panel_end - share.panel_begin) / together),
        num_units(share.panel_end - share.panel_begin - (together - 1) * length) {}
};

void RunDirectUnits(const MatmulJob& job, const WorkShares::Units& units, const ThreadBuffers& buffers) {
  const Block share = ShareOf(job, units.owner);
  const DirectRuns runs(job, share);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    if (unit < runs.length) {
      RunDirectPanels(job, share.panel_begin + unit, runs.together, runs.length, buffers);
    } else {
      RunDirectPanels(job, share.panel_begin + unit + (runs.together - 1) * runs.length, 1, 1, buffers);
    }
  }
}

void RunUnits(const MatmulJob& job, int64_t thread) {
  const ThreadBuffers buffers = BuffersOf(job, thread);
  for (int64_t r = 0; job.direct && CopiesRows(job) && r < job.m; ++r) {
    PackTile(job, r, 1, buffers.packed + r * job.packed_k);
  }
  Block packed{0, 0, 0, 0};
  while (const WorkShares::Units units = job.shares.take(thread, job.direct ? 1 : kGroupPanels)) {
    if (job.direct) {
      RunDirectUnits(job, units, buffers);
    } else {
      RunPackedUnits(job, units, buffers, packed);
    }
  }
}

void RunThread(const MatmulJob& job, int64_t thread) {
  if (!job.rounded) return RunUnits(job, thread);
  const FlushSubnormals flush;
  RunUnits(job, thread);
}

}  // namespace

int64_t PanelWidth() { return kWidth; }

int64_t PartialFloats(int64_t max_rows) {
  return std::max(std::min(max_rows, kBlockRows), std::max(kDirectRows, kPairDirectRows)) * kGroupPanels * kWidth;
}

int64_t ThreadBytes(int64_t max_rows, int64_t k) {
  return ThreadFloats(PartialFloats(max_rows), PackedFloats(max_rows, k)) * 4;
}

void RunMatmul(MatmulJob& job, ThreadPool& pool) {
  job.partial_floats = PartialFloats(job.m);
  job.pairs = kPairPanels && job.rounded && has_pair_products();
  job.direct = job.m <= DirectRows(job.pairs) && InRegisters(job);
  job.packed_k = PackedWords(job.w, job.pairs);
  const bool alone = pool.num_threads() == 1 || job.m * job.w.n * std::max<int64_t>(job.w.k, 1) <= kSerialWork;
  const int64_t num_threads = alone ? 1 : pool.num_threads();
  job.grid = ThreadGrid(job.direct ? 1 : RowTiles(job.m, kTileRows).count, job.w.num_panels(), num_threads);
  for (int64_t t = 0; t < pool.num_threads(); ++t) {
    const Block share = ShareOf(job, t);
    const int64_t panels = share.panel_end - share.panel_begin;
    const int64_t units = job.direct ? DirectRuns(job, share).num_units : panels * NumBlocks(share);
    job.shares.set(t, units, job.direct ? units : panels);
  }
  if (alone) return RunThread(job, 0);
  pool.run([&job](int64_t thread, int64_t) { RunThread(job, thread); });
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace helios {

HWY_EXPORT(PanelWidth);
HWY_EXPORT(ThreadBytes);
HWY_EXPORT(RunMatmul);

int64_t matmul_panel_width() { return HWY_DYNAMIC_DISPATCH(PanelWidth)(); }

int64_t matmul_scratch_bytes(const PackedMatrix& w, int64_t max_rows, int num_threads) {
  return WorkShares::bytes(num_threads) + num_threads * HWY_DYNAMIC_DISPATCH(ThreadBytes)(max_rows, w.k());
}

void matmul(const MatmulArgs& args, void* scratch, const Launcher& on) {
  ThreadPool& pool = on.pool();
  const int64_t m = std::min(*args.num_rows - args.first_row, args.max_rows);
  if (m <= 0 || args.w->n() == 0) return;
  MatmulJob job;
  job.m = m;
  std::fill_n(job.odd_mask, 16, 0xffff0000u);
  job.args = args;
  job.w = MatmulKernels::view(*args.w);
  HELIOS_CHECK(job.w.width == matmul_panel_width(), job.w.width);
  job.rounded = args.x_rounded_to == DType::kBFloat16 && (job.w.dtype == DType::kBFloat16 || is_eight_bit(job.w.dtype));
  job.shares = WorkShares(scratch, pool.num_threads());
  job.buffers = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + WorkShares::bytes(pool.num_threads()));
  HWY_DYNAMIC_DISPATCH(RunMatmul)(job, pool);
}

}  // namespace helios
#endif  // HWY_ONCE
