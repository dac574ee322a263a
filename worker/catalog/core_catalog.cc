#include "worker/catalog/core_catalog.h"

#include <algorithm>

#include "common/contract/completion_layout.h"

namespace helios {
namespace {

void append_logprobs(const CoreShape& s, std::vector<BufferDeclaration>& out) {
  if (s.alternatives == 0) return;
  const int64_t capacity = s.slot_capacity, t = s.token_capacity;
  const int64_t last = s.token_ids ? kPackedWords : packed_words(s.alternatives);
  out.push_back({std::string(buffer_name::kLogprobs), BufferDtype::kInt32, {kNumFrames, capacity, t, last}});
  out.push_back({std::string(buffer_name::kRequested), BufferDtype::kInt32, {capacity}});
  if (!s.token_ids) return;
  out.push_back({std::string(buffer_name::kTokenIds), BufferDtype::kInt32, {capacity, kMaxSelectedIds}});
  out.push_back({std::string(buffer_name::kTokenIdCounts), BufferDtype::kInt32, {capacity}});
}

GraphDeclaration sampling_graph(const CoreShape& s, Operation operation, int32_t rows) {
  GraphDeclaration graph{.operation = operation,
                         .row_capacity = rows,
                         .bindings = {ValueSource::kLaneSlots, ValueSource::kLaneEpochs, ValueSource::kLaneRoles,
                                      ValueSource::kLaneSamples, ValueSource::kRowTokens, ValueSource::kRowPositions,
                                      ValueSource::kLaneCount, ValueSource::kBlockTables, ValueSource::kSlotStates,
                                      ValueSource::kFrame, ValueSource::kSequence},
                         .outputs = {std::string(buffer_name::kRecords)}};
  if (s.alternatives > 0) {
    graph.bindings.push_back(ValueSource::kLogprobRequested);
    graph.outputs.emplace_back(buffer_name::kLogprobs);
  }
  if (s.alternatives > 0 && s.token_ids) {
    graph.bindings.push_back(ValueSource::kLogprobTokenIds);
    graph.bindings.push_back(ValueSource::kLogprobTokenIdCounts);
  }
  return graph;
}

}  // namespace

std::vector<BufferDeclaration> bundle_declarations(const CoreShape& s) {
  std::vector<BufferDeclaration> out;
  out.push_back({std::string(buffer_name::kRecords),
                 BufferDtype::kInt64,
                 {kNumFrames, s.slot_capacity, record_words(s.token_capacity)}});
  append_logprobs(s, out);
  if (!s.prompt_scoring) return out;
  out.push_back({std::string(buffer_name::kPromptTargets), BufferDtype::kInt32, {s.prefill_chunk}});
  out.push_back({std::string(buffer_name::kPromptLogprobs),
                 BufferDtype::kInt32,
                 {kNumFrames, s.prefill_chunk, kPromptScoreWords}});
  return out;
}

int64_t declared_bytes(const BufferDeclaration& buffer) {
  int64_t bytes = buffer.dtype == BufferDtype::kInt64 ? 8 : 4;
  if (buffer.dtype == BufferDtype::kBFloat16 || buffer.dtype == BufferDtype::kFloat16) bytes = 2;
  for (const int64_t extent : buffer.shape) bytes *= extent;
  return bytes;
}

int32_t row_capacity(const CoreShape& s, Operation operation) {
  switch (operation) {
    case Operation::kPrefill:
    case Operation::kScoredPrefill:
      return s.prefill_chunk;
    case Operation::kDecode:
      return s.slot_capacity;
    case Operation::kMixed:
      return s.prefill_chunk + s.slot_capacity;
    case Operation::kVerify:
      if (s.num_speculative_tokens == 0) return 0;
      return s.slot_capacity + std::min(s.slot_capacity * s.num_speculative_tokens, kMaxStepProposals);
    default:
      return 0;
  }
}

int32_t sampling_capacity(const CoreShape& s, Operation operation) {
  return operation == Operation::kVerify ? row_capacity(s, operation) : s.slot_capacity;
}

int32_t most_rows(const CoreShape& s) {
  return std::max(row_capacity(s, Operation::kMixed), row_capacity(s, Operation::kVerify));
}

int32_t most_sampling_rows(const CoreShape& s) {
  return std::max(s.slot_capacity, sampling_capacity(s, Operation::kVerify));
}

int32_t emittable_positions(Operation operation, int32_t token_capacity) {
  switch (operation) {
    case Operation::kPrefill:
    case Operation::kDecode:
    case Operation::kMixed:
    case Operation::kScoredPrefill:
      return 1;
    case Operation::kVerify:
      return token_capacity;
    default:
      return 0;
  }
}

std::vector<GraphDeclaration> graph_declarations(const CoreShape& s) {
  std::vector<GraphDeclaration> out;
  out.push_back(
      {.operation = Operation::kAdmission,
       .row_capacity = 0,
       .bindings = {ValueSource::kSlotStates, ValueSource::kBlockTables, ValueSource::kFrame, ValueSource::kSequence},
       .outputs = {std::string(buffer_name::kRecords)}});
  for (const Operation operation : {Operation::kPrefill, Operation::kDecode, Operation::kMixed}) {
    out.push_back(sampling_graph(s, operation, row_capacity(s, operation)));
  }
  if (s.num_speculative_tokens > 0) {
    out.push_back(sampling_graph(s, Operation::kVerify, row_capacity(s, Operation::kVerify)));
  }
  if (!s.prompt_scoring) return out;
  for (const int32_t rows : scored_capacities(s.prefill_chunk)) {
    GraphDeclaration graph = sampling_graph(s, Operation::kScoredPrefill, rows);
    graph.bindings.push_back(ValueSource::kPromptTargetToken);
    graph.outputs.emplace_back(buffer_name::kPromptLogprobs);
    out.push_back(std::move(graph));
  }
  return out;
}

Result<CoreManifest> build_manifest(const CoreShape& s) {
  CoreManifest out{.model_type = s.model_type,
                   .device = s.device,
                   .dtype = s.dtype,
                   .kv_cache_dtype = s.kv_cache_dtype,
                   .vocab_size = s.vocab_size,
                   .max_model_len = s.max_model_len,
                   .slot_capacity = s.slot_capacity,
                   .token_capacity = s.token_capacity,
                   .prefill_chunk = s.prefill_chunk,
                   .kv_block_size = s.kv_block_size,
                   .kv_num_blocks = s.kv_num_blocks,
                   .host_num_blocks = s.host_num_blocks,
                   .buffers = bundle_declarations(s),
                   .graphs = graph_declarations(s)};
  if (auto capabilities = derive_capabilities(out); !capabilities) return capabilities.error();
  return out;
}

}  // namespace helios
