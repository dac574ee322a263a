// Blocks that went to the host tier and came back hold what they held, in every layer and on every rank: what is
// computed on top of them has the bits of a sequence that never left (X1). The copies are real: between, the cache's
// blocks hold something else, and on the emulated device the host cannot reach them.
#include "kernels/transformer/attention.h"
#include "tests/worker/replay/executor_fixture.h"
#include "worker/model/kv_cache.h"

namespace helios::testing {
namespace {

constexpr int kBlockTokens = kKvBlockSize;

class HostTierTest : public ExecutorTest {
 protected:
  /// Six blocks of the host tier on each of `world` ranks: two layers, two KV heads of 8 values shared out.
  CoreConfig config(int world) const {
    CoreConfig c = ExecutorTest::config();
    c.host_tier_bytes = 6 * KvCache::block_bytes(2, std::max(1, 2 / world), 8, DType::kFloat32);
    return c;
  }
  /// The same number of blocks, of half the bytes.
  CoreConfig bf16_config(int world) const {
    CoreConfig c = config(world);
    c.kv_cache_dtype = KvCacheDtype::kBFloat16;
    c.host_tier_bytes /= 2;
    return c;
  }
  static std::vector<TokenId> prompt(int length, int step) {
    std::vector<TokenId> out;
    for (int i = 0; i < length; ++i) out.push_back((5 + i * step) % kTinyVocab);
    return out;
  }
};

void admit(Submission& s, int slot, uint32_t epoch, std::vector<int32_t> blocks) {
  s.admissions.push_back({SlotIndex(slot), Epoch(epoch), greedy(8)});
  s.block_updates.push_back({SlotIndex(slot), 0, std::move(blocks)});
}

/// Prefills tokens [start, end) in submissions of one block, the first of them with `first`'s admissions and copies.
/// Returns the last one's completion, which asked for logprobs.
Completion prefill(Hand& hand, Submission first, int slot, uint32_t epoch, const std::vector<TokenId>& tokens,
                   int start) {
  Completion last;
  for (int at = start; at < static_cast<int>(tokens.size()); at += kBlockTokens) {
    Submission s = at == start ? first : hand.blank(Operation::kPrefill);
    const int end = std::min(at + kBlockTokens, static_cast<int>(tokens.size()));
    const bool ends = end == static_cast<int>(tokens.size());
    Hand::prefill(s, slot, epoch, {tokens.begin() + at, tokens.begin() + end}, at, ends);
    if (ends) Hand::ask(s, slot);
    last = hand.run(s);
  }
  return last;
}

/// The packed logprobs of the slot's next tokens, the prompt's own last one among them.
std::vector<std::vector<int32_t>> go_on(Hand& hand, Completion completion, int slot, uint32_t epoch) {
  std::vector<std::vector<int32_t>> out;
  for (int i = 0; i < 4; ++i) {
    if (completion.payloads.size() != 1) {
      ADD_FAILURE() << completion.payloads.size() << " payloads";
      return out;
    }
    out.push_back(completion.payloads[0].words);
    Submission s = hand.blank(Operation::kDecode);
    Hand::decode(s, slot, epoch);
    Hand::ask(s, slot);
    completion = hand.run(s);
  }
  return out;
}

TEST_F(HostTierTest, X1_BlocksThatComeBackHoldWhatTheyHeld) {
  for (const auto& [world, bf16] : {std::pair{1, false}, {2, true}, {4, false}}) {
    SCOPED_TRACE("ranks " + std::to_string(world));
    TestCluster cluster(bf16 ? bf16_config(world) : config(world), world);
    ASSERT_EQ(cluster.manifest().host_num_blocks, 6);
    EXPECT_GT(cluster.manifest().memory.host_tier_bytes, 0);
    Hand hand(cluster);
    const std::vector<TokenId> mine = prompt(2 * kBlockTokens + 9, 7), other = prompt(2 * kBlockTokens + 20, 11);

    Submission cold = hand.blank(Operation::kPrefill);
    admit(cold, 0, 1, {0, 1, 2, 3});
    const auto expected = go_on(hand, prefill(hand, cold, 0, 1, mine, 0), 0, 1);

    // Blocks 0 and 1 go to the host in the submission whose step begins to overwrite them.
    Submission evicts = hand.blank(Operation::kPrefill);
    evicts.blocks_out = {{0, 5}, {1, 2}};
    admit(evicts, 1, 1, {1, 0, 4, 5});
    prefill(hand, evicts, 1, 1, other, 0);

    // They come back to other blocks, in the submission that first reads them; what was there goes out before.
    Submission restores = hand.blank(Operation::kPrefill);
    restores.blocks_out = {{0, 1}, {1, 0}};
    restores.blocks_in = {{0, 5}, {9, 2}};
    admit(restores, 2, 1, {0, 9, 10, 11});
    EXPECT_EQ(go_on(hand, prefill(hand, restores, 2, 1, mine, 2 * kBlockTokens), 2, 1), expected);

    // The other sequence's first blocks were 1 and 0: a second hop through the tier.
    Submission again = hand.blank(Operation::kPrefill);
    again.blocks_out = {{9, 3}};
    again.blocks_in = {{12, 5}, {13, 3}, {14, 0}, {15, 1}};
    admit(again, 3, 1, {12, 13, 6, 7});
    EXPECT_FALSE(cluster.submit(again).ok()) << "a host block that this submission writes";
    again.blocks_out.clear();
    again.blocks_in[1].host_block = 2;
    EXPECT_EQ(go_on(hand, prefill(hand, again, 3, 1, mine, 2 * kBlockTokens), 3, 1), expected);
    for (int r = 0; r < world; ++r) {
      EXPECT_EQ(cluster.counter(r, "helios_host_tier_blocks_out_total"), 4);
      EXPECT_EQ(cluster.counter(r, "helios_host_tier_blocks_in_total"), 6);
    }
  }
}

TEST_F(HostTierTest, R25_TheReportStatesEachPartApartFromTheDevicesTotals) {
  TestCluster cluster(config(1), 1);
  const MemoryReport& m = cluster.manifest().memory;
  EXPECT_EQ(m.host_tier_bytes, 6 * KvCache::block_bytes(2, 2, 8, DType::kFloat32));
  EXPECT_EQ(m.device_allocated_bytes,
            m.weights_bytes + m.kv_cache_bytes + m.bundle_bytes + m.workspace_bytes + m.scoring_bytes);
  EXPECT_GE(m.device_reserved_bytes, m.device_allocated_bytes);
  EXPECT_EQ(cluster.counter(0, "helios_host_tier_bytes"), static_cast<double>(m.host_tier_bytes));
  EXPECT_EQ(cluster.counter(0, "helios_device_reserved_bytes"), static_cast<double>(m.device_reserved_bytes));
  TestCluster none(ExecutorTest::config(), 1);
  EXPECT_EQ(none.manifest().host_num_blocks, 0);
  EXPECT_EQ(none.manifest().memory.host_tier_bytes, 0);
}

TEST_F(HostTierTest, SizesInBytesAreKeptOrRefused) {
  CoreConfig c = ExecutorTest::config();
  c.kv_cache_tokens = 0;
  c.kv_cache_bytes = 7 * KvCache::block_bytes(2, 2, 8, DType::kFloat32) + 100;
  TestCluster cluster(c, 1);
  EXPECT_EQ(cluster.manifest().kv_num_blocks, 7);
  const auto refusal = [&](CoreConfig wrong) {
    try {
      TestCluster refused(wrong, 1);
    } catch (const LoadError& error) {
      return std::string(error.what());
    }
    return std::string("loaded");
  };
  c.kv_cache_bytes = int64_t{1} << 50;
  EXPECT_NE(refusal(c).find("KV cache: 1.0 PiB were asked for"), std::string::npos) << refusal(c);
  c.kv_cache_bytes = 0;
  c.host_tier_bytes = 1000;
  EXPECT_NE(refusal(c).find("host tier: 1000 B do not hold one block"), std::string::npos) << refusal(c);
}

}  // namespace
}  // namespace helios::testing
