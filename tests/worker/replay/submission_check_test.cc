// Every field of a submission that does not fit the core is refused with its name, and nothing crashes.
#include "worker/replay/submission_check.h"
#include "tests/support/float_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace helios {
namespace {

CoreShape shape() {
  return {.model_type = "tiny",
          .device = "cpu",
          .dtype = "float32",
          .kv_cache_dtype = "float32",
          .vocab_size = 300,
          .max_model_len = 100,
          .slot_capacity = 4,
          .token_capacity = 8,
          .prefill_chunk = 16,
          .kv_block_size = 32,
          .kv_num_blocks = 10,
          .host_num_blocks = 6,
          .alternatives = 20,
          .token_ids = true,
          .prompt_scoring = true};
}

/// Admission, block table and two lanes, one of them asking for selected ids: everything in use.
Submission good() {
  Submission s{.sequence = Sequence(1),
               .frame = FrameIndex(0),
               .operation = Operation::kMixed,
               .logprob_requested = {1, 0, 1, 0},
               .logprob_token_id_counts = {0, 0, 2, 0}};
  s.admissions.push_back({SlotIndex(0),
                          Epoch(1),
                          {.stop_ids = {4, 5},
                           .logit_bias = {{5, 1.0f}, {299, -100.0f}},
                           .allowed_ids = {0, 5, 299},
                           .repetition_penalty = 1.1f,
                           .frequency_penalty = -2.0f,
                           .presence_penalty = 2.0f,
                           .prompt_ids = {1, 299},
                           .output_counts = {{0, 60}, {299, 40}}}});
  s.block_updates.push_back({SlotIndex(0), 0, {9, 0, 3, 4}});
  s.lanes.push_back({SlotIndex(0), Epoch(1), LaneRole::kPrefill, 0, true, {1, 2, 299}});
  s.lanes.push_back({.slot = SlotIndex(2), .epoch = Epoch(7)});
  s.logprob_token_ids.push_back({SlotIndex(2), {8, 299}});
  return s;
}

TEST(SubmissionCheck, AcceptsWhatFits) {
  SubmissionCheck check(shape());
  for (int i = 0; i < 3; ++i) {
    const Status status = check.check(good());
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

/// Two chunks, the second one its prompt's last; neither prompt has a budget.
Submission scored() {
  Submission s{.sequence = Sequence(1),
               .frame = FrameIndex(0),
               .operation = Operation::kScoredPrefill,
               .logprob_requested = {0, 0, 0, 0},
               .logprob_token_id_counts = {0, 0, 0, 0}};
  s.admissions.push_back({SlotIndex(0), Epoch(1), {.max_tokens = 0}});
  s.lanes.push_back({SlotIndex(0), Epoch(1), LaneRole::kPrefill, 0, false, {1, 2, 299}});
  s.lanes.push_back({SlotIndex(2), Epoch(7), LaneRole::kPrefill, 8, false, {3, 4}});
  s.prompt_target_tokens = {2, 299, 0, 4, kNoTarget};
  return s;
}

TEST(SubmissionCheck, R38_R45_AScoredPrefillNeedsACoreThatScoresAndATargetForEachToken) {
  SubmissionCheck check(shape());
  EXPECT_TRUE(check.check(scored()).ok()) << check.check(scored()).error().message;
  CoreShape without = shape();
  without.prompt_scoring = false;
  const auto says = [](SubmissionCheck& on, Submission s, auto change, const std::string& part) {
    change(s);
    const Status status = on.check(s);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  SubmissionCheck unscored(without);
  says(
      unscored, scored(), [](Submission&) {}, "no graph for scored_prefill (12)");
  says(
      check, scored(), [](Submission& s) { s.prompt_target_tokens.pop_back(); }, "prompt_target_tokens: expected 5");
  says(
      check, scored(), [](Submission& s) { s.prompt_target_tokens[1] = 300; }, "an id under 300, found 300");
  says(
      check, scored(), [](Submission& s) { s.prompt_target_tokens[1] = -2; }, "prompt_target_tokens");
  says(
      check, scored(), [](Submission& s) { s.lanes[1] = {.slot = SlotIndex(2), .epoch = Epoch(7)}; },
      "decode lane in a scored_prefill");
  says(
      check, scored(), [](Submission& s) { s.admissions[0].generated = 1; }, "generated: expected 0 to 0");
  says(
      check, good(),
      [](Submission& s) {
        s.prompt_target_tokens = {1, 2, 3};
      },
      "prompt_target_tokens: expected 0");
}

/// Lanes of slots 0, 2 and 3, with two, no and four proposals; slot 0 is admitted.
Submission verification(SamplingParams sampling = {}) {
  Submission s{.sequence = Sequence(1),
               .frame = FrameIndex(0),
               .operation = Operation::kVerify,
               .logprob_requested = {1, 0, 0, 0},
               .logprob_token_id_counts = {0, 0, 0, 0}};
  s.admissions.push_back({SlotIndex(0), Epoch(1), std::move(sampling)});
  for (const int slot : {0, 2, 3}) s.lanes.push_back({.slot = SlotIndex(slot), .epoch = Epoch(1)});
  s.lanes[0].tokens = {4, 299};
  s.lanes[2].tokens = {1, 2, 3, 4};
  return s;
}

// R3: proposals fit the record, the graph and the vocabulary, and only slots bring them whose rows do not depend on
// what this step emits before.
TEST(SubmissionCheck, R3_ProposalsAreRefusedByNameWhereTheyDoNotFit) {
  CoreShape speculative = shape();
  speculative.num_speculative_tokens = 4, speculative.token_capacity = 5;
  SubmissionCheck check(speculative);
  const auto accepts = [&](const Submission& s) {
    const Status status = check.check(s);
    EXPECT_TRUE(status.ok()) << status.error().message;
  };
  const auto refuses = [](SubmissionCheck& on, Submission s, const std::string& part) {
    const Status status = on.check(s);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  const auto with = [](auto change) {
    Submission s = verification();
    change(s);
    return s;
  };
  accepts(verification());
  accepts(with([](Submission& s) { s.lanes[0].tokens.clear(), s.lanes[2].tokens.clear(); }));
  SubmissionCheck none(shape());
  refuses(none, verification(), "no graph for verify (5)");
  refuses(check, with([](Submission& s) { s.lanes[0].tokens.assign(5, 1); }),
          "lane of slot 0: expected at most 4 proposals, found 5");
  refuses(check, with([](Submission& s) { s.lanes[0].tokens[1] = 300; }), "slot 0: proposed id 300");
  refuses(check, with([](Submission& s) { s.lanes[2].tokens[3] = -1; }), "slot 3: proposed id -1");
  refuses(check, with([](Submission& s) { s.lanes[1] = {SlotIndex(2), Epoch(1), LaneRole::kPrefill, 0, true, {1}}; }),
          "a prefill lane in a verify");
  refuses(check, with([](Submission& s) { s.lanes[1].start = 0; }), "start -1 and samples");
  refuses(check, with([](Submission& s) { s.lanes[0].samples = false; }), "start -1 and samples");
  refuses(check, with([](Submission& s) { s.operation = Operation::kDecode; }), "a decode lane has no tokens");

  refuses(check, verification({.repetition_penalty = 1.1f}),
          "expected no proposals for a slot with penalties, found 2");
  refuses(check, verification({.frequency_penalty = 1.0f}), "slot with penalties");
  refuses(check, verification({.presence_penalty = -1.0f}), "slot with penalties");
  Submission masked = verification({.masks = true});
  masked.lanes[0].mask.assign(10, ~0u);
  refuses(check, masked, "expected no proposals for a slot with masks, found 2");
  masked.lanes[0].tokens.clear();
  accepts(masked);  // and it is the slot's from now on
  const Submission later = with([](Submission& s) { s.admissions.clear(), s.lanes[0].mask.assign(10, ~0u); });
  refuses(check, later, "slot with masks");
  accepts(verification());  // another tenant

  // 128 proposals together, whatever slots and N allow.
  speculative.slot_capacity = 100, speculative.num_speculative_tokens = 15, speculative.token_capacity = 16;
  SubmissionCheck wide(speculative);
  Submission s{.sequence = Sequence(1), .frame = FrameIndex(0), .operation = Operation::kVerify};
  s.logprob_requested.assign(100, 0), s.logprob_token_id_counts.assign(100, 0);
  for (int slot = 0; slot < 100; ++slot) s.lanes.push_back({.slot = SlotIndex(slot), .epoch = Epoch(1)});
  for (size_t i = 0; i < 8; ++i) s.lanes[i].tokens.assign(15, 1);
  s.lanes[8].tokens.assign(8, 1);
  EXPECT_TRUE(wide.check(s).ok()) << wide.check(s).error().message;
  s.lanes[9].tokens = {1};
  refuses(wide, s, "expected at most 228 rows in a verify");
  s.lanes.erase(s.lanes.begin() + 50);
  EXPECT_TRUE(wide.check(s).ok()) << wide.check(s).error().message;
}

TEST(SubmissionCheck, CopiesStayWithinTheHostTierAndOnlyWhatItWasGivenComesBack) {
  SubmissionCheck check(shape());
  const auto with = [](std::vector<BlockCopy> out, std::vector<BlockCopy> in) {
    Submission s = good();
    s.blocks_out = std::move(out);
    s.blocks_in = std::move(in);
    return s;
  };
  const auto refuses = [&](const Submission& s, const std::string& part) {
    const Status status = check.check(s);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  const auto accepts = [&](const Submission& s) {
    const Status status = check.check(s);
    EXPECT_TRUE(status.ok()) << status.error().message;
  };
  refuses(with({{10, 0}}, {}), "blocks_out: block 10 is outside the cache's 10");
  refuses(with({{-1, 0}}, {}), "blocks_out: block -1");
  refuses(with({{0, 6}}, {}), "blocks_out: host block 6 is outside the host tier's 6");
  refuses(with({{0, -1}}, {}), "blocks_out: host block -1");
  refuses(with({{0, 1}, {0, 2}}, {}), "blocks_out: block 0 twice");
  refuses(with({{0, 1}, {2, 1}}, {}), "blocks_out: host block 1 twice");
  refuses(with({}, {{3, 0}}), "blocks_in: host block 0 was never filled");
  refuses(with({{0, 5}}, {{3, 5}}), "blocks_in: host block 5 was never filled");
  Submission refused = with({{0, 5}}, {});
  refused.lanes.clear();
  EXPECT_FALSE(check.check(refused).ok());
  refuses(with({}, {{3, 5}}), "never filled");  // a refused submission has filled nothing
  accepts(with({{0, 5}, {9, 0}}, {}));
  accepts(with({{3, 1}}, {{3, 5}, {0, 5}, {1, 0}}));
  refuses(with({{4, 5}}, {{3, 5}}), "blocks_in: host block 5 is overwritten by this submission");
  refuses(with({}, {{3, 5}, {3, 0}}), "blocks_in: block 3 twice");
  refuses(with({}, {{10, 5}}), "blocks_in: block 10");
  refuses(with({}, {{3, 6}}), "blocks_in: host block 6");

  CoreShape without = shape();
  without.host_num_blocks = 0;
  SubmissionCheck none(without);
  EXPECT_TRUE(none.check(good()).ok());
  EXPECT_FALSE(none.check(with({{0, 0}}, {})).ok());
  EXPECT_FALSE(none.check(with({}, {{0, 0}})).ok());
}

TEST(SubmissionCheck, AMaskedSlotsSamplingLanesBringWholeMasksAndNoOthersDo) {
  SubmissionCheck check(shape());
  const auto says = [&](Submission s, auto change, const std::string& part) {
    change(s);
    const Status status = check.check(s);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  const auto admitted = [] {
    Submission s = good();
    s.admissions[0].sampling.allowed_ids.clear();
    s.admissions[0].sampling.masks = true;
    s.lanes[0].mask.assign(10, ~0u);
    return s;
  };
  says(
      good(), [](Submission& s) { s.lanes[1].mask.assign(10, 0); }, "slot 2: mask: expected none, since its admission");
  says(
      admitted(), [](Submission& s) { s.lanes[0].mask.clear(); }, "slot 0: mask: expected 10 words, found 0");
  Submission later = good();
  later.admissions.clear();
  EXPECT_TRUE(check.check(later).ok()) << "a refused admission announced nothing";
  EXPECT_TRUE(check.check(admitted()).ok());
  says(
      later, [](Submission&) {}, "slot 0: mask: expected 10 words, found 0");
  says(
      later, [](Submission& s) { s.lanes[0].mask.assign(11, 0); }, "expected 10 words, found 11");
  says(
      later, [](Submission& s) { s.lanes[0].samples = false, s.lanes[0].mask.assign(10, 0); }, "samples nothing");
  later.lanes[0].samples = false;
  later.logprob_requested[0] = 0;
  EXPECT_TRUE(check.check(later).ok()) << "a part of a prompt needs none";
  says(
      admitted(), [](Submission& s) { s.admissions[0].sampling.allowed_ids = {1}; }, "none beside masks");
}

struct Fault {
  const char* name;
  const char* says;  // part of the message
  std::function<void(Submission&)> make;
};
void PrintTo(const Fault& f, std::ostream* out) { *out << f.name; }

class SubmissionFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(SubmissionFaults, AreRefusedByName) {
  SubmissionCheck check(shape());
  Submission s = good();
  GetParam().make(s);
  const Status status = check.check(s);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
  EXPECT_NE(status.error().message.find(GetParam().says), std::string::npos) << status.error().message;
  EXPECT_TRUE(check.check(good()).ok()) << "a refusal leaves no trace";
}

using testing::kNan;

INSTANTIATE_TEST_SUITE_P(
    Each, SubmissionFaults,
    ::testing::Values(
        Fault{"frame", "frame", [](Submission& s) { s.frame = FrameIndex(2); }},
        Fault{"negative frame", "frame", [](Submission& s) { s.frame = FrameIndex(-1); }},
        Fault{"operation", "no graph for verify", [](Submission& s) { s.operation = Operation::kVerify; }},
        Fault{"unknown operation", "operation", [](Submission& s) { s.operation = static_cast<Operation>(99); }},
        Fault{"admission slot", "slot 4", [](Submission& s) { s.admissions[0].slot = SlotIndex(4); }},
        Fault{"admission twice", "slot 0 twice", [](Submission& s) { s.admissions.push_back(s.admissions[0]); }},
        Fault{"epoch 0", "epoch 0", [](Submission& s) { s.admissions[0].epoch = Epoch(0); }},
        Fault{"temperature", "temperature", [](Submission& s) { s.admissions[0].sampling.temperature = kNan; }},
        Fault{"infinite temperature", "temperature",
              [](Submission& s) { s.admissions[0].sampling.temperature = INFINITY; }},
        Fault{"top_p", "top_p", [](Submission& s) { s.admissions[0].sampling.top_p = 0.0f; }},
        Fault{"top_p nan", "top_p", [](Submission& s) { s.admissions[0].sampling.top_p = kNan; }},
        Fault{"min_p", "min_p", [](Submission& s) { s.admissions[0].sampling.min_p = 1.5f; }},
        Fault{"top_k", "top_k", [](Submission& s) { s.admissions[0].sampling.top_k = -1; }},
        Fault{"generated", "generated", [](Submission& s) { s.admissions[0].generated = 1000000; }},
        Fault{"a negative generated", "generated", [](Submission& s) { s.admissions[0].generated = -1; }},
        Fault{"max_tokens", "max_tokens", [](Submission& s) { s.admissions[0].sampling.max_tokens = -1; }},
        Fault{"min_tokens", "min_tokens", [](Submission& s) { s.admissions[0].sampling.min_tokens = -1; }},
        Fault{"eos", "eos_id", [](Submission& s) { s.admissions[0].sampling.eos_id = 300; }},
        Fault{"stop id", "stop id 300", [](Submission& s) { s.admissions[0].sampling.stop_ids = {300}; }},
        Fault{"stop ids", "stop_ids", [](Submission& s) { s.admissions[0].sampling.stop_ids.assign(65, 1); }},
        Fault{"biased id", "biased id 300", [](Submission& s) { s.admissions[0].sampling.logit_bias[1].id = 300; }},
        Fault{"biased id twice", "biased id 5 twice",
              [](Submission& s) { s.admissions[0].sampling.logit_bias[1].id = 5; }},
        Fault{"bias", "logit_bias of id 5", [](Submission& s) { s.admissions[0].sampling.logit_bias[0].bias = kNan; }},
        Fault{"biases", "at most 1024", [](Submission& s) { s.admissions[0].sampling.logit_bias.resize(1025); }},
        Fault{"allowed id", "allowed id -1", [](Submission& s) { s.admissions[0].sampling.allowed_ids[0] = -1; }},
        Fault{"repetition penalty", "repetition_penalty",
              [](Submission& s) { s.admissions[0].sampling.repetition_penalty = 0.0f; }},
        Fault{"infinite repetition penalty", "repetition_penalty",
              [](Submission& s) { s.admissions[0].sampling.repetition_penalty = INFINITY; }},
        Fault{"frequency penalty", "frequency_penalty",
              [](Submission& s) { s.admissions[0].sampling.frequency_penalty = kNan; }},
        Fault{"presence penalty", "presence_penalty",
              [](Submission& s) { s.admissions[0].sampling.presence_penalty = -2.5f; }},
        Fault{"prompt id", "prompt id 300", [](Submission& s) { s.admissions[0].sampling.prompt_ids[1] = 300; }},
        Fault{"output id", "output id -2", [](Submission& s) { s.admissions[0].sampling.output_counts[0].id = -2; }},
        Fault{"output count", "count >= 1", [](Submission& s) { s.admissions[0].sampling.output_counts[0].count = 0; }},
        Fault{"output counts", "context of 100",
              [](Submission& s) { s.admissions[0].sampling.output_counts.assign(2, {7, INT32_MAX}); }},
        Fault{"block slot", "block update", [](Submission& s) { s.block_updates[0].slot = SlotIndex(-1); }},
        Fault{"block first", "outside a table", [](Submission& s) { s.block_updates[0].first = -1; }},
        Fault{"block end", "outside a table", [](Submission& s) { s.block_updates[0].first = 1; }},
        Fault{"block first overflow", "outside a table", [](Submission& s) { s.block_updates[0].first = INT32_MAX; }},
        Fault{"block", "block 10", [](Submission& s) { s.block_updates[0].blocks[1] = 10; }},
        Fault{"negative block", "block -1", [](Submission& s) { s.block_updates[0].blocks[1] = -1; }},
        Fault{"block entry twice", "entry 0 twice",
              [](Submission& s) { s.block_updates.assign(2, s.block_updates[0]); }},
        Fault{"lane slot", "slot 4", [](Submission& s) { s.lanes[1].slot = SlotIndex(4); }},
        Fault{"lane twice", "slot 0 twice", [](Submission& s) { s.lanes[1] = s.lanes[0]; }},
        Fault{"no lanes", "lanes", [](Submission& s) { s.lanes.clear(); }},
        Fault{"role", "role", [](Submission& s) { s.lanes[0].role = static_cast<LaneRole>(7); }},
        Fault{"decode in prefill", "decode lane in a prefill",
              [](Submission& s) { s.operation = Operation::kPrefill; }},
        Fault{"prefill in decode", "prefill lane in a decode", [](Submission& s) { s.operation = Operation::kDecode; }},
        Fault{"lanes in admission", "lanes", [](Submission& s) { s.operation = Operation::kAdmission; }},
        Fault{"decode with tokens", "decode lane has no tokens", [](Submission& s) { s.lanes[1].tokens = {1}; }},
        Fault{"decode with start", "decode lane has no tokens", [](Submission& s) { s.lanes[1].start = 0; }},
        Fault{"prefill without tokens", "without tokens", [](Submission& s) { s.lanes[0].tokens.clear(); }},
        Fault{"negative start", "outside the context", [](Submission& s) { s.lanes[0].start = -1; }},
        Fault{"past the context", "outside the context", [](Submission& s) { s.lanes[0].start = 98; }},
        Fault{"start overflow", "outside the context", [](Submission& s) { s.lanes[0].start = INT32_MAX; }},
        Fault{"token", "token id 300", [](Submission& s) { s.lanes[0].tokens[1] = 300; }},
        Fault{"negative token", "token id -1", [](Submission& s) { s.lanes[0].tokens[1] = -1; }},
        Fault{"too many tokens", "at most 16", [](Submission& s) { s.lanes[0].tokens.assign(17, 1); }},
        Fault{"short flags", "logprob_requested", [](Submission& s) { s.logprob_requested.pop_back(); }},
        Fault{"no flags", "logprob_requested", [](Submission& s) { s.logprob_requested.clear(); }},
        Fault{"flag without lane", "slot 1 has no lane", [](Submission& s) { s.logprob_requested[1] = 1; }},
        Fault{"long counts", "logprob_token_id_counts", [](Submission& s) { s.logprob_token_id_counts.push_back(0); }},
        Fault{"count without flag", "did not ask", [](Submission& s) { s.logprob_requested[2] = 0; }},
        Fault{"count without ids", "no ids", [](Submission& s) { s.logprob_token_ids.clear(); }},
        Fault{"count differs", "the count is 3", [](Submission& s) { s.logprob_token_id_counts[2] = 3; }},
        Fault{"ids without count", "the count is 0", [](Submission& s) { s.logprob_token_id_counts[2] = 0; }},
        Fault{"ids slot", "slot -2", [](Submission& s) { s.logprob_token_ids[0].slot = SlotIndex(-2); }},
        Fault{"ids twice", "slot 2 twice",
              [](Submission& s) { s.logprob_token_ids.push_back(s.logprob_token_ids[0]); }},
        Fault{"too many ids", "1 to 128", [](Submission& s) { s.logprob_token_ids[0].ids.assign(129, 1); }},
        Fault{"empty ids", "1 to 128", [](Submission& s) { s.logprob_token_ids[0].ids.clear(); }},
        Fault{"repeated id", "id 8 twice", [](Submission& s) { s.logprob_token_ids[0].ids = {8, 8}; }},
        Fault{"id outside", "id 300", [](Submission& s) { s.logprob_token_ids[0].ids = {8, 300}; }},
        Fault{"negative id", "id -1", [](Submission& s) {
                s.logprob_token_ids[0].ids = {8, -1};
              }}));

}  // namespace
}  // namespace helios
