// What a core is when it has loaded, and what does not load: capabilities, the bundle, sizes, refusals by name; and a
// model or a group that fails later.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "tests/worker/replay/executor_fixture.h"
#include "worker/replay/executor.h"

namespace helios::testing {
namespace {

// R34: a core without the buffers serves, and refuses flags.
TEST_F(ExecutorTest, ACoreWithoutLogprobsServes) {
  CoreConfig k0 = config();
  k0.max_logprobs = 0;
  TestCluster cluster(k0, 2);
  const auto capabilities = derive_capabilities(cluster.manifest());
  ASSERT_TRUE(capabilities.ok());
  EXPECT_EQ(capabilities->max_logprobs, 0);
  EXPECT_EQ(cluster.manifest().buffers.size(), 1u);
  Hand hand(cluster);
  EXPECT_EQ(emitted(hand.start(0, 1, {5, 6})), 1);
  Submission s = hand.blank(Operation::kDecode);
  Hand::decode(s, 0, 1);
  s.logprob_requested = {1, 0, 0, 0};
  EXPECT_FALSE(cluster.submit(s).ok());
  s.logprob_requested = {0, 0, 0, 0};
  EXPECT_EQ(emitted(hand.run(s)), 1);
}

// R35: natural alternatives only, and a last extent of 2 + 2K.
TEST_F(ExecutorTest, ACoreWithoutIdInputsReportsItsK) {
  CoreConfig k5 = config();
  k5.max_logprobs = 5;
  TestCluster cluster(k5, 2);
  const auto capabilities = derive_capabilities(cluster.manifest());
  ASSERT_TRUE(capabilities.ok());
  EXPECT_EQ(capabilities->max_logprobs, 5);
  EXPECT_FALSE(capabilities->logprob_token_ids);
  EXPECT_EQ(cluster.manifest().buffers[1].shape, (std::vector<int64_t>{2, 4, 8, 12}));
  Hand hand(cluster);
  Submission s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 0, 1);
  Hand::prefill(s, 0, 1, {5, 6});
  Hand::ask(s, 0);
  Completion c = hand.run(s);
  ASSERT_EQ(c.payloads.size(), 1u);
  EXPECT_EQ(c.payloads[0].words.size(), 12u);
  std::set<int32_t> ids;
  for (int i = 0; i < 5; ++i) ids.insert(c.payloads[0].words[kFirstAlternative + 2 * i]);
  EXPECT_EQ(ids.size(), 5u);
  s = hand.blank(Operation::kDecode);
  Hand::decode(s, 0, 1);
  s.logprob_requested[0] = 1;
  s.logprob_token_ids.push_back({SlotIndex(0), {1}});
  EXPECT_FALSE(cluster.submit(s).ok());

  CoreConfig k20 = config();
  k20.logprob_token_ids = false;
  TestCluster natural(k20, 1);
  EXPECT_EQ(natural.manifest().buffers[1].shape.back(), 42);
}

// R10, R12, R14, R36, R37: the whole bundle, bound by every sampling graph.
TEST_F(ExecutorTest, TheManifestDeclaresTheWholeBundle) {
  TestCluster cluster(config(), 1);
  const CoreManifest& m = cluster.manifest();
  ASSERT_EQ(m.buffers.size(), 5u);
  EXPECT_EQ(m.buffers[0].shape, (std::vector<int64_t>{2, 4, 24}));
  EXPECT_EQ(m.buffers[1].shape, (std::vector<int64_t>{2, 4, 8, 258}));
  const auto capabilities = derive_capabilities(m);
  ASSERT_TRUE(capabilities.ok()) << capabilities.error().message;
  EXPECT_EQ(capabilities->max_logprobs, 20);
  EXPECT_TRUE(capabilities->logprob_token_ids);
  EXPECT_EQ(m.memory.bundle_bytes, (2 * 4 * 24 * 8) + (2 * 4 * 8 * 258 * 4) + 4 * 4 + 4 * 128 * 4 + 4 * 4);
  EXPECT_GT(m.memory.weights_bytes, 0);
  EXPECT_GT(m.memory.workspace_bytes, 0);
  EXPECT_GT(m.memory.pinned_bytes, 0);
  EXPECT_EQ(m.kv_cache_dtype, "float32");
  EXPECT_EQ(m.memory.kv_cache_bytes, 16 * 2 * 2 * 2 * 8 * 32 * 4);
}

// --kv-cache-dtype: half the bytes, by itself where --dtype bfloat16 rounds keys and values anyway.
TEST_F(ExecutorTest, ABf16CacheTakesHalfTheMemory) {
  CoreConfig asked = config(), rounded = config(), kept = config();
  asked.kv_cache_dtype = KvCacheDtype::kBFloat16;
  rounded.dtype = kept.dtype = ComputeDtype::kBFloat16;
  kept.kv_cache_dtype = KvCacheDtype::kFloat32;
  for (const auto& [c, halves] : {std::pair{asked, 1}, {rounded, 1}, {kept, 2}}) {
    TestCluster cluster(c, 1);
    EXPECT_EQ(cluster.manifest().kv_cache_dtype, halves == 1 ? "bfloat16" : "float32");
    EXPECT_EQ(cluster.manifest().memory.kv_cache_bytes, halves * 16 * 2 * 2 * 2 * 8 * 32 * 2);
  }
}

/// The tiny checkpoint with one tensor changed.
void rewrite(const std::string& directory, const std::string& name, const std::function<void(TinyTensor&)>& change) {
  std::vector<TinyTensor> tensors = tiny_tensors();
  for (TinyTensor& t : tensors) {
    if (t.name == name) change(t);
  }
  std::erase_if(tensors, [](const TinyTensor& t) { return t.name.empty(); });
  write_file(directory + "/model.safetensors", safetensors_bytes(tensors));
}

TEST_F(ExecutorTest, AModelThatGivesNoNumberFailsTheRequestNotTheRank) {
  rewrite(directory_.path(), "model.norm.weight", [](TinyTensor& t) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(t.bytes.data(), &nan, sizeof nan);
  });
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  for (uint32_t epoch = 1; epoch <= 2; ++epoch) {
    Submission s = hand.blank(Operation::kPrefill);
    Hand::admit(s, 0, epoch, {.temperature = 1.0f, .max_tokens = 4});
    Hand::prefill(s, 0, epoch, {5, 6});
    Hand::ask(s, 0);
    const Completion c = hand.run(s);
    EXPECT_EQ(emitted(c), 0);
    EXPECT_EQ(finish(c), FinishCode::kError);
    EXPECT_TRUE(c.payloads.empty());
  }
}

// --dtype float16 at its end: a weight beyond it is refused, an input beyond it is infinite and fails its request.
TEST_F(ExecutorTest, WhatF16CannotHoldIsRefusedOrFailsItsRequest) {
  CoreConfig c = config();
  c.dtype = ComputeDtype::kFloat16;
  const auto refusal = [&]() -> std::string {
    try {
      TestCluster cluster(c, 1);
      return "";
    } catch (const LoadError& e) {
      return e.what();
    }
  };
  const auto put = [](float value, size_t at) {
    return [=](TinyTensor& t) { std::memcpy(t.bytes.data() + at * sizeof value, &value, sizeof value); };
  };
  const std::string down = "model.layers.1.mlp.down_proj.weight", embedding = "model.embed_tokens.weight";
  for (const auto& [name, value, at, says] : {std::tuple{down, -65520.0f, 3 * 52 + 51, "-65520 at [3, 51]"},
                                              {embedding, 70000.5f, 299 * 48, "70000.5 at [299, 0]"}}) {
    rewrite(directory_.path(), name, put(value, static_cast<size_t>(at)));
    const std::string said = refusal(), expected = "--dtype float16: tensor " + name + ": " + says;
    EXPECT_NE(said.find(expected + " does not fit F16"), std::string::npos) << said << "\n  expected: " << expected;
  }
  rewrite(directory_.path(), down, put(65519.0f, 0));
  EXPECT_EQ(refusal(), "");

  for (const char* name : {"norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm",
                           "layers.1.self_attn.k_norm"}) {
    const std::string norm = std::string("model.") + name + ".weight";
    rewrite(directory_.path(), norm, put(-3e7f, 1));
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(norm + (exact ? " in FP32" : " in F16"));
      c.dtype = exact ? ComputeDtype::kFloat32 : ComputeDtype::kFloat16;
      TestCluster cluster(c, 2);
      EXPECT_EQ(cluster.manifest().dtype, exact ? "float32" : "float16");
      EXPECT_EQ(cluster.manifest().kv_cache_dtype, "float32");
      CoreManifest other = cluster.manifest();
      other.dtype = exact ? "float16" : "float32";
      EXPECT_FALSE(check_same_core(cluster.manifest(), other).ok()) << "ranks that round otherwise";
      Hand hand(cluster);
      for (uint32_t epoch = 1; epoch <= 2; ++epoch) {
        Submission s = hand.blank(Operation::kPrefill);
        Hand::admit(s, 0, epoch);
        Hand::prefill(s, 0, epoch, {5, 6, 7, 8});
        Hand::ask(s, 0);
        const Completion done = hand.run(s);
        EXPECT_EQ(emitted(done), exact ? 1 : 0);
        EXPECT_EQ(finish(done) == FinishCode::kError, !exact);
      }
    }
  }
}

TEST_F(ExecutorTest, ABrokenGroupReachesCollect) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  Submission s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 0, 1);
  Hand::prefill(s, 0, 1, {5, 6});
  ASSERT_TRUE(cluster.rank(0).submit(s).ok());  // rank 1 never comes
  cluster.abort("the peer died");
  EXPECT_THROW(cluster.rank(0).collect(), CollectiveError);
}

TEST_F(ExecutorTest, WhatCannotBeServedIsNamedAtLoading) {
  const auto refusal = [&](const CoreConfig& c, int world = 1) -> std::string {
    try {
      TestCluster cluster(c, world);
      return "";
    } catch (const LoadError& e) {
      return e.what();
    }
  };
  const auto expect = [&](const CoreConfig& c, const std::string& says) {
    EXPECT_NE(refusal(c).find(says), std::string::npos) << "expected: " << says << "\n  says: " << refusal(c);
  };
  CoreConfig c = config();
  c.max_model_len = kTinyContext + 1;
  expect(c, "max_model_len 129 is over the model's max_position_embeddings 128");
  c = config(), c.max_logprobs = 21;
  expect(c, "max_logprobs: expected 0 to 20, found 21");
  c = config(), c.slot_capacity = 0;
  expect(c, "max_num_seqs");
  c = config(), c.prefill_chunk = 0;
  expect(c, "prefill_chunk");
  c = config(), c.num_speculative_tokens = 16;
  expect(c, "num_speculative_tokens: expected 0 to 15, found 16");
  c.num_speculative_tokens = 4, c.token_capacity = 8;
  expect(c, "token_capacity: with num_speculative_tokens 4 it is one more; expected 0, found 8");
#if !defined(HELIOS_EMULATED_DEVICE)
  c = config(), c.num_threads = 0;
  expect(c, "threads");
#endif
  c = config(), c.kv_cache_tokens = 64;
  expect(c, "KV cache: expected at least 4 blocks");
  c = config(), c.model_dir += "/absent";
  expect(c, "not a directory");
  EXPECT_NE(refusal(config(), 3).find("world size: expected 1, 2, 4 or 8, found 3"), std::string::npos);

  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  rewrite(directory_.path(), q, [](TinyTensor& t) { t.name.clear(); });
  expect(config(), "tensor " + q + ": expected [48, 48], found none");
  rewrite(directory_.path(), q, [](TinyTensor& t) { t.shape = {24, 96}; });
  expect(config(), "tensor " + q + ": expected [48, 48], found [24, 96]");
  rewrite(directory_.path(), q, [](TinyTensor& t) { t.dtype = "I32"; });
  expect(config(), "tensor " + q + ": expected F32, BF16 or F16, found I32");
  std::vector<TinyTensor> more = tiny_tensors();
  more.push_back({.name = "model.layers.0.self_attn.q_proj.bias", .shape = {1}, .bytes = std::vector<std::byte>(4)});
  write_file(directory_.path() + "/model.safetensors", safetensors_bytes(more));
  expect(config(), "tensor model.layers.0.self_attn.q_proj.bias [1]: not a tensor of a qwen3 model");
}

// The automatic cache size is the same on every rank, and enough for one sequence.
TEST_F(ExecutorTest, TheCacheSizesItself) {
  CoreConfig c = config();
  c.kv_cache_tokens = 0;
  TestCluster cluster(c, 4);
  for (int r = 0; r < 4; ++r) EXPECT_EQ(cluster.rank(r).manifest().kv_num_blocks, 16) << "capacity times context";
  for (int r = 1; r < 4; ++r) EXPECT_TRUE(check_same_core(cluster.manifest(), cluster.rank(r).manifest()).ok());
}

}  // namespace
}  // namespace helios::testing
