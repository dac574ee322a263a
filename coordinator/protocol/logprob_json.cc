#include "coordinator/protocol/logprob_json.h"

#include <algorithm>
#include <bitset>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>

#include "coordinator/protocol/float_text.h"
#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

constexpr float kLowestReported = -9999.0f;

constexpr std::string_view kIdKeyPrefix = "token_id:";
std::string id_key(TokenId id) { return std::string(kIdKeyPrefix) + std::to_string(id); }
constexpr size_t kIdKeyRoom = 24;

bool reportable(float logprob) { return logprob < INFINITY; }  // nor NaN

Error not_reportable() {
  return Error{Errc::kInternal, "the model produced a log-probability that is not a number", ""};
}

char* write_logprob(char* out, float logprob) { return write_float(out, std::max(logprob, kLowestReported)); }

/// Equal texts have equal ones, and others hardly ever: comparing K texts with K others costs.
uint64_t print_of(std::string_view text) {
  uint64_t head = 0;
  if (text.size() >= sizeof head) {
    std::memcpy(&head, text.data(), sizeof head);
  } else {
    for (const char c : text) head = head << 8 | static_cast<unsigned char>(c);
  }
  return (head ^ (text.size() << 56)) * 0x9E3779B97F4A7C15u;
}

/// The decimal digits of every byte and a comma, and how many they are.
struct ByteDigits {
  char digits[256][4] = {};
  uint8_t size[256] = {};
  constexpr ByteDigits() {
    for (int byte = 0; byte < 256; ++byte) {
      if (byte >= 100) digits[byte][size[byte]++] = static_cast<char>('0' + byte / 100);
      if (byte >= 10) digits[byte][size[byte]++] = static_cast<char>('0' + byte / 10 % 10);
      digits[byte][size[byte]++] = static_cast<char>('0' + byte % 10);
      digits[byte][size[byte]++] = ',';
    }
  }
};
constexpr ByteDigits kByteDigits;

void separate(std::string& list) {
  if (!list.empty()) list += ',';
}

/// Appends what `write` makes of [at, at + room): it returns the end.
template <class Write>
void append_in_place(std::string& out, size_t room, const Write& write) {
  const size_t size = out.size();
  out.resize(size + room);
  out.resize(static_cast<size_t>(write(out.data() + size) - out.data()));
}

template <size_t kSize>
char* put(char* out, const char (&text)[kSize]) {
  std::memcpy(out, text, kSize - 1);
  return out + kSize - 1;
}

size_t chat_token_room(std::string_view text, std::string_view bytes) {
  return json_string_room(text) + kFloatTextRoom + 4 * bytes.size() + 96;
}

/// {"token": ..., "logprob": ..., "bytes": [...], without the closing brace.
char* write_chat_token(char* out, std::string_view text, float logprob, std::string_view bytes) {
  out = put(out, "{\"token\":");
  out = write_json_string(out, text);
  out = put(out, ",\"logprob\":");
  out = write_logprob(out, logprob);
  out = put(out, ",\"bytes\":[");
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    std::memcpy(out, kByteDigits.digits[byte], sizeof kByteDigits.digits[byte]);
    out += kByteDigits.size[byte];
  }
  if (!bytes.empty()) --out;
  *out++ = ']';
  return out;
}

}  // namespace

Status append_logprob(std::string& out, float logprob) {
  if (!reportable(logprob)) return not_reportable();
  char text[kFloatTextRoom];
  out.append(text, write_logprob(text, logprob));
  return Ok{};
}

Status append_chat_entry(std::string& out, const OutputEntry& entry, const Tokenizer& tokenizer, bool with_ids) {
  bool all_reportable = reportable(entry.logprob);
  size_t room = chat_token_room(entry.text, entry.bytes);
  for (const OutputAlternative& other : entry.alternatives) {
    all_reportable &= reportable(other.logprob);
    room += chat_token_room(other.text, tokenizer.token_bytes(other.id));
  }
  if (!all_reportable) return not_reportable();
  const auto write_id = [&](char* to, TokenId id) {
    return with_ids ? std::to_chars(put(to, ",\"token_id\":"), to + kIdKeyRoom, id).ptr : to;
  };
  append_in_place(out, room, [&](char* to) {
    to = write_chat_token(to, entry.text, entry.logprob, entry.bytes);
    to = put(write_id(to, entry.id), ",\"top_logprobs\":[");
    for (const OutputAlternative& other : entry.alternatives) {
      to = write_chat_token(to, other.text, other.logprob, tokenizer.token_bytes(other.id));
      to = put(write_id(to, other.id), "},");
    }
    if (!entry.alternatives.empty()) --to;
    return put(to, "]}");
  });
  return Ok{};
}

Status LogprobArrays::append(const OutputEntry& entry, size_t max_alternatives) {
  separate(offsets_);
  offsets_ += std::to_string(entry.text_offset);
  separate(tokens_);
  append_json_string(tokens_, entry.text);
  separate(values_);
  separate(dictionaries_);
  if (!entry.has_value) {
    values_ += "null";
    dictionaries_ += "null";
    return Ok{};
  }
  if (Status status = append_logprob(values_, entry.logprob); !status) return status;
  return append_dictionary(entry, max_alternatives);
}

Status LogprobArrays::append_dictionary(const OutputEntry& entry, size_t max_alternatives) {
  candidates_.clear();
  prints_.clear();
  std::bitset<1024> seen;  // of the prints' first bits: most dictionaries show so that no text comes twice
  bool may_repeat = false;
  size_t room = 3;
  bool all_reportable = true;
  const auto add = [&](TokenId id, std::string_view text, float logprob) {
    candidates_.push_back({id, logprob, text});
    prints_.push_back(print_of(text));
    const size_t bit = prints_.back() >> 54;
    may_repeat |= seen[bit] || text.starts_with(kIdKeyPrefix);
    seen.set(bit);
    room += std::max(json_string_room(text), kIdKeyRoom) + kFloatTextRoom + 2;
    all_reportable &= reportable(logprob);
  };
  bool chosen_listed = false;
  for (const OutputAlternative& alternative :
       std::span(entry.alternatives).first(std::min(max_alternatives, entry.alternatives.size()))) {
    add(alternative.id, alternative.text, alternative.logprob);
    chosen_listed |= alternative.id == entry.id;
  }
  if (!chosen_listed) add(entry.id, entry.text, entry.logprob);
  if (!all_reportable) return not_reportable();
  append_in_place(dictionaries_, room, [&](char* to) {
    *to++ = '{';
    for (size_t i = 0; i < candidates_.size(); ++i) {
      to = write_json_string(to, !may_repeat || keeps_text(i) ? candidates_[i].text : id_key(candidates_[i].id));
      *to++ = ':';
      to = write_logprob(to, candidates_[i].logprob);
      *to++ = ',';
    }
    to[-1] = '}';
    return to;
  });
  return Ok{};
}

/// Wire formats, 0.5: a JSON object cannot hold a key twice, and clients take its maximum; so of several tokens with
/// one text the likeliest, then the one with the smaller id, keeps it, and the others are told apart by id.
bool LogprobArrays::keeps_text(size_t i) const {
  const Candidate& one = candidates_[i];
  // A token whose own text reads like an id key would take another's: it gives way.
  if (one.text.starts_with(kIdKeyPrefix) && one.text != id_key(one.id)) return false;
  if (std::count(prints_.begin(), prints_.end(), prints_[i]) == 1) return true;
  return std::none_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
    if (&other == &one || other.text != one.text) return false;
    return other.logprob != one.logprob ? other.logprob > one.logprob : other.id <= one.id;
  });
}

void LogprobArrays::clear() {
  offsets_.clear();
  values_.clear();
  tokens_.clear();
  dictionaries_.clear();
}

void LogprobArrays::append_object_or_null(std::string& out) const {
  if (empty()) {
    out += "null";
  } else {
    append_object(out);
  }
}

void LogprobArrays::append_object(std::string& out) const {
  out.append("{\"text_offset\":[").append(offsets_).append("],\"token_logprobs\":[").append(values_);
  out.append("],\"tokens\":[").append(tokens_).append("],\"top_logprobs\":[").append(dictionaries_).append("]}");
}

}  // namespace helios
