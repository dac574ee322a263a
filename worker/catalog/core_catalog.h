// What a core says about itself: the completion bundle's declarations, the graphs with their bindings, the manifest.
//
// The declarations are made first; buffers are allocated from them and graphs captured for them, so what is declared is
// what exists. Thread: start-up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/contract/core_manifest.h"

namespace helios {

/// The shape of a core, decided before anything is allocated.
struct CoreShape {
  std::string model_type, device, dtype, kv_cache_dtype;
  int64_t vocab_size = 0;
  int32_t max_model_len = 0;
  int32_t slot_capacity = 0;
  int32_t token_capacity = 0;  // T, resolved
  int32_t num_speculative_tokens = 0;  // N: proposals of a lane at most, T - 1; 0: no verify graph
  int32_t prefill_chunk = 0;
  int32_t kv_block_size = 0;
  int32_t kv_num_blocks = 0;
  int32_t host_num_blocks = 0;  // of the tier behind the KV cache; 0: none
  int32_t alternatives = 0;     // K; 0: no logprob buffers (R34)
  bool token_ids = false;       // the id inputs; only with K = 20, whose layout they fix at 258 words
  bool prompt_scoring = false;  // scored prefill graphs and their buffers; only with K = 20 (R45)
};

/// The bundle: records alone with K = 0, records, packed output and flags without the id inputs, else all five (R10,
/// R35). Behind them, with prompt scoring, the targets and the prompt rows (R40).
std::vector<BufferDeclaration> bundle_declarations(const CoreShape& shape);

/// Elements times bytes of a declared buffer.
int64_t declared_bytes(const BufferDeclaration& buffer);

/// Admission (no rows), prefill, decode and mixed, with row capacities and bindings (R12, R14). Behind them, with
/// speculation, the verify graph, which has no prompt rows and binds what decode does (R3); and, with prompt scoring,
/// the scored graphs: the ordinary catalog is the same with and without them (R39).
std::vector<GraphDeclaration> graph_declarations(const CoreShape& shape);

/// Proposals of one verify step together, over its lanes. Each is a row whose logits are kept until the step ends, with
/// scratch as wide, so their memory has this bound whatever the slots and N; past it a batch is large enough that most
/// of what speculation saves is saved already.
inline constexpr int32_t kMaxStepProposals = 128;

/// Rows that an operation's (largest) graph can hold. A verification's: one for each slot, and proposals: N for each,
/// at most kMaxStepProposals together.
int32_t row_capacity(const CoreShape& shape, Operation operation);

/// Of these, rows whose next token is sampled: one a slot, in a verification all.
int32_t sampling_capacity(const CoreShape& shape, Operation operation);

/// The most of both in any step: what a core's buffers are made for.
int32_t most_rows(const CoreShape& shape);
int32_t most_sampling_rows(const CoreShape& shape);

/// Tokens that a lane of an operation can emit, which is as many positions as a read-back copies: one, or after a
/// verification a whole record's T. 0: the operation writes records only (R19).
int32_t emittable_positions(Operation operation, int32_t token_capacity);

/// The manifest without its memory report, checked by derive_capabilities(). Errors: kMismatch.
Result<CoreManifest> build_manifest(const CoreShape& shape);

}  // namespace helios
