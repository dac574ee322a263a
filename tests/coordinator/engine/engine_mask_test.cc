// Structured output through the engine: scripted ranks choose among what a lane's mask leaves, and each sequence's
// tokens are worked out again with a matcher of the test's own.
#include "coordinator/engine/engine.h"

#include <regex>

#include "coordinator/engine/token_mask.h"
#include "coordinator/grammar/grammar_vocabulary.h"
#include "tests/coordinator/engine/engine_fixture.h"

namespace helios {
namespace {

using testing::Client;

constexpr TokenId kEos = 99;

class EngineMaskTest : public testing::EngineFixture {
 protected:
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  /// Token i of 0 to 94 is the character 32 + i; 95 to 97 are "ab", "12" and "}}", 98 is no text.
  static std::string text_of(TokenId id) {
    if (id < 95) return std::string(1, static_cast<char>(32 + id));
    return id == 95 ? "ab" : id == 96 ? "12" : id == 97 ? "}}" : "";
  }
  static TokenId id_of(char c) { return c - 32; }
  static std::shared_ptr<const GrammarVocabulary> vocabulary() {
    std::vector<std::string> bytes;
    for (TokenId id = 0; id < 100; ++id) bytes.push_back(text_of(id));
    return GrammarVocabulary::make(bytes, {kEos}).value();
  }
  static Grammar regex(const std::string& source) {
    return CompiledGrammar::compile({GrammarKind::kRegex, source}, vocabulary()).value();
  }

  static SequenceRequest masked(SequenceRequest r, Grammar grammar) {
    r.grammar = std::move(grammar);
    r.sampling.eos_id = kEos;
    return r;
  }

  /// What must come of a masked request: the toy model's token, or the next one that is allowed.
  std::vector<TokenId> expected_masked(const SequenceRequest& r) const {
    GrammarMatcher matcher(r.grammar);
    uint64_t prefix = 0;
    for (const TokenId token : r.prompt) prefix = testing::toy_hash(prefix, token);
    std::vector<TokenId> out;
    std::vector<uint32_t> words(4);
    while (static_cast<int>(out.size()) < r.sampling.max_tokens && !matcher.is_stopped()) {
      EXPECT_TRUE(matcher.fill_mask(words).ok());
      TokenId token = testing::toy_token(prefix, r.sampling.seed, 100);
      while ((words[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) token = (token + 1) % 100;
      EXPECT_TRUE(matcher.accept(token));
      prefix = testing::toy_hash(prefix, token);
      out.push_back(token);
    }
    return out;
  }

  static std::string text(const Client::Outcome& outcome) {
    std::string out;
    for (const TokenEvent& event : outcome.tokens) out += text_of(event.token);
    return out;
  }

  /// Runs one; the error it ends with.
  Error error_of(const SequenceRequest& r) {
    Client client;
    EXPECT_TRUE(client.submit(*engine_, {r}).ok());
    const auto& outcome = client.wait()[0];
    EXPECT_TRUE(outcome.error.has_value()) << text(outcome);
    return outcome.error.value_or(Error{});
  }
};

TEST_F(EngineMaskTest, MaskedSequencesKeepToTheirGrammarsBesideOthersThatRunAhead) {
  core_.slot_capacity = 6;
  core_.kv_num_blocks = 18;
  start_ready();
  const char* const kSources[] = {"(ab|12)+x?", "[a-f]{3,9}", "\\{[a-z0-9]*\\}\\}", "no"};
  std::vector<Grammar> grammars;
  for (const char* source : kSources) grammars.push_back(regex(source));
  std::vector<SequenceRequest> requests;
  for (int i = 0; i < 60; ++i) {
    SequenceRequest r = request(1 + i * 7 % 24, 1 + i * 5 % 24, static_cast<uint64_t>(i % 20));
    r.logprobs = i % 3 == 0;
    r.num_logprobs = r.logprobs ? 4 : 0;
    requests.push_back(i % 2 ? r : masked(r, grammars[static_cast<size_t>(i) / 2 % 4]));
  }
  Client client;
  ASSERT_TRUE(client.submit(*engine_, requests).ok());
  const auto& outcomes = client.wait();
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    if (!requests[i].grammar) {
      expect_complete(requests[i], outcomes[i]);
      continue;
    }
    EXPECT_FALSE(outcomes[i].error.has_value()) << outcomes[i].error->message;
    EXPECT_EQ(ids(outcomes[i]), expected_masked(requests[i]));
    if (outcomes[i].tokens.back().finish != FinishCode::kEos) continue;
    EXPECT_TRUE(std::regex_match(text(outcomes[i]), std::regex(kSources[i / 2 % 4]))) << text(outcomes[i]);
  }
  expect_idle();
  engine_.reset();
  EXPECT_GT(observer_.preempted, 3) << "some were readmitted on their way";
  // A masked slot's next lane comes only after its token is known; others are planned two deep.
  int masks = 0;
  for (const Submission& s : ranks_[0]->submissions()) {
    for (const Lane& lane : s.lanes) masks += !lane.mask.empty();
  }
  EXPECT_GT(masks, 100);
  EXPECT_EQ(ranks_[0]->max_backlog(), 2);
}

// R4: the close that a budget forces has no logprobs; all else is as without a budget.
TEST_F(EngineMaskTest, ABudgetOfReasoningForcesItsClose) {
  start_ready();
  SequenceRequest free = request(3, 12);
  free.logprobs = true;
  SequenceRequest budgeted = free;
  const TokenId kNever = 98;
  const std::vector<TokenId> toy = expected_tokens(free);
  ASSERT_EQ(std::count(toy.begin(), toy.end(), kNever), 0);
  // The prompt ends inside reasoning: two tokens, then the close.
  budgeted.thinking = ThinkingBudget{.open = 97, .close = kNever, .tokens = 2, .in_reasoning = true};
  // Reasoning that begins with the third token, of which nothing is allowed.
  SequenceRequest later = free;
  later.thinking = ThinkingBudget{.open = toy[2], .close = kNever, .tokens = 0, .in_reasoning = false};
  // Reasoning that never begins, and one that closes itself in time.
  SequenceRequest never = free, closes = free;
  never.thinking = ThinkingBudget{.open = 97, .close = kNever, .tokens = 0, .in_reasoning = false};
  closes.thinking = ThinkingBudget{.open = 97, .close = toy[1], .tokens = 2, .in_reasoning = true};
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {free, budgeted, later, never, closes}).ok());
  const auto& outcomes = client.wait();
  for (const size_t i : {0, 3, 4}) EXPECT_EQ(ids(outcomes[i]), toy) << i;
  // What is opened again when the budget is used up is closed at once.
  const auto is_forced = [&](size_t i, size_t j) {
    if (i == 1 && j == 2) return true;
    const TokenId open = i == 1 && j > 2 ? 97 : i == 2 ? toy[2] : -1;
    return j > 0 && outcomes[i].tokens[j - 1].token == open;
  };
  for (size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_EQ(outcomes[i].tokens.size(), 12u);
    bool forced_before = false;
    for (size_t j = 0; j < 12; ++j) {
      const TokenEvent& event = outcomes[i].tokens[j];
      EXPECT_EQ(event.forced, is_forced(i, j)) << i << ", " << j;
      EXPECT_EQ(event.logprobs.has_value(), !event.forced);
      EXPECT_EQ(event.token == kNever, event.forced) << i << ", " << j;
      forced_before |= event.forced;
      EXPECT_TRUE(forced_before || event.token == toy[j]) << i << ", " << j;
    }
    EXPECT_EQ(forced_before, i == 1 || i == 2);
  }
}

TEST_F(EngineMaskTest, TheEndIsAllowedExactlyWhereTheTextMayEnd) {
  start_ready();
  SequenceRequest r = masked(request(3, 10), regex("no"));
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {r}).ok());
  EXPECT_EQ(ids(client.wait()[0]), (std::vector<TokenId>{id_of('n'), id_of('o'), kEos}));
  EXPECT_EQ(client.outcome(0).tokens.back().finish, FinishCode::kEos);

  // A stop id of the request ends a complete text too, and nothing earlier.
  r.sampling.stop_ids = {98};
  r.sampling.allowed_ids = {id_of('n'), id_of('o'), 98};
  Client stopped;
  ASSERT_TRUE(stopped.submit(*engine_, {r}).ok());
  EXPECT_EQ(ids(stopped.wait()[0]), (std::vector<TokenId>{id_of('n'), id_of('o'), 98}));
  EXPECT_EQ(stopped.outcome(0).tokens.back().finish, FinishCode::kStopId);

  // An EOS that is let pass is all that may follow.
  SequenceRequest on = masked(request(3, 5), regex("no"));
  on.sampling.ignore_eos = true;
  Client ignored;
  ASSERT_TRUE(ignored.submit(*engine_, {on}).ok());
  EXPECT_EQ(ids(ignored.wait()[0]), (std::vector<TokenId>{id_of('n'), id_of('o'), kEos, kEos, kEos}));
}

TEST_F(EngineMaskTest, WhatLeavesNoTokenFailsThatRequestAlone) {
  start_ready();
  Client beside;
  const SequenceRequest other = request(5, 40);
  ASSERT_TRUE(beside.submit(*engine_, {other}).ok());

  SequenceRequest early = masked(request(3, 10), regex("no"));
  early.sampling.min_tokens = 5;
  Error error = error_of(early);
  EXPECT_EQ(error.code, Errc::kInvalidArgument);
  EXPECT_EQ(error.param, "min_tokens");
  EXPECT_NE(error.message.find("after 2 tokens"), std::string::npos) << error.message;

  SequenceRequest unlisted = masked(request(3, 10), regex("no"));
  unlisted.sampling.allowed_ids = {id_of('n')};
  error = error_of(unlisted);
  EXPECT_EQ(error.param, "allowed_token_ids");
  EXPECT_NE(error.message.find("after 1 tokens"), std::string::npos) << error.message;

  error = error_of(masked(request(3, 10), regex("né")));  // no token has these bytes
  EXPECT_EQ(error.code, Errc::kInvalidArgument);
  EXPECT_NE(error.message.find("no token of the vocabulary"), std::string::npos) << error.message;

  expect_complete(other, beside.wait()[0]);
  expect_idle();
}

TEST_F(EngineMaskTest, ATokenThatTheMaskForbadeFailsTheRequest) {
  testing::ScriptedRankOptions disobedient;
  disobedient.ignores_masks = true;
  start_ready(disobedient);
  const Error error = error_of(masked(request(3, 10), regex("q+")));
  EXPECT_EQ(error.code, Errc::kInternal);
  EXPECT_NE(error.message.find("grammar does not allow"), std::string::npos) << error.message;
}

TEST_F(EngineMaskTest, AnotherTokenThanTheForcedOneFailsTheRequest) {
  testing::ScriptedRankOptions disobedient;
  disobedient.ignores_masks = true;
  start_ready(disobedient);
  SequenceRequest budgeted = request(3, 10);
  budgeted.thinking = ThinkingBudget{.open = 97, .close = 98, .tokens = 2, .in_reasoning = true};
  const Error error = error_of(budgeted);
  EXPECT_EQ(error.code, Errc::kInternal);
  EXPECT_NE(error.message.find("thinking budget allows only 98"), std::string::npos) << error.message;
}

TEST(TokenMask, FitsTheCoresVocabulary) {
  std::vector<std::string> bytes(40, "");
  bytes[3] = "a", bytes[36] = "b";
  const auto vocabulary = GrammarVocabulary::make(bytes, {39}).value();
  const auto grammar = CompiledGrammar::compile({GrammarKind::kRegex, "[ab]+"}, vocabulary).value();
  SamplingParams sampling{.max_tokens = 4};
  TokenMask mask(grammar, &sampling);
  EXPECT_TRUE(sampling.masks);
  EXPECT_EQ(mask.next(0, 40).value(), (std::vector<uint32_t>{1u << 3, 1u << 4}));
  EXPECT_EQ(mask.next(0, 70).value(), (std::vector<uint32_t>{1u << 3, 1u << 4, 0}));
  EXPECT_EQ(mask.next(0, 36).value(), (std::vector<uint32_t>{1u << 3, 0})) << "a model without a row for it";
  EXPECT_EQ(mask.next(0, 30).value(), (std::vector<uint32_t>{1u << 3}));
  EXPECT_FALSE(mask.next(0, 2).ok());
  SamplingParams listed{.max_tokens = 4, .allowed_ids = {36, 500}};
  EXPECT_EQ(TokenMask(grammar, &listed).next(0, 40).value(), (std::vector<uint32_t>{0, 1u << 4}));
  EXPECT_TRUE(listed.allowed_ids.empty());
  SamplingParams no_row{.max_tokens = 4, .min_tokens = 2, .eos_id = 4000, .stop_ids = {-1, 70}};
  EXPECT_EQ(TokenMask(grammar, &no_row).next(0, 40).value(), (std::vector<uint32_t>{1u << 3, 1u << 4}))
      << "an end that the model has no row for";
}

}  // namespace
}  // namespace helios
