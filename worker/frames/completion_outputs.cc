#include "worker/frames/completion_outputs.h"

namespace helios {

CompletionOutputs::CompletionOutputs(const CoreShape& shape, Backend& backend)
    : slot_capacity_(shape.slot_capacity), token_capacity_(shape.token_capacity), alternatives_(shape.alternatives) {
  for (const BufferDeclaration& buffer : bundle_declarations(shape)) {
    const int64_t bytes = declared_bytes(buffer);
    bytes_ += bytes;
    Memory memory = backend.device_memory(static_cast<size_t>(bytes));
    if (buffer.name == buffer_name::kRecords) records_ = std::move(memory);
    if (buffer.name == buffer_name::kRequested) requested_ = std::move(memory);
    if (buffer.name == buffer_name::kTokenIds) token_ids_ = std::move(memory);
    if (buffer.name == buffer_name::kTokenIdCounts) token_id_counts_ = std::move(memory);
    if (buffer.name == buffer_name::kPromptTargets) prompt_targets_ = std::move(memory);
    if (buffer.name == buffer_name::kPromptLogprobs) {
      prompt_capacity_ = static_cast<int32_t>(buffer.shape[1]);
      prompt_rows_ = std::move(memory);
    }
    if (buffer.name == buffer_name::kLogprobs) {
      packed_words_ = static_cast<int>(buffer.shape.back());
      logprobs_ = std::move(memory);
    }
  }
}

}  // namespace helios
