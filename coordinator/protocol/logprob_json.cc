#include "coordinator/protocol/logprob_json.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

constexpr double kLowestReported = -9999.0;

std::string id_key(TokenId id) { return "token_id:" + std::to_string(id); }

struct Candidate {
  TokenId id;
  const std::string* text;
  float logprob;
  uint64_t print;  // equal texts have equal ones, and others hardly ever: comparing K texts with K others costs
};

uint64_t print_of(std::string_view text) {
  uint64_t head = 0;
  if (!text.empty()) std::memcpy(&head, text.data(), std::min(text.size(), sizeof head));
  return (head ^ (text.size() << 56)) * 0x9E3779B97F4A7C15u;
}

/// Which of two tokens with one text keeps the text as its key: the likelier, then the smaller id.
bool keeps_text(const Candidate& a, const Candidate& b) {
  if (a.logprob != b.logprob) return a.logprob > b.logprob;
  return a.id < b.id;
}

/// Wire formats, 0.5: a JSON object cannot hold a key twice, and clients take its maximum; so the likeliest of several
/// tokens with one text keeps the text, and the others are told apart by id.
bool keeps_text(const std::vector<Candidate>& candidates, size_t i) {
  const Candidate& one = candidates[i];
  // A token whose own text reads like an id key would take another's: it gives way.
  bool keeps = !one.text->starts_with("token_id:") || *one.text == id_key(one.id);
  for (size_t j = 0; j < candidates.size(); ++j) {
    const Candidate& other = candidates[j];
    if (other.print != one.print || i == j) continue;
    keeps = keeps && (*one.text != *other.text || keeps_text(one, other));
  }
  return keeps;
}

/// The decimal digits of every byte, and how many they are.
struct ByteDigits {
  char digits[256][3] = {};
  uint8_t size[256] = {};
  constexpr ByteDigits() {
    for (int byte = 0; byte < 256; ++byte) {
      if (byte >= 100) digits[byte][size[byte]++] = static_cast<char>('0' + byte / 100);
      if (byte >= 10) digits[byte][size[byte]++] = static_cast<char>('0' + byte / 10 % 10);
      digits[byte][size[byte]++] = static_cast<char>('0' + byte % 10);
    }
  }
};
constexpr ByteDigits kByteDigits;

void separate(std::string& list) {
  if (!list.empty()) list += ',';
}

/// {"token": ..., "logprob": ..., "bytes": [...], without the closing brace.
Status open_chat_token(std::string& out, const std::string& text, float logprob, std::string_view bytes) {
  out += "{\"token\":";
  append_json_string(out, text);
  out += ",\"logprob\":";
  if (Status status = append_logprob(out, logprob); !status) return status;
  out += ",\"bytes\":[";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    out.append(kByteDigits.digits[byte], kByteDigits.size[byte]);
  }
  out += ']';
  return Ok{};
}

}  // namespace

Status append_logprob(std::string& out, float logprob) {
  if (std::isnan(logprob) || logprob == INFINITY) {
    return Error{Errc::kInternal, "the model produced a log-probability that is not a number", ""};
  }
  const auto value = static_cast<double>(logprob);
  append_json_number(out, value < kLowestReported ? kLowestReported : value);
  return Ok{};
}

Status append_chat_entry(std::string& out, const OutputEntry& entry, const Tokenizer& tokenizer, bool with_ids) {
  const auto append_id = [&](TokenId id) {
    if (with_ids) out += ",\"token_id\":" + std::to_string(id);
  };
  if (Status status = open_chat_token(out, entry.text, entry.logprob, entry.bytes); !status) return status;
  append_id(entry.id);
  out += ",\"top_logprobs\":[";
  for (const OutputAlternative& other : entry.alternatives) {
    if (&other != &entry.alternatives.front()) out += ',';
    const std::string_view bytes = tokenizer.token_bytes(other.id);
    if (Status status = open_chat_token(out, other.text, other.logprob, bytes); !status) return status;
    append_id(other.id);
    out += '}';
  }
  out += "]}";
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
  const auto alternatives = std::span(entry.alternatives).first(std::min(max_alternatives, entry.alternatives.size()));
  std::vector<Candidate> candidates;
  candidates.reserve(alternatives.size() + 1);
  bool chosen_listed = false;
  for (const OutputAlternative& alternative : alternatives) {
    candidates.push_back({alternative.id, &alternative.text, alternative.logprob, print_of(alternative.text)});
    chosen_listed |= alternative.id == entry.id;
  }
  if (!chosen_listed) candidates.push_back({entry.id, &entry.text, entry.logprob, print_of(entry.text)});
  dictionaries_ += '{';
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0) dictionaries_ += ',';
    append_json_string(dictionaries_, keeps_text(candidates, i) ? *candidates[i].text : id_key(candidates[i].id));
    dictionaries_ += ':';
    if (Status status = append_logprob(dictionaries_, candidates[i].logprob); !status) return status;
  }
  dictionaries_ += '}';
  return Ok{};
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
  out += "{\"text_offset\":[" + offsets_ + "],\"token_logprobs\":[" + values_ + "],\"tokens\":[" + tokens_ +
         "],\"top_logprobs\":[" + dictionaries_ + "]}";
}

}  // namespace helios
