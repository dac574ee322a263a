#include "coordinator/protocol/logprob_json.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "coordinator/protocol/json_writer.h"

namespace helios {
namespace {

constexpr double kLowestReported = -9999.0;

struct Candidate {
  TokenId id;
  const std::string* text;
  float logprob;
};

std::string id_key(TokenId id) { return "token_id:" + std::to_string(id); }

/// Which of two tokens with one text keeps the text as its key: the likelier, then the smaller id.
bool keeps_text(const Candidate& a, const Candidate& b) {
  if (a.logprob != b.logprob) return a.logprob > b.logprob;
  return a.id < b.id;
}

/// Wire formats, 0.5: a JSON object cannot hold a key twice, and clients take its maximum; so the likeliest of several
/// tokens with one text keeps the text, and the others are told apart by id.
std::vector<std::string> distinct_keys(const std::vector<Candidate>& candidates) {
  std::vector<std::string> keys(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const std::string& text = *candidates[i].text;
    // A token whose own text reads like an id key would take another's: it gives way.
    bool keeps = !text.starts_with("token_id:") || text == id_key(candidates[i].id);
    for (size_t j = 0; keeps && j < candidates.size(); ++j) {
      keeps = i == j || text != *candidates[j].text || keeps_text(candidates[i], candidates[j]);
    }
    keys[i] = keeps ? *candidates[i].text : id_key(candidates[i].id);
  }
  return keys;
}

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
    out += std::to_string(static_cast<unsigned char>(bytes[i]));
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
  const auto alternatives =
      std::span(entry.alternatives).first(std::min(max_alternatives, entry.alternatives.size()));
  std::vector<Candidate> candidates;
  candidates.reserve(alternatives.size() + 1);
  bool chosen_listed = false;
  for (const OutputAlternative& alternative : alternatives) {
    candidates.push_back({alternative.id, &alternative.text, alternative.logprob});
    chosen_listed |= alternative.id == entry.id;
  }
  if (!chosen_listed) candidates.push_back({entry.id, &entry.text, entry.logprob});
  const std::vector<std::string> keys = distinct_keys(candidates);
  dictionaries_ += '{';
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0) dictionaries_ += ',';
    append_json_string(dictionaries_, keys[i]);
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
