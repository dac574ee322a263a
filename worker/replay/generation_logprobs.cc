#include "worker/replay/generation_logprobs.h"

#include <algorithm>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "common/contract/completion_layout.h"
#include "kernels/base/aligned_buffer.h"
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
  Workspace(int64_t positions, int64_t tiles, int world) {
    size_t bytes = 0;
    const auto place = [&](size_t size) {
      const size_t at = bytes;
      bytes += (size + 63) / 64 * 64;
      return at;
    };
    const size_t states_at = place(sizeof(LseState) * positions * tiles);
    const size_t lane_max_at = place(sizeof(float) * positions * tiles * kTileLanes);
    const size_t normalizers_at = place(sizeof(float) * positions);
    const size_t cuts_at = place(sizeof(float) * positions);
    const size_t keys_at = place(sizeof(SortKey) * positions * tiles * kKeptSortKeys);
    const size_t counts_at = place(sizeof(int32_t) * positions * tiles);
    const size_t exchanged = world > 1 ? sizeof(int32_t) * positions * kShardExchangeWords : 0;
    const size_t payloads_at = place(exchanged);
    const size_t gathered_at = place(exchanged * world);
    memory = AlignedBuffer(bytes);
    const auto at = [&](size_t offset) { return memory.as<std::byte>() + offset; };
    states = reinterpret_cast<LseState*>(at(states_at));
    lane_max = reinterpret_cast<float*>(at(lane_max_at));
    normalizers = reinterpret_cast<float*>(at(normalizers_at));
    cuts = reinterpret_cast<float*>(at(cuts_at));
    keys = reinterpret_cast<SortKey*>(at(keys_at));
    counts = reinterpret_cast<int32_t*>(at(counts_at));
    payloads = reinterpret_cast<int32_t*>(at(payloads_at));
    gathered = reinterpret_cast<int32_t*>(at(gathered_at));
  }

  AlignedBuffer memory;
  LseState* states;
  float* lane_max;
  float* normalizers;
  float* cuts;
  SortKey* keys;
  int32_t* counts;
  int32_t* payloads;  // this rank's, of the exchange at hand
  int32_t* gathered;  // every rank's
};

}  // namespace

struct GenerationLogprobs::Impl {
  Impl(const VocabLayout& vocab_layout, int capacity, int num_tokens, int k, int words, Communicator& group)
      : layout(vocab_layout),
        slot_capacity(capacity),
        token_capacity(num_tokens),
        alternatives(k),
        position_words(words),
        communicator(group),
        world(group.world_size()),
        shard(make_shard_tiles(vocab_layout, group.rank(), world)),
        positions(capacity),
        slot_taken(capacity),
        work(capacity, shard.num_tiles(), world) {}

  void collect_positions(const GenerationLogprobsArgs& args);
  bool emits(const int64_t* record, int32_t slot, uint32_t epoch) const;
  void reduce_alone(const GenerationLogprobsArgs& args);
  void reduce_sharded(const GenerationLogprobsArgs& args);
  void launch_tile_stats(const GenerationLogprobsArgs& args);
  void launch_tile_candidates(const GenerationLogprobsArgs& args);
  void exchange();
  void count_run(int launches);

  const VocabLayout layout;
  const int slot_capacity;
  const int token_capacity;
  const int alternatives;
  const int position_words;
  Communicator& communicator;
  const Launcher* on = nullptr;  // of the run at hand
  const int world;
  const ShardTiles shard;

  std::vector<LogprobPosition> positions;  // [0, num_positions) are this step's
  int num_positions = 0;
  std::vector<uint8_t> slot_taken;
  Workspace work;
  Counters counters;
};

// R15: the record's slot and epoch are the row's, and it emits. A forced token (R4) has no logprob.
bool GenerationLogprobs::Impl::emits(const int64_t* record, int32_t slot, uint32_t epoch) const {
  return record[record_word::kAbi] == kRecordAbi && record[record_word::kSlot] == slot &&
         record[record_word::kEpoch] == static_cast<int64_t>(epoch) && record[record_word::kEmitted] >= 1 &&
         (record[record_word::kForcedMask] & 1) == 0;
}

void GenerationLogprobs::Impl::collect_positions(const GenerationLogprobsArgs& args) {
  num_positions = 0;
  std::fill(slot_taken.begin(), slot_taken.end(), 0);
  const int most_selected =
      args.token_ids && args.token_id_counts ? std::min(kMaxSelectedIds, position_words / kPairWords - 1) : 0;
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t slot = args.row_slots[row];
    if (slot < 0 || slot >= slot_capacity || args.requested[slot] == 0 || slot_taken[slot]) continue;
    const int64_t* record = args.records + static_cast<int64_t>(slot) * record_words(token_capacity);
    if (!emits(record, slot, args.row_epochs[row])) continue;
    slot_taken[slot] = 1;  // a second row of the same slot is a duplicate: the first one was committed
    LogprobPosition& position = positions[num_positions++];
    position.row = row;
    position.chosen = static_cast<TokenId>(record[record_word::kTokens]);
    position.num_selected = most_selected > 0 ? std::clamp(args.token_id_counts[slot], 0, most_selected) : 0;
    position.selected = args.token_ids ? args.token_ids + static_cast<int64_t>(slot) * kMaxSelectedIds : nullptr;
    position.packed = args.packed + static_cast<int64_t>(slot) * token_capacity * position_words;
  }
}

void GenerationLogprobs::Impl::launch_tile_stats(const GenerationLogprobsArgs& args) {
  tile_stats({.logits = args.logits,
              .stride = args.logits_stride,
              .positions = positions.data(),
              .num_positions = num_positions,
              .shard = &shard,
              .states = work.states,
              .lane_max = work.lane_max},
             *on);
}

void GenerationLogprobs::Impl::launch_tile_candidates(const GenerationLogprobsArgs& args) {
  tile_candidates({.logits = args.logits,
                   .stride = args.logits_stride,
                   .positions = positions.data(),
                   .num_positions = num_positions,
                   .shard = &shard,
                   .states = work.states,
                   .normalizers = work.normalizers,
                   .cuts = work.cuts,
                   .keys = work.keys,
                   .counts = work.counts},
                  *on);
}

void GenerationLogprobs::Impl::exchange() {
  const size_t words = static_cast<size_t>(num_positions) * kShardExchangeWords;
  communicator.all_gather_words(std::span<const int32_t>(work.payloads, words),
                                std::span<int32_t>(work.gathered, words * world));
  counters.words_exchanged += static_cast<int64_t>(words);
}

void GenerationLogprobs::Impl::reduce_alone(const GenerationLogprobsArgs& args) {
  launch_tile_stats(args);
  row_normalizer({.states = work.states,
                  .lane_max = work.lane_max,
                  .num_positions = num_positions,
                  .shard = &shard,
                  .normalizers = work.normalizers,
                  .cuts = work.cuts},
                 *on);
  launch_tile_candidates(args);
  emit_logprobs({.logits = args.logits,
                 .stride = args.logits_stride,
                 .positions = positions.data(),
                 .num_positions = num_positions,
                 .alternatives = alternatives,
                 .shard = &shard,
                 .normalizers = work.normalizers,
                 .keys = work.keys,
                 .counts = work.counts},
                *on);
  count_run(4);
}

void GenerationLogprobs::Impl::reduce_sharded(const GenerationLogprobsArgs& args) {
  launch_tile_stats(args);
  shard_stats({.states = work.states,
               .lane_max = work.lane_max,
               .num_positions = num_positions,
               .shard = &shard,
               .payloads = work.payloads,
               .cuts = work.cuts},
              *on);
  exchange();
  shard_normalizer(
      {.gathered = work.gathered, .num_positions = num_positions, .world_size = world, .normalizers = work.normalizers},
      *on);
  launch_tile_candidates(args);
  shard_candidates({.logits = args.logits,
                    .stride = args.logits_stride,
                    .positions = positions.data(),
                    .num_positions = num_positions,
                    .shard = &shard,
                    .keys = work.keys,
                    .counts = work.counts,
                    .payloads = work.payloads},
                   *on);
  exchange();
  emit_shard_logprobs({.positions = positions.data(),
                       .num_positions = num_positions,
                       .alternatives = alternatives,
                       .vocab_size = layout.vocab_size(),
                       .shard_stride = layout.shard_stride(world),
                       .world_size = world,
                       .normalizers = work.normalizers,
                       .gathered = work.gathered},
                      *on);
  count_run(6);
}

void GenerationLogprobs::Impl::count_run(int launches) {
  counters.positions += num_positions;
  counters.launches = launches;
  counters.logits_read += static_cast<int64_t>(num_positions) * shard.width;
  const int num_tiles = shard.num_tiles();
  for (int64_t item = 0; item < static_cast<int64_t>(num_positions) * num_tiles; ++item) {
    if (work.counts[item] != kTileNotRead) counters.logits_read += shard.tiles[item % num_tiles].width;
  }
  for (int p = 0; p < num_positions; ++p) counters.logits_read += 1 + positions[p].num_selected;
}

GenerationLogprobs::GenerationLogprobs(const VocabLayout& layout, int slot_capacity, int token_capacity,
                                       int alternatives, int packed_words, Communicator& communicator) {
  HELIOS_CHECK(valid_world_size(communicator.world_size()), communicator.world_size());
  HELIOS_CHECK(slot_capacity >= 1 && token_capacity >= 1, slot_capacity, token_capacity);
  HELIOS_CHECK(alternatives >= 1 && alternatives <= kMaxNaturalAlternatives, alternatives);
  HELIOS_CHECK(packed_words >= helios::packed_words(alternatives), packed_words, alternatives);
  impl_ = std::make_unique<Impl>(layout, slot_capacity, token_capacity, alternatives, packed_words, communicator);
}

GenerationLogprobs::~GenerationLogprobs() = default;

void GenerationLogprobs::run(const GenerationLogprobsArgs& args, const Launcher& on) {
  impl_->on = &on;
  impl_->collect_positions(args);
  if (impl_->num_positions == 0) return;  // the same on every rank: nobody waits in an exchange
  if (impl_->world == 1) {
    impl_->reduce_alone(args);
  } else {
    impl_->reduce_sharded(args);
  }
}

int64_t GenerationLogprobs::workspace_bytes() const { return static_cast<int64_t>(impl_->work.memory.bytes()); }

const GenerationLogprobs::Counters& GenerationLogprobs::counters() const { return impl_->counters; }

}  // namespace helios
