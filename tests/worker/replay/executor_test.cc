// The executor's promises one by one, through submissions: records, epochs, limits, flags, read-back.
#include "worker/replay/executor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/count_allocations.h"
#include "tests/worker/replay/executor_fixture.h"

namespace helios::testing {
namespace {

TEST_F(ExecutorTest, RecordsHoldWhatTheAbiSays) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  const Completion c = hand.start(2, 7, {5, 6, 9});
  EXPECT_EQ(c.records.size(), 16u + 8u);
  EXPECT_EQ(word(c, record_word::kAbi), 6);
  EXPECT_EQ(word(c, record_word::kSlot), 2);
  EXPECT_EQ(word(c, record_word::kEpoch), 7);
  EXPECT_EQ(word(c, record_word::kOperation), 2);
  EXPECT_EQ(word(c, record_word::kSequence), 1);
  EXPECT_EQ(emitted(c), 1);
  EXPECT_EQ(finish(c), FinishCode::kNone);
  EXPECT_EQ(word(c, record_word::kKvLength), 3);
  for (const int zero : {7, 8, 10, 11, 12, 13, 14, 15}) EXPECT_EQ(word(c, zero), 0) << "word " << zero;
  for (int t = 1; t < 8; ++t) EXPECT_EQ(word(c, record_word::kTokens + t), 0);
  EXPECT_EQ(word(hand.step(2, 7), record_word::kKvLength), 4);
}

TEST_F(ExecutorTest, RecordsComeInLaneOrderAndAPartOfAPromptEmitsNothing) {
  TestCluster cluster(config(), 1);
  Hand hand(cluster);
  Submission s = hand.blank(Operation::kPrefill);
  for (const int slot : {3, 0}) Hand::admit(s, slot, 1);
  Hand::prefill(s, 3, 1, {1, 2, 3});
  Hand::prefill(s, 0, 1, {4, 5}, 0, false);
  const Completion c = hand.run(s);
  EXPECT_EQ(word(c, record_word::kSlot, 0), 3);
  EXPECT_EQ(emitted(c, 0), 1);
  EXPECT_EQ(word(c, record_word::kSlot, 1), 0);
  EXPECT_EQ(emitted(c, 1), 0);
  EXPECT_EQ(word(c, record_word::kKvLength, 1), 2);
}

// R19: an admission alone writes records only.
TEST_F(ExecutorTest, AnAdmissionEmitsNothingAndReducesNothing) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  Submission s = hand.blank(Operation::kAdmission);
  Hand::admit(s, 1, 4);
  const Completion c = hand.run(s);
  EXPECT_TRUE(c.records.empty());
  EXPECT_TRUE(c.payloads.empty());
  EXPECT_EQ(cluster.counter(0, "helios_logprob_positions_total"), 0);
  // The slot is admitted all the same.
  Submission p = hand.blank(Operation::kPrefill);
  Hand::prefill(p, 1, 4, {8, 9});
  EXPECT_EQ(emitted(hand.run(p)), 1);
}

// R15: what a former tenant's lane would produce is not produced.
TEST_F(ExecutorTest, ALaneOfAFormerTenantEmitsNothingAndDisturbsNobody) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  hand.start(0, 1, {5, 6, 7});
  const TokenId alone_next = token(hand.step(0, 1));
  hand.start(1, 2, {9, 9});
  hand.start(0, 3, {5, 6, 7});  // slot 0 has a new tenant
  Submission s = hand.blank(Operation::kDecode);
  Hand::decode(s, 1, 2);
  Hand::decode(s, 0, 1);  // stale
  Hand::ask(s, 0);
  const Completion c = hand.run(s);
  EXPECT_EQ(emitted(c, 0), 1);
  EXPECT_EQ(emitted(c, 1), 0);
  EXPECT_EQ(word(c, record_word::kEpoch, 1), 1) << "the record answers the lane, not the tenant";
  EXPECT_TRUE(c.payloads.empty());
  // The tenant goes on as if nothing had been.
  const Completion next = hand.step(0, 3);
  EXPECT_EQ(token(next), alone_next);
  EXPECT_EQ(word(next, record_word::kKvLength), 4);
}

TEST_F(ExecutorTest, AFinishedSlotEmitsNothingMore) {
  TestCluster cluster(config(), 1);
  Hand hand(cluster);
  const Completion c = hand.start(0, 1, {5, 6}, greedy(1));
  EXPECT_EQ(finish(c), FinishCode::kTokenLimit);
  const Completion late = hand.step(0, 1);
  EXPECT_EQ(emitted(late), 0);
  EXPECT_EQ(finish(late), FinishCode::kNone);
}

TEST_F(ExecutorTest, EosStopIdsLimitsAndSilentEosFinishAsTheyShould) {
  TestCluster cluster(config(), 1);
  Hand hand(cluster);
  std::vector<TokenId> run;
  run.push_back(token(hand.start(0, 1, {5, 6})));
  for (int i = 0; i < 3; ++i) run.push_back(token(hand.step(0, 1)));
  const TokenId third = run[2];
  ASSERT_NE(third, run[0]);
  ASSERT_NE(third, run[1]);

  const auto until_finish = [&](uint32_t epoch, SamplingParams sampling, std::vector<TokenId>* tokens) {
    Completion c = hand.start(0, epoch, {5, 6}, std::move(sampling));
    tokens->push_back(token(c));
    while (finish(c) == FinishCode::kNone) {
      c = hand.step(0, epoch);
      EXPECT_EQ(emitted(c), 1);
      tokens->push_back(token(c));
    }
    return c;
  };
  SamplingParams sampling = greedy(4);
  sampling.eos_id = third;
  std::vector<TokenId> tokens;
  EXPECT_EQ(finish(until_finish(2, sampling, &tokens)), FinishCode::kEos);
  EXPECT_EQ(tokens, std::vector<TokenId>(run.begin(), run.begin() + 3)) << "the record emits the EOS itself";

  sampling.ignore_eos = true;
  Completion c = hand.start(0, 3, {5, 6}, sampling);
  hand.step(0, 3);
  c = hand.step(0, 3);
  EXPECT_EQ(word(c, record_word::kFlags), kRecordFlagSilentEos);
  EXPECT_EQ(finish(c), FinishCode::kNone);
  EXPECT_EQ(finish(hand.step(0, 3)), FinishCode::kTokenLimit);

  sampling = greedy(4);
  sampling.stop_ids = {299, third};
  tokens.clear();
  EXPECT_EQ(finish(until_finish(4, sampling, &tokens)), FinishCode::kStopId);
  EXPECT_EQ(tokens.size(), 3u);
}

TEST_F(ExecutorTest, TheContextEndsAtItsLastPosition) {
  CoreConfig short_context = config();
  short_context.max_model_len = 40;
  TestCluster cluster(short_context, 1);
  TestDriver driver(cluster);
  std::vector<TestSequence> one{{.prompt = std::vector<TokenId>(37, 11), .sampling = greedy(100)}};
  driver.run(one, 16);
  EXPECT_EQ(one[0].finish, FinishCode::kContextLimit);
  EXPECT_EQ(one[0].tokens.size(), 3u) << "prompt and output together fill max_model_len";
}

TEST_F(ExecutorTest, MinTokensKeepsStopsAwayAndReportsUntouchedLogprobs) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  const TokenId best = token(hand.start(0, 1, {5, 6}));
  SamplingParams sampling = greedy(8);
  sampling.eos_id = best;
  sampling.min_tokens = 1;
  Submission s = hand.blank(Operation::kPrefill);
  for (int slot = 0; slot < 4; ++slot) {  // filtered rows beside a free one
    Hand::admit(s, slot, 10, slot == 2 ? greedy(8) : sampling);
    Hand::prefill(s, slot, 10, {5, 6});
    Hand::ask(s, slot);
  }
  const Completion c = hand.run(s);
  EXPECT_EQ(token(c, 2), best);
  ASSERT_EQ(c.payloads.size(), 4u);
  for (const size_t lane : {0u, 1u, 3u}) {
    EXPECT_NE(token(c, lane), best);
    // R2: the best alternative is still the forbidden token, and its value is that of the free row.
    EXPECT_EQ(c.payloads[lane].words[kFirstAlternative], best);
    EXPECT_EQ(c.payloads[lane].words[kFirstAlternative + 1], c.payloads[2].words[kFirstAlternative + 1]);
    EXPECT_EQ(c.payloads[lane].words[kFirstAlternative + 2], token(c, lane)) << "greedy takes the next best";
  }
}

// R2: what a lane may say changes from step to step with the words that it brings; what is reported does not.
TEST_F(ExecutorTest, ALanesMaskHoldsForItsStepAndReportsUntouchedLogprobs) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  const auto only = [](TokenId id) {
    std::vector<uint32_t> words((kTinyVocab + 31) / 32);
    words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    return words;
  };
  SamplingParams masked = greedy(8);
  masked.masks = true;
  Submission s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 1, 1, masked);
  Hand::prefill(s, 1, 1, {5, 6});
  s.lanes[0].mask = only(299);
  Hand::admit(s, 2, 1);
  Hand::prefill(s, 2, 1, {5, 6});
  for (const int slot : {1, 2}) Hand::ask(s, slot);
  Completion c = hand.run(s);
  EXPECT_EQ(token(c), 299);
  ASSERT_EQ(c.payloads.size(), 2u);
  EXPECT_TRUE(std::equal(c.payloads[0].words.begin() + kFirstAlternative, c.payloads[0].words.end(),
                         c.payloads[1].words.begin() + kFirstAlternative));
  for (const TokenId id : {0, 150, 7}) {
    s = hand.blank(Operation::kDecode);
    Hand::decode(s, 1, 1);
    s.lanes[0].mask = only(id);
    EXPECT_EQ(token(hand.run(s)), id);
  }
  // Four lanes brought a mask; ranks take the words that hold their own ids.
  EXPECT_LT(cluster.counter(0, "helios_mask_upload_words_total"), 4 * 10);
  EXPECT_GE(cluster.counter(0, "helios_mask_upload_words_total") + cluster.counter(1, "helios_mask_upload_words_total"),
            4 * 10);
  // A slot that is handed on is as free as its tenant asks.
  EXPECT_EQ(token(hand.start(1, 2, {5, 6})), token(c, 1));
  // Nothing allowed: that request ends, and its neighbour goes on.
  s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 1, 3, masked);
  Hand::prefill(s, 1, 3, {5, 6});
  s.lanes[0].mask.assign((kTinyVocab + 31) / 32, 0);
  c = hand.run(s);
  EXPECT_EQ(finish(c), FinishCode::kError);
  EXPECT_EQ(emitted(hand.step(2, 1)), 1);
}

// R11, R13: a slot's flag counts in its own submission only, and the payload names the ids that came with it.
TEST_F(ExecutorTest, FlagsAndIdsLastForOneSubmission) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  hand.start(0, 1, {5, 6});
  Submission s = hand.blank(Operation::kDecode);
  Hand::decode(s, 0, 1);
  Hand::ask(s, 0, {250, 3, 77});
  Completion c = hand.run(s);
  ASSERT_EQ(c.payloads.size(), 1u);
  EXPECT_EQ(c.payloads[0].slot, SlotIndex(0));
  EXPECT_EQ(c.payloads[0].words[kFirstAlternative], 250);
  EXPECT_EQ(c.payloads[0].words[kFirstAlternative + 2], 3);
  EXPECT_EQ(c.payloads[0].words[kFirstAlternative + 4], 77);
  s = hand.blank(Operation::kDecode);
  Hand::decode(s, 0, 1);
  Hand::ask(s, 0);
  c = hand.run(s);
  ASSERT_EQ(c.payloads.size(), 1u);
  EXPECT_EQ(c.payloads[0].words[kFirstAlternative], c.payloads[0].words[kChosenId])
      << "natural again: greedy's best is itself";
  c = hand.step(0, 1);
  EXPECT_TRUE(c.payloads.empty());
}

// R24, R26: nobody asked, so nothing is read, exchanged or copied.
TEST_F(ExecutorTest, WithoutAFlagNothingIsReadNorCopied) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  const Completion first = hand.start(0, 1, {5, 6});
  EXPECT_EQ(first.width, 0);
  EXPECT_EQ(cluster.counter(0, "helios_logprob_vocab_words_read_total"), 0);
  EXPECT_EQ(cluster.counter(0, "helios_logprob_exchange_words_total"), 0);
  EXPECT_EQ(cluster.counter(0, "helios_logprob_payload_copies_total"), 0);
  Submission s = hand.blank(Operation::kDecode);
  Hand::decode(s, 0, 1);
  Hand::ask(s, 0);
  const Completion c = hand.run(s);
  EXPECT_EQ(c.width, 20);
  EXPECT_EQ(c.bytes_copied - first.bytes_copied, 42 * 4) << "one position of one slot, W = 20";
  EXPECT_EQ(cluster.counter(0, "helios_logprob_positions_total"), 1);
  EXPECT_GT(cluster.counter(0, "helios_logprob_vocab_words_read_total"), 0);
  EXPECT_EQ(cluster.counter(0, "helios_logprob_exchange_words_total"), 512) << "two exchanges of 256 words (R22)";
  EXPECT_EQ(cluster.counter(0, "helios_logprob_payload_copies_total"), 1);
  EXPECT_EQ(cluster.counter(1, "helios_logprob_payload_copies_total"), 0) << "only the coordinating rank copies (R28)";
}

// R26: W is the larger of K and the frame's largest selected count; a chunk that does not sample copies nothing.
TEST_F(ExecutorTest, TheCopysWidthFollowsTheLargestSelection) {
  TestCluster cluster(config(), 1);
  Hand hand(cluster);
  Submission s = hand.blank(Operation::kPrefill);
  std::vector<TokenId> many;
  for (TokenId id = 0; id < 100; ++id) many.push_back(id);
  for (const int slot : {0, 1, 3}) Hand::admit(s, slot, 1);
  Hand::prefill(s, 0, 1, {5});
  Hand::prefill(s, 1, 1, {6});
  Hand::prefill(s, 3, 1, {7}, 0, false);
  Hand::ask(s, 0, many);
  Hand::ask(s, 1);
  Hand::ask(s, 3);
  const Completion c = hand.run(s);
  EXPECT_EQ(c.width, 100);
  ASSERT_EQ(c.payloads.size(), 2u);
  EXPECT_EQ(c.payloads[0].words.size(), 202u);
  EXPECT_EQ(c.payloads[1].words.size(), 202u);
  EXPECT_EQ(c.payloads[0].words[kFirstAlternative + 2 * 99], 99);
}

// R23: after preparation a step allocates nothing, on any rank's thread. collect() builds the Completion it returns.
TEST_F(ExecutorTest, AStepAllocatesNothing) {
#if defined(HELIOS_EMULATED_DEVICE)
  GTEST_SKIP() << "the emulator allocates where a GPU would not";
#endif
  for (const int world : {1, 2}) {
    CoreConfig two_threads = config();
    two_threads.num_threads = 2;
    TestCluster cluster(two_threads, world);
    Hand hand(cluster);
    hand.start(0, 1, {5, 6, 7}, {.temperature = 0.8f, .top_p = 0.9f, .top_k = 40, .seed = 3, .max_tokens = 100});
    hand.start(1, 1, {5, 6, 7, 8}, greedy(100));
    hand.start(2, 1, {5}, greedy(100));
    const auto make = [&](Operation operation) {
      Submission s = hand.blank(operation);
      Hand::decode(s, 0, 1);
      Hand::decode(s, 1, 1);
      if (operation == Operation::kMixed) Hand::prefill(s, 3, 9, {4, 5, 6}, 0);
      if (operation == Operation::kMixed) Hand::admit(s, 3, 9, greedy(100));
      if (operation == Operation::kMixed) Hand::ask(s, 3);
      Hand::ask(s, 0);
      Hand::ask(s, 1, {1, 2, 3});
      return s;
    };
    // Twice for each frame: the in-process exchange of the test grows its vectors the first time.
    for (int i = 0; i < 4; ++i) hand.run(make(i % 2 ? Operation::kDecode : Operation::kMixed));
    for (int i = 0; i < 4; ++i) {
      const Operation operation = i % 2 ? Operation::kDecode : Operation::kMixed;
      const Submission s = make(operation);
      const int64_t start = count_allocations();
      for (int r = 0; r < world; ++r) (void)cluster.rank(r).submit(s);
      for (int r = 0; r < world; ++r) {
        while (!cluster.rank(r).collectable()) std::this_thread::yield();
      }
      const int64_t allocated = count_allocations() - start;
      EXPECT_EQ(allocated, 0) << to_string(operation) << " at TP " << world;
      cluster.collect();
    }
  }
}

// R20: one forward pass over both roles gives each slot the record and the payload that its role alone would give it.
TEST_F(ExecutorTest, R20_AMixedStepGivesEachRoleWhatItWouldGetAlone) {
  for (const int world : {1, 2}) {
    TestCluster cluster(config(), world);
    Hand hand(cluster);
    const auto asked = [&](Operation operation, bool decodes, bool prefills, uint32_t epoch) {
      if (decodes) {
        hand.start(2, epoch, {5, 6, 7});
        hand.start(0, epoch, {9, 10});
      }
      Submission s = hand.blank(operation);
      if (decodes) Hand::decode(s, 2, epoch), Hand::ask(s, 2);
      if (prefills) {
        Hand::admit(s, 3, epoch), Hand::admit(s, 1, epoch);
        Hand::prefill(s, 3, epoch, {11, 12, 13}), Hand::ask(s, 3, {7, 250, 8});
        Hand::prefill(s, 1, epoch, {14}), Hand::ask(s, 1);
      }
      if (decodes) Hand::decode(s, 0, epoch);  // asks for nothing
      return hand.run(s);
    };
    const Completion decode = asked(Operation::kDecode, true, false, 1);
    const Completion prefill = asked(Operation::kPrefill, false, true, 2);
    const double merged = cluster.counter(0, "helios_merged_records_total");
    EXPECT_EQ(merged, 0) << "graphs of one role write their frame";
    const Completion mixed = asked(Operation::kMixed, true, true, 3);
    EXPECT_EQ(cluster.counter(0, "helios_merged_records_total"), 4);
    EXPECT_EQ(cluster.counter(0, "helios_merged_positions_total"), 3);
    const std::pair<const Completion*, size_t> alone[] = {{&decode, 0}, {&prefill, 0}, {&prefill, 1}, {&decode, 1}};
    for (size_t lane = 0; lane < 4; ++lane) {
      const auto& [completion, number] = alone[lane];
      EXPECT_EQ(word(mixed, record_word::kSlot, lane), word(*completion, record_word::kSlot, number));
      EXPECT_EQ(word(mixed, record_word::kEpoch, lane), 3);
      EXPECT_EQ(word(mixed, record_word::kOperation, lane), 4);
      EXPECT_EQ(token(mixed, lane), token(*completion, number));
      EXPECT_EQ(word(mixed, record_word::kKvLength, lane), word(*completion, record_word::kKvLength, number));
    }
    ASSERT_EQ(mixed.payloads.size(), 3u);
    ASSERT_EQ(prefill.payloads.size(), 2u);
    const CompletionPayload expected[] = {decode.payloads.at(0), prefill.payloads[0], prefill.payloads[1]};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(mixed.payloads[i].slot, expected[i].slot);
      const size_t own = i == 1 ? 2 + 2 * 3 : 42;  // what lies behind a slot's own pairs is nobody's
      for (size_t w = 0; w < own; ++w) EXPECT_EQ(mixed.payloads[i].words[w], expected[i].words[w]) << i << " " << w;
    }
  }
}

// A frame is one half: what the other frame holds stays until its own submission (R20, R25).
TEST_F(ExecutorTest, AFrameInFlightIsNotTakenTwice) {
  TestCluster cluster(config(), 1);
  Hand hand(cluster);
  Submission s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 0, 1);
  Hand::prefill(s, 0, 1, {5, 6});
  ASSERT_TRUE(cluster.submit(s).ok());
  Submission again = hand.blank(Operation::kDecode);
  Hand::decode(again, 0, 1);
  again.frame = s.frame;
  const Status status = cluster.submit(again);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("still in flight"), std::string::npos);
  again.frame = FrameIndex(1 - s.frame.value);
  ASSERT_TRUE(cluster.submit(again).ok()) << "two frames may be in flight";
  const Completion first = cluster.collect(), second = cluster.collect();
  EXPECT_EQ(first.sequence, s.sequence);
  EXPECT_EQ(second.sequence, again.sequence);
  EXPECT_EQ(word(second, record_word::kKvLength), 3) << "planned before the first token was known";
  EXPECT_THROW(cluster.rank(0).collect(), std::logic_error);
}

TEST_F(ExecutorTest, ALaneWithoutItsPastEndsInErrorAndOthersGoOn) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  hand.start(0, 1, {5, 6});
  const TokenId expected = token(hand.step(0, 1));
  hand.start(0, 2, {5, 6});
  Submission s = hand.blank(Operation::kMixed);
  Hand::decode(s, 0, 2);
  Hand::admit(s, 1, 2);
  Hand::decode(s, 1, 2);  // admitted, never prefilled
  Hand::admit(s, 2, 2);
  s.block_updates.back().blocks.resize(1);
  Hand::prefill(s, 2, 2, {1, 2, 3}, 30);  // runs into its second block, which it does not have
  Hand::ask(s, 1);
  Completion c = hand.run(s);
  EXPECT_EQ(token(c, 0), expected);
  EXPECT_EQ(finish(c, 0), FinishCode::kNone);
  for (const size_t lane : {1u, 2u}) {
    EXPECT_EQ(finish(c, lane), FinishCode::kError);
    EXPECT_EQ(emitted(c, lane), 0);
  }
  EXPECT_TRUE(c.payloads.empty());
  // A gap in the prompt.
  s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 3, 2);
  Hand::prefill(s, 3, 2, {1, 2}, 0, false);
  hand.run(s);
  s = hand.blank(Operation::kPrefill);
  Hand::prefill(s, 3, 2, {1, 2}, 5);
  EXPECT_EQ(finish(hand.run(s)), FinishCode::kError);
}

// A prefix that another sequence computed can be read from its blocks, with the same result to the bit (X1).
TEST_F(ExecutorTest, ASequenceCanBeginAfterAPrefixInSharedBlocks) {
  TestCluster cluster(config(), 2);
  Hand hand(cluster);
  std::vector<TokenId> prompt;
  for (TokenId id = 0; id < 64; ++id) prompt.push_back(id * 3 % 300);
  prompt.push_back(17);
  const auto chunk = [&](int begin, int end) {
    return std::vector<TokenId>(prompt.begin() + begin, prompt.begin() + end);
  };
  Submission s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 0, 1);
  Hand::prefill(s, 0, 1, chunk(0, 32), 0, false);
  hand.run(s);
  s = hand.blank(Operation::kPrefill);
  Hand::prefill(s, 0, 1, chunk(32, 64), 32, false);
  hand.run(s);
  s = hand.blank(Operation::kPrefill);
  Hand::prefill(s, 0, 1, chunk(64, 65), 64);
  Hand::ask(s, 0);
  const Completion whole = hand.run(s);
  s = hand.blank(Operation::kPrefill);
  Hand::admit(s, 1, 2);
  s.block_updates[0].blocks = {0, 1, 6, 7};  // the first two are slot 0's
  Hand::prefill(s, 1, 2, chunk(64, 65), 64);
  Hand::ask(s, 1);
  const Completion shared = hand.run(s);
  ASSERT_EQ(shared.payloads.size(), 1u);
  EXPECT_EQ(token(shared), token(whole));
  EXPECT_EQ(shared.payloads[0].words, whole.payloads.at(0).words);
}

}  // namespace
}  // namespace helios::testing
