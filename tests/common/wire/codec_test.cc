// What is encoded comes back equal, whatever the values; each field travels on its own; bad values are named.
#include "common/wire/codec.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/common/wire/random_messages.h"

namespace helios {
namespace {

using testing::bytes_of;
using testing::RandomMessages;
using testing::same_message;

Submission through_wire(const Submission& s) { return decode_submission(bytes_of(encode_submission(s))).value(); }
Completion through_wire(const Completion& c) { return decode_completion(bytes_of(encode_completion(c))).value(); }
ControlMessage through_wire(const ControlMessage& m) { return decode_control(bytes_of(encode_control(m))).value(); }

TEST(Codec, RandomSubmissionsComeBackEqual) {
  RandomMessages random(1);
  for (int i = 0; i < 500; ++i) {
    const Submission sent = random.submission();
    ASSERT_EQ(through_wire(sent), sent) << "message " << i;
  }
}

TEST(Codec, RandomCompletionsComeBackEqualToTheBit) {  // R11: values travel as bits
  RandomMessages random(2);
  for (int i = 0; i < 500; ++i) {
    const Completion sent = random.completion();
    ASSERT_EQ(through_wire(sent), sent) << "message " << i;
  }
}

TEST(Codec, RandomControlMessagesOfEveryKindComeBackEqual) {
  RandomMessages random(3);
  for (size_t kind = 0; kind < RandomMessages::kControlKinds; ++kind) {
    for (int i = 0; i < 100; ++i) {
      const ControlMessage sent = random.control(kind);
      ASSERT_EQ(sent.index(), kind);
      ASSERT_TRUE(same_message(through_wire(sent), sent)) << "kind " << kind << " message " << i;
    }
  }
}

TEST(Codec, DefaultMessagesComeBackEqual) {
  Submission s;
  s.operation = Operation::kDecode;
  EXPECT_EQ(through_wire(s), s);
  EXPECT_EQ(through_wire(Completion{}), Completion{});
}

TEST(Codec, MessagesOfSeveralSegmentsComeBackEqual) {
  RandomMessages random(6);
  Submission s = random.submission();
  s.lanes.clear();
  for (int32_t i = 0; i < 300; ++i) {
    s.lanes.push_back({SlotIndex(i), Epoch(i), LaneRole::kPrefill, i, true, random.ids(500, 600)});
  }
  EXPECT_EQ(through_wire(s), s);
  Completion c = random.completion();
  c.token_capacity = 8;
  c.records.assign(1000 * record_words(8), -7);
  c.width = 128;
  c.payloads.clear();
  for (int32_t i = 0; i < 1000; ++i) c.payloads.push_back({SlotIndex(i), std::vector<int32_t>(8 * 258, i)});
  EXPECT_EQ(through_wire(c), c);
  Ready ready{7, random.manifest()};
  for (int i = 0; i < 1000; ++i) ready.manifest.buffers.push_back({random.text(), BufferDtype::kInt32, {1, i}});
  ready.manifest.buffers.resize(1000);
  EXPECT_TRUE(same_message(through_wire(ControlMessage(ready)), ready));
}

TEST(Codec, EqualSubmissionsAreEqualBytes) {  // R13: every rank gets the same bytes
  RandomMessages random(4);
  const Submission s = random.submission();
  EXPECT_EQ(encode_submission(s), encode_submission(through_wire(s)));
}

// A field's change, alone, must survive. The structured bindings beside each list stop compiling when a field is added
// to the struct, so that this test cannot be forgotten.
template <class Message>
void expect_each_survives(const Message& base, const std::vector<std::function<void(Message&)>>& changes) {
  for (size_t i = 0; i < changes.size(); ++i) {
    Message changed = base;
    changes[i](changed);
    ASSERT_FALSE(changed == base) << "change " << i << " changes nothing";
    EXPECT_TRUE(through_wire(changed) == changed) << "change " << i << " was lost";
  }
}

TEST(Codec, EverySubmissionFieldTravelsOnItsOwn) {
  Submission base;
  base.operation = Operation::kDecode;
  base.admissions.resize(1);
  base.block_updates.resize(1);
  base.lanes.resize(1);
  base.logprob_token_ids = {{SlotIndex(0), {1}}};
  base.blocks_out.resize(1);
  // What only travels beside a penalty has one to travel beside.
  base.admissions[0].sampling.repetition_penalty = 1.25f;
  base.admissions[0].sampling.logit_bias = {{3, 1.0f}};
  base.admissions[0].sampling.output_counts = {{3, 1}};
  [[maybe_unused]] const auto& [s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13] = base;
  [[maybe_unused]] const auto& [a1, a2, a3, a4] = base.admissions[0];
  [[maybe_unused]] const auto& [p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18] = a3;
  [[maybe_unused]] const auto& [b1, b2, b3] = base.block_updates[0];
  [[maybe_unused]] const auto& [l1, l2, l3, l4, l5, l6, l7] = base.lanes[0];
  [[maybe_unused]] const auto& [i1, i2] = base.logprob_token_ids[0];
  [[maybe_unused]] const auto& [c1, c2] = base.blocks_out[0];
  using S = Submission;
  expect_each_survives<S>(base, {
                                    [](S& s) { s.incarnation = 0xfffffffe; },
                                    [](S& s) { s.sequence = Sequence(0xfedcba9876543210); },
                                    [](S& s) { s.frame = FrameIndex(1); },
                                    [](S& s) { s.operation = Operation::kScoredPrefill; },
                                    [](S& s) { s.admissions[0].slot = SlotIndex(7); },
                                    [](S& s) { s.admissions[0].epoch = Epoch(0xfffffffd); },
                                    [](S& s) { s.admissions[0].sampling.temperature = 0.5f; },
                                    [](S& s) { s.admissions[0].sampling.top_p = 0.25f; },
                                    [](S& s) { s.admissions[0].sampling.top_k = 40; },
                                    [](S& s) { s.admissions[0].sampling.min_p = 0.125f; },
                                    [](S& s) { s.admissions[0].sampling.seed = 0x8000000000000001; },
                                    [](S& s) { s.admissions[0].sampling.max_tokens = 17; },
                                    [](S& s) { s.admissions[0].sampling.min_tokens = 3; },
                                    [](S& s) { s.admissions[0].sampling.ignore_eos = true; },
                                    [](S& s) { s.admissions[0].sampling.eos_id = 2; },
                                    [](S& s) {
                                      s.admissions[0].sampling.stop_ids = {5, 4};
                                    },
                                    [](S& s) { s.admissions[0].sampling.logit_bias[0].id = 4; },
                                    [](S& s) { s.admissions[0].sampling.logit_bias[0].bias = -100.0f; },
                                    [](S& s) {
                                      s.admissions[0].sampling.allowed_ids = {2, 0, 1};
                                    },
                                    [](S& s) { s.admissions[0].sampling.masks = true; },
                                    [](S& s) { s.admissions[0].sampling.repetition_penalty = 0.75f; },
                                    [](S& s) { s.admissions[0].sampling.frequency_penalty = -2.0f; },
                                    [](S& s) { s.admissions[0].sampling.presence_penalty = 2.0f; },
                                    [](S& s) {
                                      s.admissions[0].sampling.prompt_ids = {7, 0};
                                    },
                                    [](S& s) { s.admissions[0].sampling.output_counts[0].id = 2; },
                                    [](S& s) { s.admissions[0].sampling.output_counts[0].count = 9; },
                                    [](S& s) { s.admissions[0].generated = 6; },
                                    [](S& s) { s.block_updates[0].slot = SlotIndex(3); },
                                    [](S& s) { s.block_updates[0].first = 9; },
                                    [](S& s) {
                                      s.block_updates[0].blocks = {8, 6};
                                    },
                                    [](S& s) { s.lanes[0].slot = SlotIndex(11); },
                                    [](S& s) { s.lanes[0].epoch = Epoch(12); },
                                    [](S& s) { s.lanes[0].role = LaneRole::kPrefill; },
                                    [](S& s) { s.lanes[0].start = 64; },
                                    [](S& s) { s.lanes[0].samples = false; },
                                    [](S& s) {
                                      s.lanes[0].tokens = {1, 0, 2147483647};
                                    },
                                    [](S& s) {
                                      s.lanes[0].mask = {0, 0xffffffff, 0x80000001};
                                    },
                                    [](S& s) {
                                      s.logprob_requested = {0, 1};
                                    },
                                    [](S& s) {
                                      s.logprob_token_id_counts = {0, 128};
                                    },
                                    [](S& s) { s.logprob_token_ids[0].slot = SlotIndex(1); },
                                    [](S& s) {
                                      s.logprob_token_ids[0].ids = {9, 8, 7};
                                    },
                                    [](S& s) { s.blocks_out[0].block = 7; },
                                    [](S& s) { s.blocks_out[0].host_block = 8; },
                                    [](S& s) {
                                      s.blocks_in = {{1, 2}, {3, 4}};
                                    },
                                    [](S& s) {  // R38
                                      s.prompt_target_tokens = {5, kNoTarget, 0};
                                    },
                                });
}

TEST(Codec, EveryCompletionFieldTravelsOnItsOwn) {
  Completion base;
  base.payloads = {{SlotIndex(0), {}}};
  [[maybe_unused]] const auto& [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11] = base;
  [[maybe_unused]] const auto& [p1, p2] = base.payloads[0];
  using C = Completion;
  expect_each_survives<C>(base, {
                                    [](C& c) { c.incarnation = 5; },
                                    [](C& c) { c.sequence = Sequence(0x8000000000000002); },
                                    [](C& c) { c.frame = FrameIndex(1); },
                                    [](C& c) { c.rank = Rank(3); },
                                    [](C& c) { c.token_capacity = 8; },
                                    [](C& c) { c.record_digest = ~uint64_t{0}; },
                                    [](C& c) { c.records.assign(16, -1); },
                                    [](C& c) { c.width = 20; },
                                    [](C& c) { c.payloads[0].slot = SlotIndex(4); },
                                    [](C& c) {
                                      c.payloads[0].words = {7, float_bits(-0.5f)};
                                    },
                                    [](C& c) {  // R40
                                      c.prompt_rows.assign(2 * kPromptScoreWords, float_bits(-0.25f));
                                    },
                                    [](C& c) { c.bytes_copied = int64_t{1} << 40; },
                                });
}

template <class Message>
void expect_each_control_survives(const Message& base, const std::vector<std::function<void(Message&)>>& changes) {
  for (size_t i = 0; i < changes.size(); ++i) {
    Message changed = base;
    changes[i](changed);
    ASSERT_FALSE(same_message(changed, base)) << "change " << i << " changes nothing";
    EXPECT_TRUE(same_message(through_wire(ControlMessage(changed)), changed)) << "change " << i << " was lost";
  }
}

TEST(Codec, EveryHelloAndWelcomeFieldTravelsOnItsOwn) {
  Hello hello{Rank(0), 8, 1, 2, "k", "n", "cpu", "u"};
  [[maybe_unused]] const auto& [h1, h2, h3, h4, h5, h6, h7, h8] = hello;
  expect_each_control_survives<Hello>(hello, {
                                                 [](Hello& h) { h.rank = Rank(7); },
                                                 [](Hello& h) { h.world_size = 4; },
                                                 [](Hello& h) { h.life = ~uint64_t{0}; },
                                                 [](Hello& h) { h.pid = int64_t{1} << 33; },
                                                 [](Hello& h) { h.host_key = "other"; },
                                                 [](Hello& h) { h.host_name = "nœud-2"; },
                                                 [](Hello& h) { h.device = "cuda"; },
                                                 [](Hello& h) { h.status_url = "http://127.0.0.1:1"; },
                                             });
  Welcome welcome{1, 2, "key", "shm"};
  [[maybe_unused]] const auto& [w1, w2, w3, w4] = welcome;
  expect_each_control_survives<Welcome>(welcome, {
                                                     [](Welcome& w) { w.incarnation = 9; },
                                                     [](Welcome& w) { w.world_size = 8; },
                                                     [](Welcome& w) { w.group_key = "k2"; },
                                                     [](Welcome& w) { w.collective = "gloo"; },
                                                 });
}

TEST(Codec, EveryManifestFieldTravelsOnItsOwn) {
  Ready base;
  base.manifest.buffers.resize(1);
  base.manifest.graphs.resize(1);
  base.manifest.graphs[0].operation = Operation::kDecode;
  [[maybe_unused]] const auto& [r1, r2] = base;
  [[maybe_unused]] const auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15] = base.manifest;
  [[maybe_unused]] const auto& [b1, b2, b3] = base.manifest.buffers[0];
  [[maybe_unused]] const auto& [g1, g2, g3, g4] = base.manifest.graphs[0];
  [[maybe_unused]] const auto& [x1, x2, x3, x4, x5, x6, x7, x8, x9] = base.manifest.memory;
  using R = Ready;
  expect_each_control_survives<R>(
      base, {
                [](R& r) { r.incarnation = 4; },
                [](R& r) { r.manifest.model_type = "qwen3"; },
                [](R& r) { r.manifest.device = "cpu"; },
                [](R& r) { r.manifest.dtype = "float32"; },
                [](R& r) { r.manifest.kv_cache_dtype = "bfloat16"; },
                [](R& r) { r.manifest.vocab_size = 151936; },
                [](R& r) { r.manifest.max_model_len = 4096; },
                [](R& r) { r.manifest.slot_capacity = 32; },
                [](R& r) { r.manifest.token_capacity = 8; },
                [](R& r) { r.manifest.prefill_chunk = 512; },
                [](R& r) { r.manifest.kv_block_size = 16; },
                [](R& r) { r.manifest.kv_num_blocks = 1000; },
                [](R& r) { r.manifest.host_num_blocks = 5000; },
                [](R& r) { r.manifest.buffers[0].name = "completion_records"; },
                [](R& r) { r.manifest.buffers[0].dtype = BufferDtype::kFloat16; },
                [](R& r) {
                  r.manifest.buffers[0].shape = {2, 32, 24};
                },
                [](R& r) { r.manifest.graphs[0].operation = Operation::kScoredPrefill; },
                [](R& r) { r.manifest.graphs[0].row_capacity = 64; },
                [](R& r) {
                  r.manifest.graphs[0].bindings = {ValueSource::kPromptTargetToken, ValueSource::kFrame};
                },
                [](R& r) {
                  r.manifest.graphs[0].outputs = {"completion_records", "completion_logprobs"};
                },
                [](R& r) { r.manifest.memory.weights_bytes = 1; },
                [](R& r) { r.manifest.memory.kv_cache_bytes = 2; },
                [](R& r) { r.manifest.memory.bundle_bytes = 3; },
                [](R& r) { r.manifest.memory.workspace_bytes = 4; },
                [](R& r) { r.manifest.memory.pinned_bytes = 5; },
                [](R& r) { r.manifest.memory.host_tier_bytes = 6; },
                [](R& r) { r.manifest.memory.scoring_bytes = 7; },
                [](R& r) { r.manifest.memory.device_allocated_bytes = 8; },
                [](R& r) { r.manifest.memory.device_reserved_bytes = 9; },
            });
}

TEST(Codec, EveryHeartbeatFaultAndStoreFieldTravelsOnItsOwn) {
  Heartbeat beat;
  beat.counters = {{"helios_a_total", 1.0}};
  [[maybe_unused]] const auto& [h1, h2, h3, h4, h5, h6, h7] = beat;
  [[maybe_unused]] const auto& [k1, k2] = beat.counters[0];
  expect_each_control_survives<Heartbeat>(beat, {
                                                    [](Heartbeat& h) { h.incarnation = 6; },
                                                    [](Heartbeat& h) { h.state = RankState::kLost; },
                                                    [](Heartbeat& h) { h.last_sequence = Sequence(77); },
                                                    [](Heartbeat& h) { h.busy_for_ms = 1234567890123; },
                                                    [](Heartbeat& h) { h.resident_bytes = int64_t{1} << 40; },
                                                    [](Heartbeat& h) { h.load_progress = 0.75; },
                                                    [](Heartbeat& h) { h.counters[0].name = "helios_b"; },
                                                    [](Heartbeat& h) { h.counters[0].value = -1.5e300; },
                                                });
  Fault fault{1, "m"};
  [[maybe_unused]] const auto& [f1, f2] = fault;
  expect_each_control_survives<Fault>(
      fault, {[](Fault& f) { f.incarnation = 2; }, [](Fault& f) { f.message = "rank 1: sequence 7 after 5"; }});
  expect_each_control_survives<Abort>(Abort{"a"}, {[](Abort& a) { a.reason = "b"; }});
  expect_each_control_survives<StoreSet>(StoreSet{"k", "v"},
                                         {[](StoreSet& s) { s.key = std::string("\0\xff", 2); },
                                          [](StoreSet& s) { s.value = std::string(100000, '\xfe'); }});
  expect_each_control_survives<StoreGet>(StoreGet{"k"}, {[](StoreGet& s) { s.key = std::string("\n\0", 2); }});
  expect_each_control_survives<StoreValue>(StoreValue{"k", "v"},
                                           {[](StoreValue& s) { s.key = "x"; }, [](StoreValue& s) { s.value = ""; }});
}

// Encoders write what they are told; decoders refuse what no sender may say, and say which field.
void expect_refused(const Submission& s, const std::string& field) {
  const auto result = decode_submission(bytes_of(encode_submission(s)));
  ASSERT_FALSE(result.ok()) << field;
  EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
  EXPECT_NE(result.error().message.find("submission: " + field), std::string::npos) << result.error().message;
}

TEST(Codec, OutOfRangeSubmissionValuesAreRefusedByName) {
  RandomMessages random(5);
  Submission base = random.submission();
  base.admissions = {{SlotIndex(0), Epoch(1), SamplingParams{}}};
  base.lanes.resize(1);
  base.block_updates.resize(1);
  base.logprob_token_ids = {{SlotIndex(0), {1}}};
  ASSERT_TRUE(decode_submission(bytes_of(encode_submission(base))).ok());
  const auto with = [&](auto change, const std::string& field) {
    Submission bad = base;
    change(bad);
    expect_refused(bad, field);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  with([](Submission& s) { s.frame = FrameIndex(2); }, "frame");
  with([](Submission& s) { s.operation = Operation::kInvalid; }, "operation");
  with([](Submission& s) { s.operation = static_cast<Operation>(13); }, "operation");
  with([](Submission& s) { s.admissions[0].slot = SlotIndex(-1); }, "slot");
  with([](Submission& s) { s.lanes[0].slot = SlotIndex(65536); }, "slot");
  with([](Submission& s) { s.admissions[0].sampling.temperature = kNan; }, "temperature");
  with([](Submission& s) { s.admissions[0].sampling.temperature = kInf; }, "temperature");
  with([](Submission& s) { s.admissions[0].sampling.temperature = -0.5f; }, "temperature");
  with([](Submission& s) { s.admissions[0].sampling.top_p = 0.0f; }, "top_p");
  with([](Submission& s) { s.admissions[0].sampling.top_p = kNan; }, "top_p");
  with([](Submission& s) { s.admissions[0].sampling.min_p = 1.5f; }, "min_p");
  with([](Submission& s) { s.admissions[0].sampling.min_p = kNan; }, "min_p");
  with([](Submission& s) { s.admissions[0].sampling.top_k = -1; }, "top_k");
  with([](Submission& s) { s.admissions[0].sampling.max_tokens = -1; }, "max_tokens");
  with([](Submission& s) { s.admissions[0].sampling.min_tokens = -1; }, "min_tokens");
  with([](Submission& s) { s.admissions[0].sampling.eos_id = -2; }, "eos_id");
  with([](Submission& s) { s.admissions[0].sampling.stop_ids.assign(65, 1); }, "stop_ids");
  with([](Submission& s) { s.admissions[0].sampling.stop_ids = {-1}; }, "stop_ids");
  const auto with_sampling = [&](auto change, const std::string& field) {
    with([&](Submission& s) { change(s.admissions[0].sampling); }, field);
  };
  with_sampling([](SamplingParams& p) { p.logit_bias = {{5, kNan}}; }, "logit_bias");
  with_sampling([](SamplingParams& p) { p.logit_bias = {{5, 100.5f}}; }, "logit_bias");
  with_sampling([](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; }, "logit_bias");
  with_sampling([](SamplingParams& p) { p.logit_bias = {{5, 1.0f}, {6, 1.0f}, {5, 2.0f}}; }, "logit_bias");
  with_sampling(
      [](SamplingParams& p) {
        for (int id = 0; id <= kMaxLogitBias; ++id) p.logit_bias.push_back({id, 1.0f});
      },
      "logit_bias");
  with_sampling([](SamplingParams& p) { p.allowed_ids = {4, 4}; }, "allowed_ids");
  with_sampling([](SamplingParams& p) { p.allowed_ids = {-4}; }, "allowed_ids");
  with_sampling([](SamplingParams& p) { p.allowed_ids = {4}, p.masks = true; }, "allowed_ids");
  with_sampling([](SamplingParams& p) { p.repetition_penalty = kNan; }, "repetition_penalty");
  with_sampling([](SamplingParams& p) { p.repetition_penalty = kInf; }, "repetition_penalty");
  with_sampling([](SamplingParams& p) { p.repetition_penalty = 0.0f; }, "repetition_penalty");
  with_sampling([](SamplingParams& p) { p.repetition_penalty = -1.0f; }, "repetition_penalty");
  with_sampling([](SamplingParams& p) { p.frequency_penalty = 2.01f; }, "frequency_penalty");
  with_sampling([](SamplingParams& p) { p.frequency_penalty = kNan; }, "frequency_penalty");
  with_sampling([](SamplingParams& p) { p.presence_penalty = -2.01f; }, "presence_penalty");
  with_sampling([](SamplingParams& p) { p.presence_penalty = kNan; }, "presence_penalty");
  with_sampling([](SamplingParams& p) { p.prompt_ids = {1}; }, "prompt_ids");
  const auto with_penalty = [&](auto change, const std::string& field) {
    with_sampling([&](SamplingParams& p) { p.repetition_penalty = 1.5f, change(p); }, field);
  };
  with_penalty([](SamplingParams& p) { p.prompt_ids = {1, 2, 1}; }, "prompt_ids");
  with_penalty([](SamplingParams& p) { p.prompt_ids = {-1}; }, "prompt_ids");
  with_penalty([](SamplingParams& p) { p.output_counts = {{1, 0}}; }, "output_counts");
  with_penalty([](SamplingParams& p) { p.output_counts = {{-1, 1}}; }, "output_counts");
  with_penalty([](SamplingParams& p) { p.output_counts = {{1, 1}, {1, 2}}; }, "output_counts");
  with_sampling([](SamplingParams& p) { p.output_counts = {{1, 1}}; }, "output_counts");
  with([](Submission& s) { s.block_updates[0].first = -1; }, "first");
  with([](Submission& s) { s.block_updates[0].blocks = {-1}; }, "blocks");
  with([](Submission& s) { s.lanes[0].role = static_cast<LaneRole>(2); }, "role");
  with([](Submission& s) { s.lanes[0].start = -2; }, "start");
  with([](Submission& s) { s.lanes[0].tokens = {3, -1}; }, "tokens");
  with([](Submission& s) { s.lanes[0].samples = false, s.lanes[0].mask = {1}; }, "mask");
  with([](Submission& s) { s.logprob_requested = {2}; }, "logprob_requested");
  with([](Submission& s) { s.logprob_token_id_counts = {129}; }, "logprob_token_id_counts");
  with([](Submission& s) { s.logprob_token_id_counts = {-1}; }, "logprob_token_id_counts");
  with([](Submission& s) { s.logprob_token_ids[0].ids = {}; }, "logprob_token_ids");
  with([](Submission& s) { s.logprob_token_ids[0].ids.assign(129, 1); }, "logprob_token_ids");
  with([](Submission& s) { s.prompt_target_tokens = {1, -2}; }, "prompt_target_tokens");
}

TEST(Codec, OutOfRangeCompletionValuesAreRefused) {
  const auto refused = [](auto change) {
    Completion bad;
    bad.token_capacity = 8;
    bad.width = 2;
    change(bad);
    return !decode_completion(bytes_of(encode_completion(bad))).ok();
  };
  EXPECT_FALSE(refused([](Completion&) {}));
  EXPECT_TRUE(refused([](Completion& c) { c.frame = FrameIndex(3); }));
  EXPECT_TRUE(refused([](Completion& c) { c.rank = Rank(-1); }));
  EXPECT_TRUE(refused([](Completion& c) { c.token_capacity = -1; }));
  EXPECT_TRUE(refused([](Completion& c) { c.token_capacity = std::numeric_limits<int32_t>::max(); }));
  EXPECT_TRUE(refused([](Completion& c) { c.records.resize(23); }));
  EXPECT_TRUE(refused([](Completion& c) { c.width = 129; }));
  EXPECT_TRUE(refused([](Completion& c) { c.width = -1; }));
  EXPECT_TRUE(refused([](Completion& c) { c.payloads = {{SlotIndex(-1), {}}}; }));
  EXPECT_TRUE(refused([](Completion& c) { c.payloads = {{SlotIndex(1), std::vector<int32_t>(7)}}; }));
  EXPECT_TRUE(refused([](Completion& c) { c.prompt_rows.resize(42); }));
  EXPECT_TRUE(refused([](Completion& c) { c.bytes_copied = -1; }));
}

TEST(Codec, OutOfRangeControlValuesAreRefused) {
  const auto refused = [](const ControlMessage& m) { return !decode_control(bytes_of(encode_control(m))).ok(); };
  const Hello hello{Rank(0), 2, 1, 2, "k", "n", "cpu", ""};
  ASSERT_FALSE(refused(hello));
  const auto bad_hello = [&](auto change) {
    Hello bad = hello;
    change(bad);
    return refused(bad);
  };
  EXPECT_TRUE(bad_hello([](Hello& h) { h.rank = Rank(2); }));
  EXPECT_TRUE(bad_hello([](Hello& h) { h.rank = Rank(-1); }));
  EXPECT_TRUE(bad_hello([](Hello& h) { h.world_size = 0; }));
  EXPECT_TRUE(bad_hello([](Hello& h) { h.pid = -1; }));
  EXPECT_TRUE(bad_hello([](Hello& h) { h.host_name = "a\nb"; }));          // would forge a log line
  EXPECT_TRUE(bad_hello([](Hello& h) { h.host_name = "\xc3"; }));          // not UTF-8: would break /health
  EXPECT_TRUE(bad_hello([](Hello& h) { h.host_name = "\xed\xa0\x80"; }));  // a surrogate
  EXPECT_TRUE(bad_hello([](Hello& h) { h.host_name = std::string(257, 'x'); }));
  EXPECT_TRUE(bad_hello([](Hello& h) { h.status_url = std::string(1025, 'x'); }));
  EXPECT_TRUE(refused(Heartbeat{1, static_cast<RankState>(5)}));
  EXPECT_TRUE(refused(Heartbeat{1, RankState::kReady, Sequence(1), -1}));
  EXPECT_TRUE(refused(Heartbeat{1, RankState::kReady, Sequence(1), 0, 0, std::nan("")}));
  EXPECT_TRUE(refused(Heartbeat{1, RankState::kReady, Sequence(1), 0, 0, 1.01}));
  const auto bad_counter = [&](std::string name, double value) {
    return refused(Heartbeat{.counters = {{std::move(name), value}}});
  };
  EXPECT_FALSE(bad_counter("helios_steps_total", 1e15));
  EXPECT_TRUE(bad_counter("steps_total", 1.0));
  EXPECT_TRUE(bad_counter("helios_x{rank=\"0\"} 1", 1.0));  // would forge a metric
  EXPECT_TRUE(bad_counter("helios_X", 1.0));
  EXPECT_TRUE(bad_counter("helios_" + std::string(58, 'x'), 1.0));
  EXPECT_TRUE(bad_counter("helios_x", std::nan("")));
  EXPECT_TRUE(refused(Heartbeat{.counters = std::vector<CounterValue>(65, {"helios_x", 1.0})}));
  EXPECT_TRUE(refused(StoreSet{std::string(1025, 'k'), ""}));
  EXPECT_TRUE(refused(StoreSet{"k", std::string((1 << 20) + 1, 'v')}));
  Ready ready;
  ready.manifest.graphs.resize(1);
  ready.manifest.graphs[0].operation = Operation::kDecode;
  ready.manifest.graphs[0].bindings = {static_cast<ValueSource>(14)};  // a number kept for later
  EXPECT_TRUE(refused(ready));
  ready.manifest.graphs[0].bindings = {ValueSource::kNone};
  EXPECT_TRUE(refused(ready));
  ready.manifest.graphs[0].bindings = {};
  EXPECT_FALSE(refused(ready));
  ready.manifest.vocab_size = -1;
  EXPECT_TRUE(refused(ready));
}

TEST(Codec, MessagesToPeopleAreMadeFitForOneLine) {
  const std::string messy = "line one\nline two \xff\xfe \x01 é " + std::string(5000, 'x');
  const auto fault = std::get<Fault>(through_wire(ControlMessage(Fault{3, messy})));
  EXPECT_EQ(fault.message.substr(0, 25), "line one?line two ?? ? é");
  EXPECT_EQ(fault.message.size(), 1024u);
  EXPECT_EQ(std::get<Abort>(through_wire(ControlMessage(Abort{"a\tb"}))).reason, "a?b");
}

TEST(Codec, SchemaNumbersOfTheLogprobsContract) {  // R44
  EXPECT_EQ(static_cast<int>(Operation::kScoredPrefill), 12);
  EXPECT_EQ(static_cast<int>(ValueSource::kPromptTargetToken), 39);
}

}  // namespace
}  // namespace helios
