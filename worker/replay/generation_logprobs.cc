#include "worker/replay/generation_logprobs.h"

#include "common/base/check.h"
#include "kernels/logprobs/collect_positions.h"
#include "kernels/logprobs/emit_logprobs.h"
#include "kernels/logprobs/row_normalizer.h"
#include "kernels/logprobs/shard_candidates.h"
#include "kernels/logprobs/shard_stats.h"
#include "kernels/logprobs/tile_candidates.h"
#include "kernels/logprobs/tile_stats.h"

namespace helios {
namespace {

// One allocation, cut into the arrays of a step. Sizes are fixed by the core.
struct Workspace {
  Workspace(const GenerationLogprobsShape& shape, int64_t tiles, int world, Backend& backend) {
    memory = backend.device_memory(static_cast<size_t>(place(nullptr, shape, tiles, world)));
    place(memory.as<std::byte>(), shape, tiles, world);
  }

  int64_t place(std::byte* base, const GenerationLogprobsShape& shape, int64_t tiles, int world) {
    int64_t bytes = 0;
    const auto take = [&]<class T>(T*& array, int64_t count) {
      array = reinterpret_cast<T*>(base + bytes);
      bytes += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    };
    const int64_t rows = shape.max_rows;
    take(num_positions, 1);
    take(positions, rows);
    take(claims, int64_t{shape.slot_capacity} * shape.token_capacity);
    take(states, rows * tiles);
    take(lane_max, rows * tiles * kTileLanes);
    take(normalizers, rows);
    take(cuts, rows);
    take(keys, rows * tiles * kKeptSortKeys);
    take(counts, rows * tiles);
    take(gathered, world > 1 ? world * rows * kShardExchangeWords : 0);
    return bytes;
  }

  Memory memory;
  int32_t* num_positions;
  LogprobPosition* positions;
  int32_t* claims;
  LseState* states;
  float* lane_max;
  float* normalizers;
  float* cuts;
  SortKey* keys;
  int32_t* counts;
  int32_t* gathered;  // [world, the graph's max_rows, 256]: every rank's payload of the exchange at hand
};

}  // namespace

struct GenerationLogprobs::Impl {
  Impl(const VocabLayout& vocabulary, const GenerationLogprobsShape& core, StepCounters* step_counters,
       Communicator& group, Backend& backend)
      : layout(vocabulary),
        shape(core),
        counters(step_counters),
        communicator(group),
        world(group.world_size()),
        host_tiles(make_shard_tiles(vocabulary, group.rank(), world)),
        tile_table(device_copy(backend, host_tiles.tiles.data(), host_tiles.tiles.size() * sizeof(VocabTile))),
        segment_table(device_copy(backend, host_tiles.segment_first_tile.data(),
                                  host_tiles.segment_first_tile.size() * sizeof(int32_t))),
        shard(host_tiles.view_at(tile_table.as<VocabTile>(), segment_table.as<int32_t>())),
        work(core, shard.num_tiles, world, backend) {}

  void record_positions(const GenerationLogprobsArgs& args, Stream& stream);
  void record_tile_stats(const GenerationLogprobsArgs& args, Stream& stream);
  void record_tile_candidates(const GenerationLogprobsArgs& args, Stream& stream);
  void record_alone(const GenerationLogprobsArgs& args, Stream& stream);
  void record_sharded(const GenerationLogprobsArgs& args, Stream& stream);
  void record_exchange(int64_t max_rows, Stream& stream);
  int32_t* own_payloads(int64_t max_rows) const {
    return work.gathered + communicator.rank().value * max_rows * kShardExchangeWords;
  }

  const VocabLayout layout;
  const GenerationLogprobsShape shape;
  StepCounters* const counters;
  Communicator& communicator;
  const int world;
  const ShardTiles host_tiles;
  const Memory tile_table;
  const Memory segment_table;
  const ShardTilesView shard;
  const Workspace work;
};

void GenerationLogprobs::Impl::record_positions(const GenerationLogprobsArgs& args, Stream& stream) {
  const CollectPositionsArgs collect{.num_rows = args.num_rows,
                                     .max_rows = args.max_rows,
                                     .row_slots = args.row_slots,
                                     .row_epochs = args.row_epochs,
                                     .row_tokens = args.row_tokens,
                                     .row_halves = args.row_halves,
                                     .records = args.records,
                                     .packed = args.packed,
                                     .requested = args.requested,
                                     .token_ids = args.token_ids,
                                     .token_id_counts = args.token_id_counts,
                                     .slot_capacity = shape.slot_capacity,
                                     .token_capacity = shape.token_capacity,
                                     .position_words = shape.position_words,
                                     .claims = work.claims,
                                     .positions = work.positions,
                                     .num_positions = work.num_positions,
                                     .counters = counters,
                                     .shard_width = shard.width,
                                     .words_a_position = world > 1 ? 2 * kShardExchangeWords : 0,
                                     .num_launches = world > 1 ? 6 : 4};
  stream.launch([collect](const Launcher& on) { collect_positions(collect, on); });
}

void GenerationLogprobs::Impl::record_tile_stats(const GenerationLogprobsArgs& args, Stream& stream) {
  const TileStatsArgs stats{.logits = args.logits,
                            .stride = args.logits_stride,
                            .positions = work.positions,
                            .num_positions = work.num_positions,
                            .max_positions = args.max_rows,
                            .shard = shard,
                            .states = work.states,
                            .lane_max = work.lane_max};
  stream.launch([stats](const Launcher& on) { tile_stats(stats, on); });
}

void GenerationLogprobs::Impl::record_tile_candidates(const GenerationLogprobsArgs& args, Stream& stream) {
  const TileCandidatesArgs candidates{.logits = args.logits,
                                      .stride = args.logits_stride,
                                      .positions = work.positions,
                                      .num_positions = work.num_positions,
                                      .max_positions = args.max_rows,
                                      .shard = shard,
                                      .states = work.states,
                                      .normalizers = work.normalizers,
                                      .cuts = work.cuts,
                                      .keys = work.keys,
                                      .counts = work.counts};
  stream.launch([candidates](const Launcher& on) { tile_candidates(candidates, on); });
}

void GenerationLogprobs::Impl::record_alone(const GenerationLogprobsArgs& args, Stream& stream) {
  record_tile_stats(args, stream);
  const RowNormalizerArgs normalizer{.states = work.states,
                                     .lane_max = work.lane_max,
                                     .positions = work.positions,
                                     .num_positions = work.num_positions,
                                     .max_positions = args.max_rows,
                                     .shard = shard,
                                     .normalizers = work.normalizers,
                                     .cuts = work.cuts};
  stream.launch([normalizer](const Launcher& on) { row_normalizer(normalizer, on); });
  record_tile_candidates(args, stream);
  const EmitLogprobsArgs emit{.logits = args.logits,
                              .stride = args.logits_stride,
                              .positions = work.positions,
                              .num_positions = work.num_positions,
                              .max_positions = args.max_rows,
                              .alternatives = shape.alternatives,
                              .shard = shard,
                              .normalizers = work.normalizers,
                              .keys = work.keys,
                              .counts = work.counts,
                              .counters = counters};
  stream.launch([emit](const Launcher& on) { emit_logprobs(emit, on); });
}

void GenerationLogprobs::Impl::record_sharded(const GenerationLogprobsArgs& args, Stream& stream) {
  record_tile_stats(args, stream);
  const ShardStatsArgs stats{.states = work.states,
                             .lane_max = work.lane_max,
                             .positions = work.positions,
                             .num_positions = work.num_positions,
                             .max_positions = args.max_rows,
                             .shard = shard,
                             .payloads = own_payloads(args.max_rows),
                             .cuts = work.cuts};
  stream.launch([stats](const Launcher& on) { shard_stats(stats, on); });
  record_exchange(args.max_rows, stream);
  const ShardNormalizerArgs normalizer{.gathered = work.gathered,
                                       .num_positions = work.num_positions,
                                       .max_positions = args.max_rows,
                                       .world_size = world,
                                       .normalizers = work.normalizers};
  stream.launch([normalizer](const Launcher& on) { shard_normalizer(normalizer, on); });
  record_tile_candidates(args, stream);
  const ShardCandidatesArgs candidates{.logits = args.logits,
                                       .stride = args.logits_stride,
                                       .positions = work.positions,
                                       .num_positions = work.num_positions,
                                       .max_positions = args.max_rows,
                                       .shard = shard,
                                       .keys = work.keys,
                                       .counts = work.counts,
                                       .payloads = own_payloads(args.max_rows),
                                       .counters = counters};
  stream.launch([candidates](const Launcher& on) { shard_candidates(candidates, on); });
  record_exchange(args.max_rows, stream);
  const EmitShardLogprobsArgs emit{.positions = work.positions,
                                   .num_positions = work.num_positions,
                                   .max_positions = args.max_rows,
                                   .alternatives = shape.alternatives,
                                   .vocab_size = layout.vocab_size(),
                                   .shard_stride = layout.shard_stride(world),
                                   .world_size = world,
                                   .normalizers = work.normalizers,
                                   .gathered = work.gathered};
  stream.launch([emit](const Launcher& on) { emit_shard_logprobs(emit, on); });
}

void GenerationLogprobs::Impl::record_exchange(int64_t max_rows, Stream& stream) {
  stream.launch([this, max_rows](const Launcher&) {
    communicator.all_gather_rows(own_payloads(max_rows), work.gathered, kShardExchangeWords * sizeof(int32_t),
                                 work.num_positions, max_rows);
  });
}

GenerationLogprobs::GenerationLogprobs(const VocabLayout& layout, const GenerationLogprobsShape& shape,
                                       StepCounters* counters, Communicator& communicator, Backend& backend) {
  HELIOS_CHECK(valid_world_size(communicator.world_size()), communicator.world_size());
  HELIOS_CHECK(shape.slot_capacity >= 1 && shape.token_capacity >= 1, shape.slot_capacity, shape.token_capacity);
  HELIOS_CHECK(shape.alternatives >= 1 && shape.alternatives <= kMaxNaturalAlternatives, shape.alternatives);
  HELIOS_CHECK(shape.position_words >= packed_words(shape.alternatives), shape.position_words, shape.alternatives);
  HELIOS_CHECK(shape.max_rows >= 1, shape.max_rows);
  impl_ = std::make_unique<Impl>(layout, shape, counters, communicator, backend);
}

GenerationLogprobs::~GenerationLogprobs() = default;

void GenerationLogprobs::record(const GenerationLogprobsArgs& graph, Stream& stream) {
  HELIOS_CHECK(graph.max_rows >= 0 && graph.max_rows <= impl_->shape.max_rows, graph.max_rows, impl_->shape.max_rows);
  GenerationLogprobsArgs args = graph;
  if (args.max_rows == 0) args.max_rows = impl_->shape.max_rows;
  impl_->record_positions(args, stream);
  if (impl_->world == 1) {
    impl_->record_alone(args, stream);
  } else {
    impl_->record_sharded(args, stream);
  }
}

int64_t GenerationLogprobs::workspace_bytes() const {
  return static_cast<int64_t>(impl_->work.memory.bytes() + impl_->tile_table.bytes() + impl_->segment_table.bytes());
}

}  // namespace helios
