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
    SequenceRequest r = request(1 + i * 7 % 24, 20 + i * 7 % 21, static_cast<uint64_t>(i % 20));
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
    ASSERT_EQ(ids(outcomes[i]), expected_masked(requests[i]));
    if (outcomes[i].tokens.back().finish != FinishCode::kEos) continue;
    EXPECT_TRUE(std::regex_match(text(outcomes[i]), std::regex(kSources[i / 2 % 4]))) << text(outcomes[i]);
  }
  expect_idle();
  engine_.reset();
  EXPECT_GT(observer_.preempted, 0) << "some were readmitted on their way";
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
  budgeted.thinking = Thinking{.open = 97, .close = kNever, .in_reasoning = true, .budget = 2};
  // Reasoning that begins with the third token, of which nothing is allowed.
  SequenceRequest later = free;
  later.thinking = Thinking{.open = toy[2], .close = kNever, .in_reasoning = false, .budget = 0};
  // Reasoning that never begins, and one that closes itself in time.
  SequenceRequest never = free, closes = free;
  never.thinking = Thinking{.open = 97, .close = kNever, .in_reasoning = false, .budget = 0};
  closes.thinking = Thinking{.open = 97, .close = toy[1], .in_reasoning = true, .budget = 2};
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
  budgeted.thinking = Thinking{.open = 97, .close = 98, .in_reasoning = true, .budget = 2};
  const Error error = error_of(budgeted);
  EXPECT_EQ(error.code, Errc::kInternal);
  EXPECT_NE(error.message.find("thinking budget allows only 98"), std::string::npos) << error.message;
}

// What comes behind the close is the grammar's; R4: a forced close has no logprobs.
TEST_F(EngineMaskTest, AGrammarBeginsBehindTheReasoning) {
  start_ready();
  const Grammar grammar = regex("(ab|12)+x");
  const TokenId kClose = 98, kOpen = 97;
  SequenceRequest inside = masked(request(3, 30), grammar);
  inside.logprobs = true;
  inside.sampling.stop_ids = {id_of('x')};
  inside.thinking = Thinking{.open = kOpen, .close = kClose, .in_reasoning = true, .budget = 4};
  SequenceRequest endless = inside;  // the budget is more than there are tokens: free to the end, which never comes
  endless.thinking->budget.reset();
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {inside, endless}).ok());
  const auto& outcomes = client.wait();
  const std::vector<TokenId> free = expected_tokens(request(3, 30));
  std::string answer;
  bool closed = false;
  for (size_t i = 0; i < outcomes[0].tokens.size(); ++i) {
    const TokenEvent& event = outcomes[0].tokens[i];
    EXPECT_EQ(event.forced, i == 4 && event.token == kClose) << i;
    EXPECT_EQ(event.logprobs.has_value(), !event.forced) << i;
    if (closed) answer += text_of(event.token);
    closed = closed || event.token == kClose;
    const bool ends = free[i] == kClose || free[i] == kEos || free[i] == id_of('x');
    EXPECT_TRUE(i >= 4 || ends || event.token == free[i]) << i;
  }
  EXPECT_TRUE(closed);
  EXPECT_TRUE(std::regex_match(answer, std::regex("(ab|12)*(a|1)?x?"))) << answer;
  const std::vector<TokenId> thought = ids(outcomes[1]);
  const auto end = std::find(thought.begin(), thought.end(), kClose);
  for (auto at = thought.begin(); at != end; ++at) {
    EXPECT_TRUE(*at != kEos && *at != id_of('x')) << "nothing ends the text before its grammar has begun";
  }
}

TEST_F(EngineMaskTest, BadWordsNeverCome) {
  start_ready();
  SequenceRequest free = request(3, 24);
  free.logprobs = true;
  const std::vector<TokenId> toy = expected_tokens(free);
  SequenceRequest banned = free;
  banned.bad_words = {{toy[0]}, {toy[3], toy[4]}, {5, 6, 7}};
  Client client;
  ASSERT_TRUE(client.submit(*engine_, {banned}).ok());
  const std::vector<TokenId> got = ids(client.wait()[0]);
  ASSERT_EQ(got.size(), 24u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NE(got[i], toy[0]);
    EXPECT_FALSE(i > 0 && got[i - 1] == toy[3] && got[i] == toy[4]);
  }
  SequenceRequest nothing = masked(request(3, 10), regex("no"));
  nothing.bad_words = {{id_of('n'), id_of('o')}};
  const Error error = error_of(nothing);
  EXPECT_EQ(error.code, Errc::kInvalidArgument);
  EXPECT_EQ(error.param, "bad_words");
  EXPECT_NE(error.message.find("after 1 tokens"), std::string::npos) << error.message;
}

/// One mask after the other; `allows` of a token after those that came.
struct MaskWalk {
  explicit MaskWalk(TokenMask::Rules rules, SamplingParams sampling = {.max_tokens = 50})
      : mask(std::move(rules), &sampling) {}
  bool allows(TokenId id) {
    const auto words = mask.next(num, 100);
    EXPECT_TRUE(words.ok()) << words.error().message;
    return words.ok() && (((*words)[static_cast<size_t>(id) / 32] >> (id % 32)) & 1) != 0;
  }
  TokenEvent take(TokenId id) {
    TokenEvent event{.token = id, .logprobs = PositionLogprobs{}};
    EXPECT_TRUE(allows(id)) << id;
    EXPECT_TRUE(mask.accept(event).ok()) << id;
    ++num;
    return event;
  }
  TokenMask mask;
  int num = 0;
};

std::shared_ptr<const CompiledGrammar> letters(const std::string& source) {
  std::vector<std::string> bytes(100);
  for (char c = 'a'; c <= 'z'; ++c) bytes[static_cast<size_t>(c - 'a')] = std::string(1, c);
  bytes[50] = "<open>", bytes[51] = "<close>";  // text to the grammar too
  return CompiledGrammar::compile({GrammarKind::kRegex, source}, GrammarVocabulary::make(bytes, {99}).value()).value();
}

TEST(TokenMask, ReasoningThatTheModelOpensStandsBeforeTheGrammarOrNotAtAll) {
  const Thinking may{.open = 50, .close = 51, .may_open = true};
  MaskWalk plain({.grammar = letters("[ab]+"), .thinking = may});
  EXPECT_TRUE(plain.allows(50));
  EXPECT_FALSE(plain.allows(51) || plain.allows(2) || plain.allows(99));
  plain.take(0);
  EXPECT_FALSE(plain.allows(50)) << "later it is no text of the grammar";
  EXPECT_TRUE(plain.allows(99));

  MaskWalk thinks({.grammar = letters("[ab]+"), .thinking = may});
  thinks.take(50);
  for (const TokenId id : {0, 2, 50, 77}) EXPECT_TRUE(thinks.allows(id)) << id;
  EXPECT_FALSE(thinks.allows(99)) << "the text has not begun";
  thinks.take(50);  // said inside, it is a token like others
  thinks.take(2);
  thinks.take(51);
  EXPECT_FALSE(thinks.allows(50) || thinks.allows(2) || thinks.allows(51) || thinks.allows(99));
  thinks.take(1);
  EXPECT_TRUE(thinks.allows(99));
}

TEST(TokenMask, ABudgetEndsReasoningBeforeAGrammarAndIsNotCountedInIt) {
  Thinking thinking{.open = 50, .close = 51, .in_reasoning = true, .budget = 2};
  MaskWalk walk({.grammar = letters("a(<open>|<close>|b)*"), .thinking = thinking});
  EXPECT_FALSE(walk.take(77).forced);
  EXPECT_FALSE(walk.take(51).forced) << "the model's own close";
  walk.take(0);
  for (const TokenId id : {50, 1, 1, 1, 50, 51, 1}) EXPECT_FALSE(walk.take(id).forced) << "the grammar's text";
  MaskWalk forced({.grammar = letters("a"), .thinking = thinking});
  forced.take(77);
  forced.take(78);
  EXPECT_FALSE(forced.allows(77));
  const TokenEvent close = forced.take(51);
  EXPECT_TRUE(close.forced);
  EXPECT_FALSE(close.logprobs.has_value());  // R4
  forced.take(0);
  EXPECT_TRUE(forced.allows(99));
}

TEST(TokenMask, AStopIdThatClosesReasoningMayComeAndMinTokensIsNamedWhereItMayNot) {
  const Thinking inside{.open = 50, .close = 51, .in_reasoning = true, .budget = 1};
  SamplingParams sampling{.max_tokens = 9, .min_tokens = 4, .eos_id = 99, .stop_ids = {51, 7}};
  TokenMask mask({.grammar = letters("a"), .thinking = inside}, &sampling);
  const auto first = mask.next(0, 100).value();
  EXPECT_TRUE((first[1] >> (51 - 32)) & 1);
  EXPECT_FALSE((first[0] >> 7) & 1);
  TokenEvent event{.token = 3};
  ASSERT_TRUE(mask.accept(event).ok());
  EXPECT_EQ(mask.next(1, 100).error().param, "min_tokens") << "only the forced close is left, and it is a stop id";
  EXPECT_TRUE(mask.next(4, 100).ok());
}

TEST(TokenMask, BadWordsEndWhereTheyWouldBeSpelled) {
  MaskWalk walk({.bad_words = {{5}, {1, 2}, {1, 2, 3}, {3, 1, 4}, {1, 1, 1}}});
  EXPECT_FALSE(walk.allows(5));
  EXPECT_TRUE(walk.allows(2) && walk.allows(4));
  walk.take(1);
  EXPECT_FALSE(walk.allows(2));
  EXPECT_TRUE(walk.allows(1) && walk.allows(4)) << "another beginning of the longer word";
  walk.take(1);
  EXPECT_FALSE(walk.allows(1));
  walk.take(3);
  walk.take(1);
  EXPECT_FALSE(walk.allows(4));
  TokenEvent event{.token = 4};
  EXPECT_EQ(walk.mask.accept(event).error().code, Errc::kInternal);
  SamplingParams alone{.max_tokens = 5, .allowed_ids = {5, 6}};
  EXPECT_EQ(TokenMask({.bad_words = {{5}}}, &alone).next(0, 40).value(), (std::vector<uint32_t>{1u << 6, 0}));
  SamplingParams none{.max_tokens = 5, .allowed_ids = {5}};
  EXPECT_EQ(TokenMask({.bad_words = {{5}}}, &none).next(0, 40).error().param, "bad_words");
}

// Against the definition: a sequence may not come at the end of what was generated.
TEST(TokenMask, BadWordsOfRandomSequencesAreTheDefinitions) {
  uint64_t state = 7;
  const auto below = [&](uint64_t n) { return static_cast<TokenId>((state = testing::toy_hash(state, 11)) % n); };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<TokenId>> words(1 + static_cast<size_t>(below(5)));
    for (auto& word : words) {
      for (TokenId left = 1 + below(4); left > 0; --left) word.push_back(below(3));
    }
    const BadWords bad(words);
    RecentTokens recent(bad.context());
    std::vector<TokenId> all;
    for (int i = 0; i < 30; ++i) {
      std::vector<uint32_t> mask = {~0u};
      bad.forbid(recent.view(), mask);
      for (TokenId id = 0; id < 4; ++id) {
        std::vector<TokenId> then = all;
        then.push_back(id);
        bool ends = false;
        for (const auto& word : words) {
          ends |= word.size() <= then.size() && std::equal(word.rbegin(), word.rend(), then.rbegin());
        }
        ASSERT_EQ((mask[0] >> id & 1) == 0, ends);
        ASSERT_EQ(bad.ends_with(recent.view(), id), ends);
      }
      all.push_back(below(3));
      recent.push(all.back());
    }
  }
}

TEST(TokenMask, FitsTheCoresVocabulary) {
  std::vector<std::string> bytes(40, "");
  bytes[3] = "a", bytes[36] = "b";
  const auto vocabulary = GrammarVocabulary::make(bytes, {39}).value();
  const auto grammar = CompiledGrammar::compile({GrammarKind::kRegex, "[ab]+"}, vocabulary).value();
  SamplingParams sampling{.max_tokens = 4};
  TokenMask mask({.grammar = grammar}, &sampling);
  EXPECT_TRUE(sampling.masks);
  EXPECT_EQ(mask.next(0, 40).value(), (std::vector<uint32_t>{1u << 3, 1u << 4}));
  EXPECT_EQ(mask.next(0, 70).value(), (std::vector<uint32_t>{1u << 3, 1u << 4, 0}));
  EXPECT_EQ(mask.next(0, 36).value(), (std::vector<uint32_t>{1u << 3, 0})) << "a model without a row for it";
  EXPECT_EQ(mask.next(0, 30).value(), (std::vector<uint32_t>{1u << 3}));
  EXPECT_FALSE(mask.next(0, 2).ok());
  SamplingParams listed{.max_tokens = 4, .allowed_ids = {36, 500}};
  EXPECT_EQ(TokenMask({.grammar = grammar}, &listed).next(0, 40).value(), (std::vector<uint32_t>{0, 1u << 4}));
  EXPECT_TRUE(listed.allowed_ids.empty());
  SamplingParams no_row{.max_tokens = 4, .min_tokens = 2, .eos_id = 4000, .stop_ids = {-1, 70}};
  EXPECT_EQ(TokenMask({.grammar = grammar}, &no_row).next(0, 40).value(), (std::vector<uint32_t>{1u << 3, 1u << 4}))
      << "an end that the model has no row for";
}

}  // namespace
}  // namespace helios
