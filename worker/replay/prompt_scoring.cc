#include "worker/replay/prompt_scoring.h"

#include "kernels/logprobs/prompt_rank.h"
#include "kernels/logprobs/prompt_rows.h"

namespace helios {
namespace {

constexpr int64_t kBlockRows = kPromptBlockRows;
static_assert(kBlockRows == PromptHead::kBlockRows);

}  // namespace

struct PromptScoring::Impl {
  Impl(const CoreShape& core, const StepInputs& step_inputs, const RowExpansion& row_expansion,
       const PromptHead& prompt_head, const CompletionOutputs& frames, StepCounters* step_counters, Communicator& group,
       Backend& backend)
      : shape(core),
        inputs(step_inputs),
        rows(row_expansion),
        head(prompt_head),
        outputs(frames),
        counters(step_counters),
        communicator(group),
        world(group.world_size()),
        layout(core.vocab_size),
        host_tiles(make_shard_tiles(layout, group.rank(), world)),
        tile_table(device_copy(backend, host_tiles.tiles.data(), host_tiles.tiles.size() * sizeof(VocabTile))),
        segment_table(device_copy(backend, host_tiles.segment_first_tile.data(),
                                  host_tiles.segment_first_tile.size() * sizeof(int32_t))),
        shard(host_tiles.view_at(tile_table.as<VocabTile>(), segment_table.as<int32_t>())) {
    memory = backend.device_memory(static_cast<size_t>(place(nullptr)));
    place(memory.as<std::byte>());
  }

  /// The chunk's lists, then one block's reduction, which every block reuses.
  int64_t place(std::byte* base) {
    int64_t bytes = 0;
    const auto take = [&]<class T>(T*& array, int64_t count) {
      array = base ? reinterpret_cast<T*>(base + bytes) : nullptr;
      bytes += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    };
    const int64_t chunk = shape.prefill_chunk, tiles = kBlockRows * shard.num_tiles;
    take(row_targets, chunk);
    take(row_tokens, chunk);
    take(positions, chunk);
    take(num_positions, (chunk + kBlockRows - 1) / kBlockRows);
    take(states, tiles);
    take(lane_max, tiles * kTileLanes);
    take(normalizers, kBlockRows);
    take(cuts, kBlockRows);
    take(actual, kBlockRows);
    take(keys, tiles * kKeptSortKeys);
    take(counts, tiles);
    take(greater, tiles);
    take(gathered, world * kBlockRows * kPromptExchangeWords);
    return bytes;
  }

  /// One rank alone reads its own payloads where others read the gathered ones.
  int32_t* own_payloads() const { return gathered + communicator.rank().value * kBlockRows * kPromptExchangeWords; }

  void record_rows(Stream& stream, int64_t max_rows) const;
  void record_statistics(Stream& stream, int64_t block) const;
  void record_candidates(Stream& stream, int64_t block) const;
  void record_emission(Stream& stream, int64_t block) const;
  void record_exchange(Stream& stream, int64_t block) const;

  const CoreShape shape;
  const StepInputs inputs;
  const RowExpansion& rows;
  const PromptHead& head;
  const CompletionOutputs& outputs;
  StepCounters* const counters;
  Communicator& communicator;
  const int world;
  const VocabLayout layout;
  const ShardTiles host_tiles;
  const Memory tile_table, segment_table;
  const ShardTilesView shard;
  Memory memory;
  int32_t* row_targets;        // [chunk]
  int32_t* row_tokens;         // [chunk]
  LogprobPosition* positions;  // [chunk]
  int32_t* num_positions;      // [blocks]
  LseState* states;            // [64, tiles], as what follows
  float* lane_max;
  float* normalizers;
  float* cuts;
  float* actual;
  SortKey* keys;
  int32_t* counts;
  int32_t* greater;
  int32_t* gathered;  // [world, 64, 64]: every rank's payload of the exchange at hand
};

void PromptScoring::Impl::record_rows(Stream& stream, int64_t max_rows) const {
  const PromptTargetsArgs targets{.inputs = inputs,
                                  .max_lanes = shape.slot_capacity,
                                  .lanes = rows.lanes(),
                                  .targets = outputs.prompt_targets(),
                                  .row_targets = row_targets,
                                  .row_tokens = row_tokens};
  stream.launch([targets](const Launcher& on) { prompt_targets(targets, on); });
  const BeginPromptRowsArgs begin{.num_rows = rows.rows().num_rows,
                                  .max_rows = max_rows,
                                  .row_targets = row_targets,
                                  .row_tokens = row_tokens,
                                  .vocab_size = shape.vocab_size,
                                  .frame = &inputs.header->frame,
                                  .frame_rows = shape.prefill_chunk,
                                  .rows = outputs.prompt_rows(FrameIndex(0)),
                                  .positions = positions,
                                  .num_positions = num_positions,
                                  .counters = counters,
                                  .words_a_position = world > 1 ? 2 * kPromptExchangeWords : 0};
  stream.launch([begin](const Launcher& on) { begin_prompt_rows(begin, on); });
}

void PromptScoring::Impl::record_statistics(Stream& stream, int64_t block) const {
  const TileStatsArgs tiles{.logits = head.logits(),
                            .stride = head.logits_stride(),
                            .positions = positions + block * kBlockRows,
                            .num_positions = num_positions + block,
                            .max_positions = kBlockRows,
                            .shard = shard,
                            .states = states,
                            .lane_max = lane_max};
  stream.launch([tiles](const Launcher& on) { tile_stats(tiles, on); });
  const PromptStatsArgs stats{.logits = head.logits(),
                              .stride = head.logits_stride(),
                              .positions = tiles.positions,
                              .num_positions = tiles.num_positions,
                              .max_positions = kBlockRows,
                              .shard = shard,
                              .states = states,
                              .lane_max = lane_max,
                              .payloads = own_payloads(),
                              .cuts = cuts};
  stream.launch([stats](const Launcher& on) { prompt_stats(stats, on); });
  record_exchange(stream, block);
  const PromptValuesArgs values{.positions = tiles.positions,
                                .num_positions = tiles.num_positions,
                                .max_positions = kBlockRows,
                                .gathered = gathered,
                                .shard_stride = layout.shard_stride(world),
                                .world_size = world,
                                .normalizers = normalizers,
                                .actual = actual};
  stream.launch([values](const Launcher& on) { prompt_values(values, on); });
}

void PromptScoring::Impl::record_candidates(Stream& stream, int64_t block) const {
  const TileCandidatesArgs candidates{.logits = head.logits(),
                                      .stride = head.logits_stride(),
                                      .positions = positions + block * kBlockRows,
                                      .num_positions = num_positions + block,
                                      .max_positions = kBlockRows,
                                      .shard = shard,
                                      .states = states,
                                      .normalizers = normalizers,
                                      .cuts = cuts,
                                      .keys = keys,
                                      .counts = counts};
  stream.launch([candidates](const Launcher& on) { tile_candidates(candidates, on); });
  const PromptRankArgs rank{.logits = head.logits(),
                            .stride = head.logits_stride(),
                            .positions = candidates.positions,
                            .num_positions = candidates.num_positions,
                            .max_positions = kBlockRows,
                            .shard = shard,
                            .states = states,
                            .normalizers = normalizers,
                            .actual = actual,
                            .greater = greater};
  stream.launch([rank](const Launcher& on) { prompt_rank(rank, on); });
}

void PromptScoring::Impl::record_emission(Stream& stream, int64_t block) const {
  const PromptCandidatesArgs candidates{.num_positions = num_positions + block,
                                        .max_positions = kBlockRows,
                                        .shard = shard,
                                        .keys = keys,
                                        .counts = counts,
                                        .greater = greater,
                                        .payloads = own_payloads()};
  stream.launch([candidates](const Launcher& on) { prompt_candidates(candidates, on); });
  record_exchange(stream, block);
  const EmitPromptRowsArgs emit{.positions = positions + block * kBlockRows,
                                .num_positions = num_positions + block,
                                .max_positions = kBlockRows,
                                .actual = actual,
                                .gathered = gathered,
                                .world_size = world};
  stream.launch([emit](const Launcher& on) { emit_prompt_rows(emit, on); });
}

void PromptScoring::Impl::record_exchange(Stream& stream, int64_t block) const {
  if (world == 1) return;
  stream.launch([this, block](const Launcher&) {
    communicator.all_gather_rows(own_payloads(), gathered, kPromptExchangeWords * sizeof(int32_t),
                                 num_positions + block, kBlockRows);
  });
}

PromptScoring::PromptScoring(const CoreShape& shape, const StepInputs& inputs, const RowExpansion& rows,
                             const PromptHead& head, const CompletionOutputs& outputs, StepCounters* counters,
                             Communicator& communicator, Backend& backend)
    : impl_(std::make_unique<Impl>(shape, inputs, rows, head, outputs, counters, communicator, backend)) {}

PromptScoring::~PromptScoring() = default;

void PromptScoring::record(Stream& stream, int64_t max_rows) const {
  impl_->record_rows(stream, max_rows);
  for (int64_t block = 0; block * kBlockRows < max_rows; ++block) {
    impl_->head.record(stream, block * kBlockRows, impl_->num_positions + block);
    impl_->record_statistics(stream, block);
    impl_->record_candidates(stream, block);
    impl_->record_emission(stream, block);
  }
}

int64_t PromptScoring::workspace_bytes() const {
  return static_cast<int64_t>(impl_->memory.bytes() + impl_->tile_table.bytes() + impl_->segment_table.bytes());
}

}  // namespace helios
