#include "worker/replay/sampler.h"

#include "common/base/check.h"

namespace helios {

Sampler::Sampler(const SamplerInputs& inputs, const VocabLayout& layout, StepCounters* counters,
                 Communicator& communicator, Backend& backend)
    : inputs_(inputs),
      communicator_(communicator),
      world_(communicator.world_size()),
      vocab_size_(layout.vocab_size()),
      counters_(counters) {
  HELIOS_CHECK(valid_world_size(world_), world_);
  HELIOS_CHECK(inputs.max_rows >= 1, inputs.max_rows);
  const ShardTiles shard = make_shard_tiles(layout, communicator.rank(), world_);
  tiles_ = device_copy(backend, shard.tiles.data(), shard.tiles.size() * sizeof(VocabTile));
  shard_ = {tiles_.as<VocabTile>(), shard.num_tiles(), shard.first_id, shard.width};
  scratch_ = backend.device_memory(static_cast<size_t>(inputs.max_rows * inputs.logits_stride) * sizeof(float));
  memory_ = backend.device_memory(static_cast<size_t>(place(nullptr, inputs.max_rows, nullptr)));
}

/// Lays the workspace of a graph of `max_rows` out from `base` and gives every launch its pointers; a null base only
/// measures. Rows of the exchanges lie as far apart as the graph has them, so that it sends no more.
int64_t Sampler::place(std::byte* base, int32_t max_rows, Launches* launches) const {
  int64_t used = 0;
  const auto take = [&]<class T>(T*& to, int64_t count) {
    to = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  };
  const int64_t tiles = int64_t{max_rows} * shard_.num_tiles;
  SamplingRow* rows;
  int32_t *filtered, *num_filtered, *active, *num_active, *finished_blocks;
  TileScan* scans;
  float* lane_max;
  RowMessage* messages;
  ThresholdSearch* searches;
  uint64_t *bins, *own_bins;
  SampledToken* tile_best;
  OfferMessage* offers;
  TokenId* tokens;
  // Where every graph finds them: the tokens, and what is zero between launches.
  take(tokens, inputs_.max_rows);
  take(own_bins, int64_t{inputs_.max_rows} * kSearchBins);
  take(finished_blocks, 1);
  take(rows, max_rows);
  take(filtered, max_rows);
  take(num_filtered, 1);
  take(scans, tiles);
  take(lane_max, tiles * kTileLanes);
  take(messages, int64_t{world_} * max_rows);
  take(searches, max_rows);
  take(active, max_rows);
  take(num_active, 1);
  take(bins, world_ == 1 ? 0 : int64_t{world_} * max_rows * kSearchBins);
  take(tile_best, tiles);
  take(offers, int64_t{world_} * max_rows);
  if (!base) return used;

  const int32_t rank = communicator_.rank().value;
  const int32_t* num_rows = inputs_.num_rows;
  launches->collect = {.logits = inputs_.logits,
                       .stride = inputs_.logits_stride,
                       .scratch = scratch_.as<float>(),
                       .num_rows = num_rows,
                       .max_rows = max_rows,
                       .row_slots = inputs_.row_slots,
                       .row_positions = inputs_.row_positions,
                       .row_tokens = inputs_.row_tokens,
                       .tables = inputs_.tables,
                       .vocab_size = vocab_size_,
                       .rows = rows,
                       .filtered = filtered,
                       .num_filtered = num_filtered,
                       .counters = counters_};
  launches->scan = {.logits = inputs_.logits,
                    .stride = inputs_.logits_stride,
                    .scratch = scratch_.as<float>(),
                    .num_rows = num_rows,
                    .max_rows = max_rows,
                    .rows = rows,
                    .tables = inputs_.tables,
                    .shard = shard_,
                    .scans = scans,
                    .lane_max = lane_max};
  launches->summarize = {.num_rows = num_rows,
                         .max_rows = max_rows,
                         .rows = rows,
                         .shard = shard_,
                         .scans = scans,
                         .lane_max = lane_max,
                         .messages = messages + int64_t{rank} * max_rows};
  launches->begin = {.rows = rows,
                     .filtered = filtered,
                     .num_filtered = num_filtered,
                     .max_rows = max_rows,
                     .messages = messages,
                     .world = world_,
                     .searches = searches,
                     .active = active,
                     .num_active = num_active,
                     .counters = counters_};
  launches->bins = {.rows = rows,
                    .scans = scans,
                    .shard = shard_,
                    .searches = searches,
                    .active = active,
                    .num_active = num_active,
                    .max_rows = max_rows,
                    .bins = own_bins};
  launches->descend = {.rows = rows,
                       .searches = searches,
                       .active = active,
                       .num_active = num_active,
                       .max_rows = max_rows,
                       .bins = world_ == 1 ? own_bins : bins,
                       .own = own_bins,
                       .world = world_,
                       .finished_blocks = finished_blocks,
                       .counters = counters_};
  launches->draw = {.rows = rows,
                    .num_rows = num_rows,
                    .max_rows = max_rows,
                    .shard = shard_,
                    .scans = scans,
                    .tile_best = tile_best};
  launches->offer = {.rows = rows,
                     .num_rows = num_rows,
                     .max_rows = max_rows,
                     .tile_best = tile_best,
                     .num_tiles = shard_.num_tiles,
                     .offers = offers + int64_t{rank} * max_rows};
  launches->choose = {.rows = rows,
                      .num_rows = num_rows,
                      .max_rows = max_rows,
                      .offers = offers,
                      .world = world_,
                      .tokens = tokens,
                      .counters = counters_};
  return used;
}

/// `all` [world, max_rows, row_bytes]: every rank's `mine`, which may be this rank's part of it.
void Sampler::exchange(Stream& stream, const void* mine, void* all, size_t row_bytes, const int32_t* num_rows,
                       int64_t max_rows) const {
  if (world_ == 1) return;
  stream.launch([=, group = &communicator_](const Launcher&) {
    group->all_gather_rows(mine, all, row_bytes, num_rows, max_rows);
  });
}

void Sampler::record(Stream& stream, int32_t max_rows) const {
  HELIOS_CHECK(max_rows >= 1 && max_rows <= inputs_.max_rows, max_rows, inputs_.max_rows);
  Launches l;
  place(memory_.as<std::byte>(), max_rows, &l);
  stream.launch([args = l.collect](const Launcher& on) { collect_rows(args, on); });
  stream.launch([args = l.scan](const Launcher& on) { scan_rows(args, on); });
  stream.launch([args = l.summarize](const Launcher& on) { summarize_rows(args, on); });
  exchange(stream, l.summarize.messages, const_cast<RowMessage*>(l.begin.messages), sizeof(RowMessage),
           l.begin.num_filtered, max_rows);
  stream.launch([args = l.begin](const Launcher& on) { begin_searches(args, on); });
  for (int round = 0; round < kSearchRounds; ++round) {
    stream.launch([args = l.bins](const Launcher& on) { search_bins(args, on); });
    exchange(stream, l.descend.own, const_cast<uint64_t*>(l.descend.bins), kSearchBins * sizeof(uint64_t),
             l.descend.num_active, max_rows);
    stream.launch([args = l.descend](const Launcher& on) { descend_searches(args, on); });
  }
  stream.launch([args = l.draw](const Launcher& on) { gumbel_draw(args, on); });
  stream.launch([args = l.offer](const Launcher& on) { offer_tokens(args, on); });
  exchange(stream, l.offer.offers, const_cast<OfferMessage*>(l.choose.offers), sizeof(OfferMessage), l.choose.num_rows,
           max_rows);
  stream.launch([args = l.choose](const Launcher& on) { choose_tokens(args, on); });
}

int64_t Sampler::workspace_bytes() const {
  return static_cast<int64_t>(tiles_.bytes() + scratch_.bytes() + memory_.bytes());
}

}  // namespace helios
