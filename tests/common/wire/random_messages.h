// Valid random messages of every kind, from a seeded generator, and comparisons that name every field.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "common/contract/completion.h"
#include "common/contract/control.h"
#include "common/contract/submission.h"

namespace helios::testing {

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline auto fields(const MemoryReport& m) {
  return std::tie(m.weights_bytes, m.kv_cache_bytes, m.bundle_bytes, m.workspace_bytes, m.pinned_bytes,
                  m.host_tier_bytes, m.scoring_bytes, m.device_allocated_bytes, m.device_reserved_bytes);
}
inline bool same_manifest(const CoreManifest& a, const CoreManifest& b) {
  const auto own = [](const CoreManifest& m) {
    return std::tie(m.model_type, m.device, m.dtype, m.kv_cache_dtype, m.vocab_size, m.max_model_len, m.slot_capacity,
                    m.token_capacity, m.prefill_chunk, m.kv_block_size, m.kv_num_blocks, m.host_num_blocks, m.buffers,
                    m.graphs);
  };
  return own(a) == own(b) && fields(a.memory) == fields(b.memory);
}
inline bool same_message(const ControlMessage& a, const ControlMessage& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& left) {
        const auto& right = std::get<std::decay_t<decltype(left)>>(b);
        if constexpr (std::is_same_v<std::decay_t<decltype(left)>, Ready>) {
          return left.incarnation == right.incarnation && same_manifest(left.manifest, right.manifest);
        } else {
          return left == right;
        }
      },
      a);
}

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : engine_(seed) {}

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool coin() { return between(0, 1) == 1; }
  uint64_t bits() { return engine_(); }

  std::vector<int32_t> ids(int64_t least, int64_t most, int64_t high = std::numeric_limits<int32_t>::max()) {
    std::vector<int32_t> out(between(least, most));
    for (auto& id : out) id = static_cast<int32_t>(between(0, high));
    return out;
  }
  /// As ids(), none of them twice: what lists of ids to transform must be.
  std::vector<int32_t> distinct_ids(int64_t least, int64_t most) {
    std::vector<int32_t> out = ids(least, most);
    std::vector<int32_t> sorted = out;
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? out : distinct_ids(least, most);
  }
  std::string text() {
    static const std::vector<std::string> kPieces = {"a", "Z", "/", " ", "é", "日", "🙂", "-", "0", "'"};
    std::string out;
    for (int64_t n = between(0, 12); n > 0; --n) out += kPieces[between(0, kPieces.size() - 1)];
    return out;
  }
  std::string binary() {
    std::string out(between(0, 200), '\0');
    for (char& c : out) c = static_cast<char>(between(0, 255));
    return out;
  }

  SamplingParams sampling() {
    SamplingParams p;
    p.temperature = static_cast<float>(between(0, 4000)) / 1000.0f;
    p.top_p = static_cast<float>(between(1, 1000)) / 1000.0f;
    p.top_k = between(0, 1 << 20);
    p.min_p = static_cast<float>(between(0, 1000)) / 1000.0f;
    p.seed = bits();
    p.max_tokens = between(0, std::numeric_limits<int32_t>::max());
    p.min_tokens = between(0, 1000);
    p.ignore_eos = coin();
    p.eos_id = between(-1, 200000);
    p.stop_ids = ids(0, kMaxStopIds);
    for (const TokenId id : distinct_ids(0, 20)) {
      p.logit_bias.push_back({id, static_cast<float>(between(-100000, 100000)) / 1000.0f});
    }
    p.allowed_ids = distinct_ids(0, 20);
    p.masks = p.allowed_ids.empty() && coin();
    if (coin()) p.repetition_penalty = static_cast<float>(between(1, 4000)) / 1000.0f;
    if (coin()) p.frequency_penalty = static_cast<float>(between(-2000, 2000)) / 1000.0f;
    if (coin()) p.presence_penalty = static_cast<float>(between(-2000, 2000)) / 1000.0f;
    if (p.repetition_penalty != 1.0f) p.prompt_ids = distinct_ids(0, 20);
    if (has_penalty(p)) {
      for (const TokenId id : distinct_ids(0, 10))
        p.output_counts.push_back({id, static_cast<int32_t>(between(1, 99))});
    }
    return p;
  }
  SlotIndex slot() { return SlotIndex(between(0, 65535)); }
  Epoch epoch() { return Epoch(bits()); }

  Submission submission() {
    Submission s;
    s.incarnation = bits();
    s.sequence = Sequence(bits());
    s.frame = FrameIndex(between(0, 1));
    s.operation = static_cast<Operation>(between(1, 12));
    for (auto* copies : {&s.blocks_out, &s.blocks_in}) {
      for (int64_t n = between(0, 4); n > 0; --n)
        copies->push_back({static_cast<int32_t>(between(0, 1 << 20)), static_cast<int32_t>(between(0, 1 << 30))});
    }
    for (int64_t n = between(0, 4); n > 0; --n)
      s.admissions.push_back({slot(), epoch(), sampling(), static_cast<int32_t>(between(0, 9))});
    for (int64_t n = between(0, 4); n > 0; --n) {
      s.block_updates.push_back({slot(), static_cast<int32_t>(between(0, 1000)), ids(0, 20)});
    }
    for (int64_t n = between(0, 6); n > 0; --n) {
      s.lanes.push_back({slot(), epoch(), static_cast<LaneRole>(between(0, 1)),
                         static_cast<int32_t>(between(-1, 100000)), coin(), ids(0, 50)});
      if (s.lanes.back().samples && coin()) s.lanes.back().mask.assign(between(1, 9), static_cast<uint32_t>(bits()));
    }
    s.logprob_requested = ids(0, 64, 1);
    s.logprob_token_id_counts = ids(0, 64, 128);
    for (int64_t n = between(0, 3); n > 0; --n) s.logprob_token_ids.push_back({slot(), ids(1, 128)});
    if (coin()) s.prompt_target_tokens = ids(0, 40);
    for (TokenId& id : s.prompt_target_tokens) id = coin() ? id : kNoTarget;
    return s;
  }

  Completion completion() {
    Completion c;
    c.incarnation = bits();
    c.sequence = Sequence(bits());
    c.frame = FrameIndex(between(0, 1));
    c.rank = Rank(between(0, 7));
    c.token_capacity = between(1, 16);
    c.record_digest = bits();
    c.records.resize(between(0, 5) * record_words(c.token_capacity));
    for (auto& word : c.records) word = static_cast<int64_t>(bits());
    c.width = between(0, 128);
    for (int64_t n = between(0, 3); n > 0; --n) {
      CompletionPayload payload{slot(), std::vector<int32_t>(between(0, c.token_capacity) * packed_words(c.width))};
      for (auto& word : payload.words) word = static_cast<int32_t>(bits());  // NaN patterns included
      c.payloads.push_back(std::move(payload));
    }
    if (coin()) c.prompt_rows.resize(between(0, 9) * kPromptScoreWords);
    for (auto& word : c.prompt_rows) word = static_cast<int32_t>(bits());
    c.bytes_copied = between(0, int64_t{1} << 40);
    return c;
  }

  CoreManifest manifest() {
    static constexpr ValueSource kSources[] = {ValueSource::kLaneSlots, ValueSource::kSequence,
                                               ValueSource::kLogprobRequested, ValueSource::kLogprobTokenIdCounts,
                                               ValueSource::kPromptTargetToken};
    CoreManifest m;
    m.model_type = text();
    m.device = text();
    m.dtype = text();
    m.kv_cache_dtype = text();
    m.vocab_size = between(0, 1 << 20);
    m.max_model_len = between(0, 1 << 20);
    m.slot_capacity = between(0, 65536);
    m.token_capacity = between(0, 4096);
    m.prefill_chunk = between(0, 1 << 16);
    m.kv_block_size = between(0, 256);
    m.kv_num_blocks = between(0, 1 << 20);
    m.host_num_blocks = between(0, 1 << 24);
    for (int64_t n = between(0, 5); n > 0; --n) {
      BufferDeclaration b{text(), static_cast<BufferDtype>(between(0, 4)), std::vector<int64_t>(between(0, 8))};
      for (auto& extent : b.shape) extent = between(0, int64_t{1} << 50);
      m.buffers.push_back(std::move(b));
    }
    for (int64_t n = between(0, 5); n > 0; --n) {
      GraphDeclaration g{static_cast<Operation>(between(1, 12)), static_cast<int32_t>(between(0, 4096)), {}, {}};
      for (int64_t k = between(0, 6); k > 0; --k) g.bindings.push_back(kSources[between(0, 4)]);
      for (int64_t k = between(0, 3); k > 0; --k) g.outputs.push_back(text());
      m.graphs.push_back(std::move(g));
    }
    for (int64_t* bytes :
         {&m.memory.weights_bytes, &m.memory.kv_cache_bytes, &m.memory.bundle_bytes, &m.memory.workspace_bytes,
          &m.memory.pinned_bytes, &m.memory.host_tier_bytes, &m.memory.scoring_bytes, &m.memory.device_allocated_bytes,
          &m.memory.device_reserved_bytes}) {
      *bytes = between(0, int64_t{1} << 45);
    }
    return m;
  }

  ControlMessage control(size_t kind) {
    switch (kind) {
      case 0: {
        const int32_t world = 1 << between(0, 3);
        return Hello{Rank(between(0, world - 1)), world, bits(), between(0, 1 << 22), text(), text(), text(), text()};
      }
      case 1:
        return Welcome{static_cast<uint32_t>(bits()), static_cast<int32_t>(1 << between(0, 3)), text(), text()};
      case 2:
        return Ready{static_cast<uint32_t>(bits()), manifest()};
      case 3: {
        Heartbeat beat{static_cast<uint32_t>(bits()), static_cast<RankState>(between(0, 4)), Sequence(bits()),
                       between(0, 1 << 30),           between(0, int64_t{1} << 40),          between(0, 1000) / 1000.0};
        for (int64_t n = between(0, 5); n > 0; --n) {
          beat.counters.push_back({"helios_" + std::string(between(0, 57), 'x'), static_cast<double>(bits())});
        }
        return beat;
      }
      case 4:
        return Fault{static_cast<uint32_t>(bits()), text()};
      case 5:
        return Drain{};
      case 6:
        return Abort{text()};
      case 7:
        return StoreSet{binary(), binary()};
      case 8:
        return StoreGet{binary()};
      default:
        return StoreValue{binary(), binary()};
    }
  }
  static constexpr size_t kControlKinds = std::variant_size_v<ControlMessage>;

 private:
  std::mt19937_64 engine_;
};

}  // namespace helios::testing
