// The completion bundle's layout: record words, packed positions, and what a copy of width W covers.
//
// Source: logprobs contract, the buffer table and "Each packed position has ..."; record ABI 6.
#pragma once

#include <bit>
#include <cstdint>

namespace helios {

inline constexpr int64_t kRecordAbi = 6;
inline constexpr int kNumFrames = 2;
inline constexpr int kMaxNaturalAlternatives = 20;
inline constexpr int kMaxSelectedIds = 128;
inline constexpr int kKeptSortKeys = 32;  // a tile, a shard and the exchange keep this many
inline constexpr int kDefaultTokenCapacity = 8;

// A completion record: int64[16 + T]. Word numbers.
namespace record_word {
inline constexpr int kAbi = 0;
inline constexpr int kSlot = 1;
inline constexpr int kEpoch = 2;
inline constexpr int kOperation = 3;
inline constexpr int kSequence = 4;
inline constexpr int kEmitted = 5;  // tokens [0, emitted) are valid
inline constexpr int kFinish = 6;   // FinishCode
inline constexpr int kProposalsOffered = 7;
inline constexpr int kProposalsAccepted = 8;
inline constexpr int kKvLength = 9;     // after commit
inline constexpr int kForcedMask = 10;  // bit i: token i was forced and has no logprob entry
inline constexpr int kFlags = 11;       // bit 0: a silent EOS was emitted and ignored
inline constexpr int kTokens = 16;      // T token words from here
}  // namespace record_word

inline constexpr int64_t kRecordFlagSilentEos = 1;

enum class FinishCode : int32_t { kNone = 0, kEos = 1, kStopId = 2, kTokenLimit = 3, kContextLimit = 4, kError = 5 };

constexpr int record_words(int token_capacity) { return record_word::kTokens + token_capacity; }

/// T of a core: zero or absent means 8, positive values are literal. R10.
constexpr int resolve_token_capacity(int configured) { return configured > 0 ? configured : kDefaultTokenCapacity; }

// A packed position: int32 words. Pair 0 is the chosen token; pair 1 + i is alternative i.
inline constexpr int kPairWords = 2;
inline constexpr int kChosenId = 0;
inline constexpr int kChosenBits = 1;
inline constexpr int kFirstAlternative = 2;

constexpr int packed_words(int alternatives) { return kPairWords + kPairWords * alternatives; }
inline constexpr int kPackedWords = packed_words(kMaxSelectedIds);  // 258: a core with the id inputs
static_assert(kPackedWords == 258);
static_assert(packed_words(kMaxNaturalAlternatives) == 42);

// R40. A prompt score row: int32[43]. A row without a target holds id -1, NaN, rank 0 and alternatives of id -1 and
// NaN.
namespace prompt_score_word {
inline constexpr int kActualId = 0;
inline constexpr int kActualBits = 1;        // raw FP32 logprob
inline constexpr int kActualRank = 2;        // 1 + reported values that are strictly greater
inline constexpr int kFirstAlternative = 3;  // twenty (id, bits) pairs, best first
}  // namespace prompt_score_word
inline constexpr int kPromptScoreWords =
    prompt_score_word::kFirstAlternative + kPairWords * kMaxNaturalAlternatives;
static_assert(kPromptScoreWords == 43);

/// FP32 values travel as bits and are never converted. R11.
constexpr int32_t float_bits(float value) { return std::bit_cast<int32_t>(value); }
constexpr float bits_float(int32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace helios
