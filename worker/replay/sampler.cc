#include "worker/replay/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "kernels/logprobs/sort_key.h"
#include "kernels/sampling/gumbel_draw.h"
#include "kernels/sampling/row_scan.h"
#include "kernels/sampling/threshold_search.h"

namespace helios {
namespace {

// What a rank tells of a filtered row before the filters.
struct RowMessage {
  float max;
  float count_bound;
  uint32_t broken;
  uint32_t unused;
};

// What a rank offers as a row's token.
struct OfferMessage {
  double score;
  TokenId id;
  uint32_t broken;
};

static_assert(sizeof(RowMessage) == 16 && sizeof(OfferMessage) == 16);

/// The smallest FP32 value at or above `value`.
float round_up(double value) {
  const float nearest = static_cast<float>(value);
  return static_cast<double>(nearest) < value ? std::nextafter(nearest, std::numeric_limits<float>::infinity())
                                              : nearest;
}

}  // namespace

struct Sampler::Impl {
  Impl(const VocabLayout& layout, int most_rows, Communicator& group, int num_threads)
      : vocab_size(layout.vocab_size()),
        max_rows(most_rows),
        communicator(group),
        world(group.world_size()),
        shard(make_shard_tiles(layout, group.rank(), world)),
        rows(most_rows),
        out_index(most_rows),
        filtered(most_rows),
        searches(most_rows),
        best(most_rows),
        scans(static_cast<size_t>(most_rows) * shard.num_tiles()),
        lane_max(scans.size() * kTileLanes),
        tile_best(scans.size()),
        thread_bins(static_cast<size_t>(num_threads) * most_rows * kSearchBins),
        bins(static_cast<size_t>(most_rows) * kSearchBins),
        row_messages(most_rows),
        offers(most_rows),
        gathered(static_cast<size_t>(world) * most_rows * kSearchBins) {}

  void collect_rows(const SamplerArgs& args);
  void scan();
  void agree_on_maxima();
  void apply_min_p();
  void apply_top_k();
  void apply_top_p();
  void run_searches();
  void draw_and_choose(int32_t* tokens);

  /// Gathers `mine` from every rank; rank r's part is at [r * mine.size()].
  template <class T>
  std::span<const T> gather(std::span<const T> mine) {
    static_assert(sizeof(T) % sizeof(uint32_t) == 0);
    if (world == 1) return mine;
    const size_t bytes = mine.size_bytes();
    HELIOS_CHECK(bytes * world <= gathered.size() * sizeof(uint64_t), bytes, world);
    auto* all = reinterpret_cast<std::byte*>(gathered.data());
    communicator.all_gather(std::as_bytes(mine), {all, bytes * world});
    counters.words_exchanged += static_cast<int64_t>(bytes / sizeof(uint32_t));
    return {reinterpret_cast<const T*>(all), mine.size() * world};
  }

  const int64_t vocab_size;
  const int max_rows;
  Communicator& communicator;
  const Launcher* on = nullptr;  // of the run at hand
  const int world;
  const ShardTiles shard;

  const float* logits = nullptr;  // of the run at hand
  int64_t stride = 0;
  int num_rows = 0;
  int num_filtered = 0;
  int num_searches = 0;

  std::vector<SamplingRow> rows;   // those that sample
  std::vector<int32_t> out_index;  // each one's place in the caller's rows
  std::vector<int32_t> filtered;   // indices of rows with filters, not broken
  std::vector<ThresholdSearch> searches;
  std::vector<SampledToken> best;
  std::vector<TileScan> scans;
  std::vector<float> lane_max;
  std::vector<SampledToken> tile_best;
  std::vector<uint64_t> thread_bins;
  std::vector<uint64_t> bins;
  std::vector<RowMessage> row_messages;
  std::vector<OfferMessage> offers;
  std::vector<uint64_t> gathered;
  Counters counters;
};

void Sampler::Impl::collect_rows(const SamplerArgs& args) {
  logits = args.logits;
  stride = args.logits_stride;
  num_rows = num_filtered = num_searches = 0;
  for (int64_t r = 0; r < args.rows; ++r) {
    const int32_t slot = args.row_slots[r];
    args.tokens[r] = -1;
    if (slot < 0) continue;
    const SlotSampling& sampling = args.slots[slot];
    SamplingRow row;
    row.row = r;
    row.noise = {sampling.seed, args.row_positions[r]};
    row.greedy = !(sampling.temperature >= kGreedyTemperature);
    if (!row.greedy) {
      row.temperature = std::min(sampling.temperature, 1e10f);  // beyond it the distribution is uniform anyway
      row.min_p = std::clamp(sampling.min_p, 0.0f, 1.0f);
      row.top_k = sampling.top_k > 0 && sampling.top_k < vocab_size ? sampling.top_k : 0;
      row.top_p = std::clamp(sampling.top_p, 0.0f, 1.0f);
    }
    out_index[num_rows] = static_cast<int32_t>(r);
    if (row.filtered()) filtered[num_filtered++] = num_rows;
    rows[num_rows++] = row;
  }
  counters.rows += num_rows;
}

void Sampler::Impl::scan() {
  row_scan({.logits = logits,
            .stride = stride,
            .rows = rows.data(),
            .num_rows = num_rows,
            .shard = &shard,
            .scans = scans.data(),
            .lane_max = lane_max.data()},
           *on);
  row_summary({.logits = logits,
               .stride = stride,
               .rows = rows.data(),
               .num_rows = num_rows,
               .shard = &shard,
               .scans = scans.data(),
               .lane_max = lane_max.data()},
              *on);
}

// Filters are relative to the whole row's maximum. Only rows with filters take part; which those are follows from slot
// state, the same on every rank.
void Sampler::Impl::agree_on_maxima() {
  for (int f = 0; f < num_filtered; ++f) {
    const SamplingRow& row = rows[filtered[f]];
    row_messages[f] = {row.max, row.count_bound, row.broken, 0};
  }
  const auto all = gather(std::span<const RowMessage>(row_messages.data(), num_filtered));
  for (int f = 0; f < num_filtered; ++f) {
    SamplingRow& row = rows[filtered[f]];
    for (int r = 0; r < world; ++r) {
      const RowMessage& message = all[static_cast<size_t>(r) * num_filtered + f];
      row.max = std::max(row.max, message.max);
      row.count_bound = std::max(row.count_bound, message.count_bound);
      row.broken |= message.broken != 0;
    }
    row.broken |= row.max == -std::numeric_limits<float>::infinity();
  }
  num_filtered = static_cast<int>(
      std::remove_if(filtered.begin(), filtered.begin() + num_filtered, [&](int32_t i) { return rows[i].broken; }) -
      filtered.begin());
}

void Sampler::Impl::apply_min_p() {
  for (int f = 0; f < num_filtered; ++f) {
    SamplingRow& row = rows[filtered[f]];
    if (row.min_p <= 0.0f) continue;
    // probability >= min_p * largest, as a bound on the logit.
    const double bound = row.max + static_cast<double>(row.temperature) * std::log(static_cast<double>(row.min_p));
    row.floor = std::max(row.floor, std::min(round_up(bound), row.max));
  }
}

void Sampler::Impl::apply_top_k() {
  num_searches = 0;
  for (int f = 0; f < num_filtered; ++f) {
    const SamplingRow& row = rows[filtered[f]];
    if (row.top_k == 0) continue;
    searches[num_searches++] = ThresholdSearch::by_count(filtered[f], std::max(row.floor, row.count_bound), row.max,
                                                         static_cast<uint64_t>(row.top_k));
  }
  run_searches();
}

void Sampler::Impl::apply_top_p() {
  num_searches = 0;
  for (int f = 0; f < num_filtered; ++f) {
    const SamplingRow& row = rows[filtered[f]];
    if (row.top_p >= 1.0f) continue;
    searches[num_searches++] = ThresholdSearch::by_share(filtered[f], row.floor, row.max, row.top_p, row.temperature);
  }
  run_searches();
}

// All rows descend together, one all-gather a round; a row that has arrived leaves.
void Sampler::Impl::run_searches() {
  while (num_searches > 0) {
    search_bins({.logits = logits,
                 .stride = stride,
                 .rows = rows.data(),
                 .scans = scans.data(),
                 .shard = &shard,
                 .searches = searches.data(),
                 .num_searches = num_searches,
                 .thread_bins = thread_bins.data(),
                 .bins = bins.data()},
                *on);
    const size_t words = static_cast<size_t>(num_searches) * kSearchBins;
    const auto all = gather(std::span<const uint64_t>(bins.data(), words));
    if (world > 1) {
      std::fill(bins.begin(), bins.begin() + static_cast<ptrdiff_t>(words), 0);
      for (size_t i = 0; i < all.size(); ++i) bins[i % words] += all[i];
    }
    int left = 0;
    for (int s = 0; s < num_searches; ++s) {
      ThresholdSearch& search = searches[s];
      if (search.descend(bins.data() + static_cast<size_t>(s) * kSearchBins)) {
        SamplingRow& row = rows[search.index];
        row.floor = std::max(row.floor, from_ordered_bits(search.low));
      } else {
        searches[left++] = search;
      }
    }
    num_searches = left;
  }
}

void Sampler::Impl::draw_and_choose(int32_t* tokens) {
  gumbel_draw({.logits = logits,
               .stride = stride,
               .rows = rows.data(),
               .num_rows = num_rows,
               .shard = &shard,
               .scans = scans.data(),
               .tile_best = tile_best.data(),
               .best = best.data()},
              *on);
  for (int r = 0; r < num_rows; ++r) {
    const SamplingRow& row = rows[r];
    if (row.greedy && row.arg_max >= 0) best[r] = {static_cast<double>(row.max), row.arg_max};
    offers[r] = {best[r].score, best[r].id, row.broken};
  }
  const auto all = gather(std::span<const OfferMessage>(offers.data(), num_rows));
  for (int r = 0; r < num_rows; ++r) {
    SampledToken winner;
    bool broken = false;
    for (int rank = 0; rank < world; ++rank) {
      const OfferMessage& offer = all[static_cast<size_t>(rank) * num_rows + r];
      const SampledToken token{offer.score, offer.id};
      if (token.beats(winner)) winner = token;
      broken |= offer.broken != 0;
    }
    tokens[out_index[r]] = broken ? -1 : winner.id;
  }
}

Sampler::Sampler(const VocabLayout& layout, int max_rows, Communicator& communicator, int num_threads) {
  HELIOS_CHECK(valid_world_size(communicator.world_size()), communicator.world_size());
  HELIOS_CHECK(max_rows >= 1, max_rows);
  impl_ = std::make_unique<Impl>(layout, max_rows, communicator, num_threads);
}

Sampler::~Sampler() = default;

void Sampler::run(const SamplerArgs& args, const Launcher& on) {
  impl_->on = &on;
  HELIOS_CHECK(args.rows <= impl_->max_rows, args.rows, impl_->max_rows);
  impl_->collect_rows(args);
  if (impl_->num_rows == 0) return;
  impl_->scan();
  if (impl_->num_filtered > 0) {
    impl_->agree_on_maxima();
    impl_->apply_min_p();
    impl_->apply_top_k();
    impl_->apply_top_p();
  }
  impl_->draw_and_choose(args.tokens);
}

int64_t Sampler::workspace_bytes() const {
  const Impl& impl = *impl_;
  const auto bytes = [](const auto& vector) { return static_cast<int64_t>(vector.size() * sizeof(vector[0])); };
  return bytes(impl.rows) + bytes(impl.scans) + bytes(impl.lane_max) + bytes(impl.tile_best) + bytes(impl.thread_bins) +
         bytes(impl.bins) + bytes(impl.gathered);
}

const Sampler::Counters& Sampler::counters() const { return impl_->counters; }

}  // namespace helios
