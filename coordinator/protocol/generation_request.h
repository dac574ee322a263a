// What every generating endpoint's body has in common: sampling, stops, streaming, logprobs. Types checked, no more.
//
// Each endpoint reads the rest and says what its own `logprobs` means. Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/protocol/structured_output.h"

namespace helios {

class JsonFields;

struct StreamOptions {
  bool include_usage = false;
  bool continuous_usage_stats = false;
};

struct GenerationRequest {
  std::optional<std::string> model, request_id, cache_salt;
  bool echo = false, stream = false;
  bool has_stream_options = false;  // an object with members
  StreamOptions stream_options;

  std::optional<int64_t> max_tokens, min_tokens, n, best_of, top_k, seed, priority;
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::vector<std::pair<std::string, double>> logit_bias;  // keys as written
  std::optional<std::vector<int64_t>> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::vector<std::string> stop;
  std::vector<int64_t> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int64_t> truncate_prompt_tokens;  // -1: what fits
  std::optional<std::string> truncation_side;     // the end that is cut off; absent: "left"
  std::optional<int64_t> stream_interval;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool add_special_tokens = true;
  bool return_tokens_as_token_ids = false;
  bool return_token_ids = false;

  std::optional<int64_t> logprobs;  // natural alternatives to report; absent: no logprobs. The endpoint's to read
  std::optional<int64_t> prompt_logprobs;
  std::optional<std::vector<int64_t>> logprob_token_ids;
  StructuredOutputFields structured;

  std::optional<int64_t> thinking_token_budget;

  // Known, and refused unless they change nothing.
  std::optional<double> length_penalty;
  bool use_beam_search = false;
  std::optional<std::string> suffix;
  std::string unbuilt_field;  // the first of the fields that have no neutral value but null
};

/// Reads all of the above but `logprobs`; `fields` keeps the first fault. Source: wire formats, 3.1.
void read_generation_fields(JsonFields& fields, GenerationRequest* request);

}  // namespace helios
