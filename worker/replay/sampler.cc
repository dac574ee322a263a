#include "worker/replay/sampler.h"

#include "common/base/check.h"

namespace helios {

Sampler::Sampler(const SamplerInputs& inputs, const VocabLayout& layout, StepCounters* counters,
                 Communicator& communicator, Backend& backend)
    : inputs_(inputs), communicator_(communicator), world_(communicator.world_size()) {
  HELIOS_CHECK(valid_world_size(world_), world_);
  HELIOS_CHECK(inputs.max_rows >= 1, inputs.max_rows);
  const ShardTiles shard = make_shard_tiles(layout, communicator.rank(), world_);
  tiles_ = device_copy(backend, shard.tiles.data(), shard.tiles.size() * sizeof(VocabTile));
  const TilesView view{tiles_.as<VocabTile>(), shard.num_tiles(), shard.first_id, shard.width};
  scratch_ = backend.device_memory(static_cast<size_t>(inputs.max_rows * inputs.logits_stride) * sizeof(float));
  scan_.shard = summarize_.shard = bins_.shard = draw_.shard = view;
  memory_ = backend.device_memory(static_cast<size_t>(place(nullptr)));
  place(memory_.as<std::byte>());
  collect_.vocab_size = layout.vocab_size();
  collect_.counters = begin_.counters = descend_.counters = choose_.counters = counters;
}

/// Lays the workspace out from `base` and gives every launch its pointers; a null base only measures.
int64_t Sampler::place(std::byte* base) {
  int64_t used = 0;
  const auto take = [&]<class T>(T*& to, int64_t count) {
    to = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  };
  const int32_t max_rows = inputs_.max_rows;
  const int64_t tiles = int64_t{max_rows} * scan_.shard.num_tiles;
  SamplingRow* rows;
  int32_t *filtered, *num_filtered, *active, *num_active, *finished_blocks;
  TileScan* scans;
  float* lane_max;
  RowMessage* messages;
  ThresholdSearch* searches;
  uint64_t* bins;
  SampledToken* tile_best;
  OfferMessage* offers;
  TokenId* tokens;
  take(rows, max_rows);
  take(filtered, max_rows);
  take(num_filtered, 1);
  take(scans, tiles);
  take(lane_max, tiles * kTileLanes);
  take(messages, int64_t{world_} * max_rows);
  take(searches, max_rows);
  take(active, max_rows);
  take(num_active, 1);
  take(finished_blocks, 1);
  take(bins, int64_t{world_} * max_rows * kSearchBins);
  take(tile_best, tiles);
  take(offers, int64_t{world_} * max_rows);
  take(tokens, max_rows);
  if (!base) return used;

  const int32_t rank = communicator_.rank().value;
  const int32_t* num_rows = inputs_.num_rows;
  const TilesView shard = scan_.shard;
  collect_ = {.logits = inputs_.logits,
              .stride = inputs_.logits_stride,
              .scratch = scratch_.as<float>(),
              .num_rows = num_rows,
              .max_rows = max_rows,
              .row_slots = inputs_.row_slots,
              .row_positions = inputs_.row_positions,
              .tables = inputs_.tables,
              .rows = rows,
              .filtered = filtered,
              .num_filtered = num_filtered};
  scan_ = {.logits = inputs_.logits,
           .stride = inputs_.logits_stride,
           .scratch = scratch_.as<float>(),
           .num_rows = num_rows,
           .max_rows = max_rows,
           .rows = rows,
           .tables = inputs_.tables,
           .shard = shard,
           .scans = scans,
           .lane_max = lane_max};
  summarize_ = {.num_rows = num_rows,
                .max_rows = max_rows,
                .rows = rows,
                .shard = shard,
                .scans = scans,
                .lane_max = lane_max,
                .messages = messages + int64_t{rank} * max_rows};
  begin_ = {.rows = rows,
            .filtered = filtered,
            .num_filtered = num_filtered,
            .max_rows = max_rows,
            .messages = messages,
            .world = world_,
            .searches = searches,
            .active = active,
            .num_active = num_active};
  bins_ = {.rows = rows,
           .scans = scans,
           .shard = shard,
           .searches = searches,
           .active = active,
           .num_active = num_active,
           .max_rows = max_rows,
           .bins = bins + int64_t{rank} * max_rows * kSearchBins};
  descend_ = {.rows = rows,
              .searches = searches,
              .active = active,
              .num_active = num_active,
              .max_rows = max_rows,
              .bins = bins,
              .world = world_,
              .rank = rank,
              .finished_blocks = finished_blocks};
  draw_ = {
      .rows = rows, .num_rows = num_rows, .max_rows = max_rows, .shard = shard, .scans = scans, .tile_best = tile_best};
  offer_ = {.rows = rows,
            .num_rows = num_rows,
            .max_rows = max_rows,
            .tile_best = tile_best,
            .num_tiles = shard.num_tiles,
            .offers = offers + int64_t{rank} * max_rows};
  choose_ = {
      .rows = rows, .num_rows = num_rows, .max_rows = max_rows, .offers = offers, .world = world_, .tokens = tokens};
  return used;
}

/// `all` [world, max_rows, row_bytes]: this rank's part is written, the others' arrive.
void Sampler::exchange(Stream& stream, void* all, size_t row_bytes, const int32_t* num_rows) const {
  if (world_ == 1) return;
  const int64_t max_rows = inputs_.max_rows;
  const auto part = static_cast<size_t>(communicator_.rank().value * max_rows) * row_bytes;
  const std::byte* mine = static_cast<std::byte*>(all) + part;
  stream.launch([=, group = &communicator_](const Launcher&) {
    group->all_gather_rows(mine, all, row_bytes, num_rows, max_rows);
  });
}

void Sampler::record(Stream& stream) const {
  stream.launch([args = collect_](const Launcher& on) { collect_rows(args, on); });
  stream.launch([args = scan_](const Launcher& on) { scan_rows(args, on); });
  stream.launch([args = summarize_](const Launcher& on) { summarize_rows(args, on); });
  exchange(stream, const_cast<RowMessage*>(begin_.messages), sizeof(RowMessage), begin_.num_filtered);
  stream.launch([args = begin_](const Launcher& on) { begin_searches(args, on); });
  for (int round = 0; round < kSearchRounds; ++round) {
    stream.launch([args = bins_](const Launcher& on) { search_bins(args, on); });
    exchange(stream, descend_.bins, kSearchBins * sizeof(uint64_t), descend_.num_active);
    stream.launch([args = descend_](const Launcher& on) { descend_searches(args, on); });
  }
  stream.launch([args = draw_](const Launcher& on) { gumbel_draw(args, on); });
  stream.launch([args = offer_](const Launcher& on) { offer_tokens(args, on); });
  exchange(stream, const_cast<OfferMessage*>(choose_.offers), sizeof(OfferMessage), choose_.num_rows);
  stream.launch([args = choose_](const Launcher& on) { choose_tokens(args, on); });
}

int64_t Sampler::workspace_bytes() const {
  return static_cast<int64_t>(tiles_.bytes() + scratch_.bytes() + memory_.bytes());
}

}  // namespace helios
