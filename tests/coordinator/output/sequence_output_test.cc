// What a client sees of one choice: text, entries, offsets and finish, streamed and whole (wire formats 1.6, 2.4-2.7).
#include "coordinator/output/sequence_output.h"

#include <gtest/gtest.h>

#include <random>

#include "coordinator/output/text_span.h"
#include "tests/coordinator/tokenizer/small_tokenizers.h"

namespace helios {
namespace {

using Ids = std::vector<TokenId>;

const std::vector<std::string> kWords = {"ab",
                                         " a",
                                         "a\xF0\x9F",
                                         "\x98\x80"
                                         "b",
                                         "\xEF\xBF\xBD",
                                         "é",
                                         "STO",
                                         "P!"};
const std::vector<std::string> kPieces = {"▁", "▁a", "a", "中", "\xEF\xBF\xBD", "b"};

std::shared_ptr<const Tokenizer> byte_level() { return testing::byte_level_tokenizer(kWords); }
std::shared_ptr<const Tokenizer> sentencepiece() { return testing::sentencepiece_tokenizer(kPieces); }

TokenEvent event(TokenId token, FinishCode finish = FinishCode::kNone) {
  TokenEvent e;
  e.token = token;
  e.finish = finish;
  e.logprobs = PositionLogprobs{-0.5f - static_cast<float>(token), {}};
  return e;
}

OutputOptions with_stops(std::vector<std::string> stops, bool include = false) {
  OutputOptions options;
  options.stop = std::move(stops);
  options.include_stop_str_in_output = include;
  return options;
}

// Everything of a run: the deltas joined.
struct Played {
  std::string text;
  std::vector<OutputEntry> entries;
  std::optional<OutputFinish> finish;
  size_t pushed = 0;
  std::vector<size_t> entries_after;  // entries out after each push
  std::vector<std::string> text_after;

  Ids ids() const {
    Ids out;
    for (const OutputEntry& entry : entries) out.push_back(entry.id);
    return out;
  }
  std::vector<int64_t> offsets() const {
    std::vector<int64_t> out;
    for (const OutputEntry& entry : entries) out.push_back(entry.text_offset);
    return out;
  }
};

Played play(const Tokenizer& tokenizer, const OutputOptions& options, const Ids& prompt,
            const std::vector<TokenEvent>& events) {
  SequenceOutput output(tokenizer, options, prompt);
  Played played;
  for (const TokenEvent& e : events) {
    OutputDelta delta = output.push(e);
    EXPECT_TRUE(valid_utf8(delta.text));
    EXPECT_EQ(delta.token_ids, Ids{e.token});
    played.text += delta.text;
    for (OutputEntry& entry : delta.entries) played.entries.push_back(std::move(entry));
    played.finish = delta.finish;
    played.entries_after.push_back(played.entries.size());
    played.text_after.push_back(played.text);
    ++played.pushed;
    if (played.finish) break;
  }
  EXPECT_EQ(output.num_generated(), static_cast<int64_t>(played.pushed));
  return played;
}

// Plain ids, the last of which reaches the token limit.
std::vector<TokenEvent> limited(const Ids& ids) {
  std::vector<TokenEvent> events;
  for (const TokenId id : ids) events.push_back(event(id));
  if (!events.empty()) events.back().finish = FinishCode::kTokenLimit;
  return events;
}

TEST(SequenceOutput, AStopStringCutsWithinATokenWhichKeepsItsWholeEntry) {  // R31
  const auto tokenizer = byte_level();
  const TokenId ab = *tokenizer->find_piece("ab");
  const Played r = play(*tokenizer, with_stops({"b"}), {}, limited({'x', ab, 'y'}));
  EXPECT_EQ(r.text, "xa");
  EXPECT_EQ(r.ids(), (Ids{'x', ab}));
  EXPECT_EQ(r.entries[1].text, "ab");
  EXPECT_EQ(r.entries[1].bytes, "ab");
  EXPECT_EQ(r.finish->reason, "stop");
  EXPECT_EQ(r.finish->stop_string, "b");
  EXPECT_EQ(r.pushed, 2u);
}

TEST(SequenceOutput, AStopStringOverThreeTokensHoldsTheirTextAndEntriesAndDropsThem) {
  const auto tokenizer = byte_level();
  const TokenId sto = *tokenizer->find_piece("STO"), p = *tokenizer->find_piece("P!");
  const Played r = play(*tokenizer, with_stops({"xSTOP"}), {}, limited({'a', 'x', sto, p, 'z'}));
  EXPECT_EQ(r.text, "a");
  EXPECT_EQ(r.text_after[2], "a");
  EXPECT_EQ(r.entries_after, (std::vector<size_t>{1, 1, 1, 1}));
  EXPECT_EQ(r.ids(), Ids{'a'});
  EXPECT_EQ(r.finish->stop_string, "xSTOP");
}

TEST(SequenceOutput, HeldTextComesOutWhenTheStopStringFails) {
  const auto tokenizer = byte_level();
  const TokenId sto = *tokenizer->find_piece("STO");
  const Played r = play(*tokenizer, with_stops({"STOP"}), {}, limited({sto, 'x', sto}));
  EXPECT_EQ(r.text_after, (std::vector<std::string>{"", "STOx", "STOxSTO"}));
  EXPECT_EQ(r.entries_after, (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 3, 4}));
  EXPECT_EQ(r.finish->reason, "length");
}

TEST(SequenceOutput, IncludedStopStringKeepsItsTokensAndNothingAfter) {
  const auto tokenizer = byte_level();
  const TokenId sto = *tokenizer->find_piece("STO"), p = *tokenizer->find_piece("P!");
  const Played r = play(*tokenizer, with_stops({"STOP"}, true), {}, limited({'a', sto, p, 'z'}));
  EXPECT_EQ(r.text, "aSTOP");
  EXPECT_EQ(r.ids(), (Ids{'a', sto, p}));
  EXPECT_EQ(r.text_after[1], "aSTO");  // nothing to hold back: it stays either way
}

TEST(SequenceOutput, AStopStringInTheLastTextReplacesLength) {
  const auto tokenizer = byte_level();
  const Played r = play(*tokenizer, with_stops({"b"}), {}, limited({'a', 'b'}));
  EXPECT_EQ(r.finish->reason, "stop");
  EXPECT_EQ(r.finish->stop_string, "b");
  EXPECT_FALSE(r.finish->stop_token);
}

TEST(SequenceOutput, StopsInsideAndAcrossCharacters) {
  const auto tokenizer = byte_level();
  const TokenId head = *tokenizer->find_piece(testing::byte_level_piece("a\xF0\x9F"));
  const TokenId tail =
      *tokenizer->find_piece(testing::byte_level_piece("\x98\x80"
                                                       "b"));
  // The stop is the emoji that two tokens share: the first began before it, the second inside it.
  const Played r = play(*tokenizer, with_stops({"😀"}), {}, limited({'x', head, tail, 'y'}));
  EXPECT_EQ(r.text, "xa");
  EXPECT_EQ(r.ids(), (Ids{'x', head}));
  const Played all = play(*tokenizer, {}, {}, limited({'x', head, tail, 'y'}));
  EXPECT_EQ(all.text, "xa😀by");
  EXPECT_EQ(all.offsets(), (std::vector<int64_t>{0, 1, 2, 4}));
  EXPECT_EQ(std::string(all.entries[1].text.view()).append(all.entries[2].text), "a😀b");
}

TEST(SequenceOutput, AnEmojiOverTwoTokens) {  // the example of wire formats, 2.5
  const auto tokenizer = byte_level();
  const Played r = play(*tokenizer, {}, {}, limited({0xF0, 0x9F, 0x98, 0x80, 'z'}));
  EXPECT_EQ(r.text, "😀z");
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 0, 0, 0, 1}));
  std::string bytes;
  for (const OutputEntry& entry : r.entries) bytes += entry.bytes;
  EXPECT_EQ(bytes, r.text);
  EXPECT_EQ(r.entries[0].text, "");
  EXPECT_EQ(r.entries[2].text, "");
  EXPECT_EQ(r.entries[3].text, "😀");
  EXPECT_EQ(r.entries_after, (std::vector<size_t>{0, 0, 0, 4, 5}));
}

TEST(SequenceOutput, ALiteralReplacementCharacterIsNotABadByte) {
  const auto tokenizer = byte_level();
  const TokenId literal = *tokenizer->find_piece(testing::byte_level_piece("\xEF\xBF\xBD"));
  const Played r = play(*tokenizer, {}, {}, limited({literal, 0xFF, 'a', 0xE4, 'b'}));
  EXPECT_EQ(r.text, "\uFFFD\uFFFDa\uFFFDb");
  EXPECT_EQ(r.entries[0].bytes, "\xEF\xBF\xBD");
  EXPECT_EQ(r.entries[1].bytes, "\xFF");
  EXPECT_EQ(r.entries[1].text, "\uFFFD");
  EXPECT_EQ(r.entries[3].text, "");
  EXPECT_EQ(r.entries[4].text, "b");
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(SequenceOutput, AlternativesAreRepairedFromTheSequenceNotFromEachOther) {
  const auto tokenizer = byte_level();
  SequenceOutput output(*tokenizer, {}, Ids{'x', 0xF0, 0x9F});  // prompt tokens are context too
  TokenEvent first = event(0x98);
  first.logprobs->alternatives = {{0x98, -1}, {'y', -2}, {0xFF, -3}, {0x80, -4}};
  const OutputDelta none = output.push(first);
  EXPECT_TRUE(none.entries.empty());
  TokenEvent second = event(0x80, FinishCode::kTokenLimit);
  second.logprobs->alternatives = {{0x81, -1}, {0x80, -2}, {'z', -3}};
  const OutputDelta delta = output.push(second);
  ASSERT_EQ(delta.entries.size(), 2u);
  EXPECT_EQ(delta.text, "😀");
  EXPECT_EQ(delta.entries[0].alternatives[0].text, "");
  EXPECT_EQ(delta.entries[0].alternatives[1].text, "y");
  EXPECT_EQ(delta.entries[1].alternatives[0].text, "😁");
  EXPECT_EQ(delta.entries[1].alternatives[1].text, "😀");
  EXPECT_EQ(delta.entries[1].alternatives[2].text, "z");
  EXPECT_EQ(delta.entries[1].alternatives[2].logprob, -3);
}

TEST(SequenceOutput, TokenIdTextsChangeNothingElse) {
  const auto tokenizer = byte_level();
  OutputOptions options;
  options.tokens_as_token_ids = true;
  TokenEvent e = event(0xC3);
  e.logprobs->alternatives = {{'q', -1}};
  const Played r = play(*tokenizer, options, {}, {e, event(0xA9), event('z', FinishCode::kTokenLimit)});
  EXPECT_EQ(r.text, "éz");
  EXPECT_EQ(r.entries[0].text, "token_id:195");
  EXPECT_EQ(r.entries[0].alternatives[0].text, "token_id:113");
  EXPECT_EQ(r.entries[0].bytes, "\xC3");
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 0, 1}));
}

TEST(SequenceOutput, TheLeadingSpaceOfTheFirstTokenStaysInEntryAndText) {
  const auto tokenizer = sentencepiece();
  const TokenId space_a = *tokenizer->find_piece("▁a"), bos = *tokenizer->find_piece("<s>");
  const Played r = play(*tokenizer, {}, {bos, space_a}, limited({space_a, space_a}));
  EXPECT_EQ(r.text, " a a");
  EXPECT_EQ(r.entries[0].text, " a");
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 2}));
  const Played first =
      play(*tokenizer, {}, {bos}, limited({space_a, space_a}));  // nothing before it: stripped from the text
  EXPECT_EQ(first.text, "a a");
  EXPECT_EQ(first.entries[0].text, " a");
  EXPECT_EQ(first.offsets(), (std::vector<int64_t>{0, 1}));
}

TEST(SequenceOutput, HiddenSpecialTokensHaveEntriesAtTheNextTokensPlace) {
  const auto tokenizer = byte_level();
  const TokenId special = *tokenizer->find_piece("<s>"), shown = *tokenizer->find_piece("<x>");
  const Played r = play(*tokenizer, {}, {}, limited({'a', special, 0xC3, special, 0xA9, shown, special}));
  EXPECT_EQ(r.text, "aé<x>");
  EXPECT_EQ(r.entries[1].text, "<s>");
  EXPECT_EQ(r.entries[1].bytes, "<s>");
  EXPECT_EQ(r.entries[4].text, "é");
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 1, 1, 1, 1, 2, 5}));
  OutputOptions options;
  options.skip_special_tokens = false;
  EXPECT_EQ(play(*tokenizer, options, {}, limited({'a', special, 'b'})).text, "a<s>b");
}

// A delimiter that is a special token, kept for the parser behind, while other special tokens stay hidden.
TEST(SequenceOutput, ASpecialTokenCanBeShownByName) {
  const auto tokenizer = byte_level();
  const TokenId hidden = *tokenizer->find_piece("<s>"), marker = tokenizer->vocab_size() - 1;
  ASSERT_TRUE(tokenizer->is_special(marker));
  ASSERT_NE(hidden, marker);
  OutputOptions options;
  options.shown_tokens = {marker};
  const Played r = play(*tokenizer, options, {}, limited({'a', hidden, marker, 0xC3, marker, 'b'}));
  const std::string literal(tokenizer->token_bytes(marker));
  EXPECT_EQ(r.text, "a" + literal + "\uFFFD" + literal + "b");
  EXPECT_EQ(r.entries[4].text, literal);
  options.skip_special_tokens = false;
  EXPECT_EQ(play(*tokenizer, options, {}, limited({hidden, marker})).text, "<s>" + literal);
}

TEST(SequenceOutput, TerminatingTokensHaveNoEntryAndHiddenText) {  // R31
  const auto tokenizer = byte_level();
  const TokenId eos = *tokenizer->find_piece("<e>");
  const Played end = play(*tokenizer, {}, {}, {event('a'), event(eos, FinishCode::kEos)});
  EXPECT_EQ(end.text, "a");
  EXPECT_EQ(end.ids(), Ids{'a'});
  EXPECT_EQ(end.finish->reason, "stop");
  EXPECT_FALSE(end.finish->stop_string || end.finish->stop_token);
  const Played id = play(*tokenizer, {}, {}, {event('a'), event('b', FinishCode::kStopId)});
  EXPECT_EQ(id.text, "a");
  EXPECT_EQ(id.ids(), Ids{'a'});
  EXPECT_EQ(id.finish->stop_token, 'b');
  EXPECT_EQ(id.pushed, 2u);
  OutputOptions include;
  include.include_stop_str_in_output = true;
  const Played shown = play(*tokenizer, include, {}, {event('a'), event('b', FinishCode::kStopId)});
  EXPECT_EQ(shown.text, "ab");
  EXPECT_EQ(shown.ids(), Ids{'a'});
  OutputOptions keep;
  keep.keep_terminating_entry = true;
  EXPECT_EQ(play(*tokenizer, keep, {}, {event('a'), event(eos, FinishCode::kEos)}).ids(), (Ids{'a', eos}));
  EXPECT_EQ(play(*tokenizer, {}, {}, {event(eos, FinishCode::kEos)}).text, "");
}

TEST(SequenceOutput, AnIgnoredEosKeepsItsEntryInOrder) {  // R31
  const auto tokenizer = byte_level();
  const TokenId eos = *tokenizer->find_piece("<e>");
  TokenEvent silent = event(eos);
  silent.silent_eos = true;
  const Played r =
      play(*tokenizer, with_stops({"stop"}), {}, {event('a'), silent, silent, event('b', FinishCode::kTokenLimit)});
  EXPECT_EQ(r.text, "ab");
  EXPECT_EQ(r.ids(), (Ids{'a', eos, eos, 'b'}));
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(r.entries_after, (std::vector<size_t>{1, 2, 3, 4}));
}

TEST(SequenceOutput, ForcedTokensHaveTextButNoEntry) {  // R4
  const auto tokenizer = byte_level();
  TokenEvent forced = event('f');
  forced.forced = true;
  forced.logprobs.reset();
  const Played r = play(*tokenizer, {}, {}, {event('a'), forced, event('b', FinishCode::kTokenLimit)});
  EXPECT_EQ(r.text, "afb");
  EXPECT_EQ(r.ids(), (Ids{'a', 'b'}));
  EXPECT_EQ(r.offsets(), (std::vector<int64_t>{0, 2}));
}

TEST(SequenceOutput, WithoutLogprobsThereAreNoEntries) {
  const auto tokenizer = byte_level();
  TokenEvent plain = event('a', FinishCode::kTokenLimit);
  plain.logprobs.reset();
  EXPECT_TRUE(play(*tokenizer, {}, {}, {plain}).entries.empty());
}

TEST(SequenceOutput, StopStringsDoNotCountBeforeMinTokens) {
  const auto tokenizer = byte_level();
  OutputOptions options = with_stops({"b"});
  options.min_tokens = 2;
  const Played r = play(*tokenizer, options, {}, limited({'a', 'b', 'c', 'b'}));
  EXPECT_EQ(r.text, "abc");
  EXPECT_EQ(r.finish->reason, "stop");
}

TEST(SequenceOutput, AStopStringFoundWhenAByteRunEnds) {
  const auto tokenizer = sentencepiece();
  const TokenId a = *tokenizer->find_piece("a");
  // 中文 in bytes; the run ends with `a`, and only then is it text.
  const Played r = play(*tokenizer, with_stops({"文"}), Ids{a}, limited({0xE4, 0xB8, 0xAD, 0xE6, 0x96, 0x87, a, a}));
  EXPECT_EQ(r.text, "中");
  EXPECT_EQ(r.ids(), (Ids{0xE4, 0xB8, 0xAD}));
  EXPECT_EQ(r.pushed, 7u);
}

TEST(SequenceOutput, HeldMemoryDoesNotGrowWithTheResponse) {  // R31: bounded queues
  TextSpans spans;
  OutputDelta out;
  for (int64_t i = 0; i < 100000; ++i) {
    spans.push(OutputEntry{});
    spans.place({i, i, true});
    if (i >= 5) spans.release(i - 4, &out);
    ASSERT_LE(spans.held(), 6u);
  }
}

// --- random streams against the definition ---

struct Expected {
  std::string text;
  Ids entries;
  std::vector<int64_t> offsets;
  std::vector<int64_t> bytes;
  std::optional<size_t> stop;
};

// All at once: decode, look for the stop that completes first, keep the entries that begin before the cut.
Expected reference(const Tokenizer& tokenizer, const OutputOptions& options, const Ids& prompt, const Ids& pushed) {
  const DecodedText whole = testing::reference_decode(tokenizer, options.skip_special_tokens, prompt, pushed);
  Expected expected;
  size_t cut = std::string::npos;
  for (size_t end = 1; end <= whole.text.size() && !expected.stop; ++end) {
    for (size_t i = 0; i < options.stop.size() && !expected.stop; ++i) {
      if (!std::string_view(whole.text).substr(0, end).ends_with(options.stop[i])) continue;
      expected.stop = i;
      cut = options.include_stop_str_in_output ? end : end - options.stop[i].size();
    }
  }
  expected.text = whole.text.substr(0, cut);
  for (size_t i = 0; i < pushed.size(); ++i) {
    const TextStart& start = whole.starts[i];
    const auto at = static_cast<size_t>(start.bytes);
    if (expected.stop && (start.has_bytes ? at >= cut : at > cut)) break;
    expected.entries.push_back(pushed[i]);
    expected.offsets.push_back(start.code_points);
    expected.bytes.push_back(start.has_bytes ? start.bytes : -1);
  }
  return expected;
}

void check_random(const Tokenizer& tokenizer, const Ids& candidates, const std::vector<std::string>& stop_pool,
                  uint32_t seed) {
  std::mt19937 random(seed);
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto draw = [&](size_t least, size_t most) {
      Ids ids(least + random() % (most - least + 1));
      for (TokenId& id : ids) id = candidates[random() % candidates.size()];
      return ids;
    };
    OutputOptions options;
    options.skip_special_tokens = random() % 2;
    options.include_stop_str_in_output = random() % 2;
    for (size_t i = random() % 4; i > 0; --i) options.stop.push_back(stop_pool[random() % stop_pool.size()]);
    const Ids prompt = draw(0, 4), ids = draw(1, 20);
    SCOPED_TRACE(::testing::PrintToString(std::make_tuple(prompt, ids, options.stop)));
    const Played r = play(tokenizer, options, prompt, limited(ids));
    const Ids pushed(ids.begin(), ids.begin() + static_cast<int64_t>(r.pushed));
    const Expected expected = reference(tokenizer, options, prompt, ids);
    ASSERT_EQ(r.text, expected.text);
    ASSERT_EQ(r.finish->stop_string.has_value(), expected.stop.has_value());
    if (expected.stop) {
      ASSERT_EQ(r.finish->stop_string, options.stop[*expected.stop]);
      ++stopped;
    }
    // Tokens after the one that completed the stop were never generated.
    Ids entries = expected.entries;
    if (entries.size() > pushed.size()) entries.resize(pushed.size());
    ASSERT_EQ(r.ids(), entries);
    std::vector<int64_t> offsets = expected.offsets;
    offsets.resize(entries.size());
    ASSERT_EQ(r.offsets(), offsets);
    for (size_t i = 0; i < r.entries.size(); ++i) ASSERT_EQ(r.entries[i].text_byte, expected.bytes[i]);
    const int64_t length = count_code_points(r.text);
    for (const int64_t offset : r.offsets()) ASSERT_LE(offset, length);
  }
  EXPECT_GT(stopped, 3000);
}

TEST(SequenceOutput, RandomByteLevelStreamsAgreeWithTheDefinition) {
  const auto tokenizer = byte_level();
  Ids candidates = {'a', 'a', 'b', 'b', ' ', 0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 9999};
  for (TokenId id = 256; id < tokenizer->vocab_size(); ++id) candidates.push_back(id);
  check_random(*tokenizer, candidates,
               {"ab", "b", "aba", "é", "😀", "\uFFFD", "a😀", "STOP", "<x>", "bb ", "\uFFFD\uFFFD"}, 5);
}

TEST(SequenceOutput, RandomSentencePieceStreamsAgreeWithTheDefinition) {
  const auto tokenizer = sentencepiece();
  Ids candidates = {0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xFF, 0x20, 9999};
  for (TokenId id = 256; id < tokenizer->vocab_size(); ++id) candidates.push_back(id), candidates.push_back(id);
  check_random(*tokenizer, candidates,
               {"a b", "a a", "é", "中", "\uFFFD", " ", "ba", "<x>", "  ", "\uFFFD\uFFFD\uFFFD"}, 6);
}

}  // namespace
}  // namespace helios
