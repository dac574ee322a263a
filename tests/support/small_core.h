// A small core's declarations: a valid manifest and its capabilities, for tests of what reads them.
#pragma once

#include "common/contract/completion_layout.h"
#include "common/contract/core_manifest.h"

namespace helios::testing {

struct SmallCoreOptions {
  int64_t vocab_size = 100;
  int32_t max_model_len = 64;
  int32_t slot_capacity = 4;
  int32_t prefill_chunk = 8;
  int32_t kv_block_size = 4;
  int32_t kv_num_blocks = 64;
  int32_t host_num_blocks = 0;
  bool logprobs = true;         // false: a core without the logprob buffers (R34)
  bool prompt_scoring = false;  // scored prefill's buffers and graphs (R45)
  int32_t num_proposals = 0;    // that a lane may bring; 0: no verify graph
};

inline CoreManifest small_core_manifest(const SmallCoreOptions& options = {}) {
  const int32_t tokens = options.num_proposals > 0 ? options.num_proposals + 1 : kDefaultTokenCapacity;
  const int64_t capacity = options.slot_capacity;
  CoreManifest m{.model_type = "scripted",
                 .device = "cpu",
                 .dtype = "float32",
                 .kv_cache_dtype = "float32",
                 .vocab_size = options.vocab_size,
                 .max_model_len = options.max_model_len,
                 .slot_capacity = options.slot_capacity,
                 .token_capacity = tokens,
                 .prefill_chunk = options.prefill_chunk,
                 .kv_block_size = options.kv_block_size,
                 .kv_num_blocks = options.kv_num_blocks,
                 .host_num_blocks = options.host_num_blocks};
  m.buffers.push_back(
      {std::string(buffer_name::kRecords), BufferDtype::kInt64, {kNumFrames, capacity, record_words(tokens)}});
  std::vector<ValueSource> bindings{ValueSource::kLaneSlots};
  if (options.logprobs) {
    m.buffers.push_back(
        {std::string(buffer_name::kLogprobs), BufferDtype::kInt32, {kNumFrames, capacity, tokens, kPackedWords}});
    m.buffers.push_back({std::string(buffer_name::kRequested), BufferDtype::kInt32, {capacity}});
    m.buffers.push_back({std::string(buffer_name::kTokenIds), BufferDtype::kInt32, {capacity, kMaxSelectedIds}});
    m.buffers.push_back({std::string(buffer_name::kTokenIdCounts), BufferDtype::kInt32, {capacity}});
    bindings.insert(bindings.end(), {ValueSource::kLogprobRequested, ValueSource::kLogprobTokenIds,
                                     ValueSource::kLogprobTokenIdCounts});
  }
  for (const Operation operation : {Operation::kPrefill, Operation::kDecode, Operation::kMixed}) {
    m.graphs.push_back({operation, options.prefill_chunk + options.slot_capacity, bindings, {}});
  }
  if (options.num_proposals > 0) {
    m.graphs.push_back({Operation::kVerify, options.slot_capacity + 2 * options.num_proposals, bindings, {}});
  }
  if (!options.prompt_scoring) return m;
  const int64_t chunk = options.prefill_chunk;
  m.buffers.push_back({std::string(buffer_name::kPromptTargets), BufferDtype::kInt32, {chunk}});
  m.buffers.push_back(
      {std::string(buffer_name::kPromptLogprobs), BufferDtype::kInt32, {kNumFrames, chunk, kPromptScoreWords}});
  bindings.push_back(ValueSource::kPromptTargetToken);
  for (const int32_t rows : scored_capacities(options.prefill_chunk)) {
    m.graphs.push_back({Operation::kScoredPrefill,
                        rows,
                        bindings,
                        {std::string(buffer_name::kRecords), std::string(buffer_name::kLogprobs),
                         std::string(buffer_name::kPromptLogprobs)}});
  }
  return m;
}

inline Capabilities small_core(const SmallCoreOptions& options = {}) {
  return derive_capabilities(small_core_manifest(options)).value();
}

}  // namespace helios::testing
