// A core's declaration of itself: buffers, graphs, bindings, and the facts that a scheduler needs.
//
// Every rank sends its manifest when it is prepared. The coordinator checks that their I/O layouts are identical and
// derives Capabilities; a malformed declaration fails loading with a message that names the buffer, what was expected
// and what was found (R34 to R36).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/contract/operation.h"
#include "common/contract/value_source.h"

namespace helios {

enum class BufferDtype : int32_t { kInt32 = 0, kInt64 = 1, kFloat32 = 2, kBFloat16 = 3, kFloat16 = 4 };
std::string_view to_string(BufferDtype dtype);

struct BufferDeclaration {
  std::string name;
  BufferDtype dtype = BufferDtype::kInt32;
  std::vector<int64_t> shape;
  friend bool operator==(const BufferDeclaration&, const BufferDeclaration&) = default;
};

struct GraphDeclaration {
  Operation operation = Operation::kInvalid;
  int32_t row_capacity = 0;
  std::vector<ValueSource> bindings;
  std::vector<std::string> outputs;  // buffer names
  friend bool operator==(const GraphDeclaration&, const GraphDeclaration&) = default;
};

/// Bytes, per rank. Each part's physical bytes are stated apart from the device's totals (R25).
struct MemoryReport {
  int64_t weights_bytes = 0;
  int64_t kv_cache_bytes = 0;
  int64_t bundle_bytes = 0;  // prompt scoring's buffers included
  int64_t workspace_bytes = 0;
  int64_t pinned_bytes = 0;  // staging and read-back
  int64_t host_tier_bytes = 0;
  int64_t scoring_bytes = 0;           // prompt scoring's workspace
  int64_t device_allocated_bytes = 0;  // what the core asked the device for: the sum of its parts there
  int64_t device_reserved_bytes = 0;   // what the device set aside for the process, for whatever reason
  friend bool operator==(const MemoryReport&, const MemoryReport&) = default;
};

struct CoreManifest {
  std::string model_type;      // "qwen3", ...
  std::string device;          // "cpu", "cuda"
  std::string dtype;           // how numbers are computed, for people
  std::string kv_cache_dtype;  // what keys and values are stored as, for people
  int64_t vocab_size = 0;
  int32_t max_model_len = 0;
  int32_t slot_capacity = 0;
  int32_t token_capacity = 0;  // T
  int32_t prefill_chunk = 0;   // prompt rows in one submission
  int32_t kv_block_size = 0;   // positions
  int32_t kv_num_blocks = 0;
  int32_t host_num_blocks = 0;  // KV cache blocks that the host tier holds; 0: none
  std::vector<BufferDeclaration> buffers;
  std::vector<GraphDeclaration> graphs;
  MemoryReport memory;  // may differ between ranks; everything else must not
};

/// What the loaded core can do: what /v1/models advertises and validation compares requests with.
struct Capabilities {
  int64_t vocab_size = 0;
  int32_t max_model_len = 0;
  int32_t slot_capacity = 0;
  int32_t token_capacity = 0;
  int32_t prefill_chunk = 0;
  int32_t kv_block_size = 0;
  int32_t kv_num_blocks = 0;
  int32_t host_num_blocks = 0;             // of the tier behind the KV cache; 0: none
  int32_t max_logprobs = 0;                // K; 0: no logprobs at all (R34)
  bool logprob_token_ids = false;          // R7, R35
  bool prompt_scoring = false;             // R45
  std::vector<int32_t> scored_capacities;  // prompt rows of each scored graph, ascending; empty without prompt scoring
  int32_t verify_rows = 0;  // of a verify step's lanes together, each 1 + its proposals; 0: no verification
  /// Proposals that a lane may bring. R3.
  int32_t max_proposals() const { return verify_rows > 0 ? token_capacity - 1 : 0; }
  friend bool operator==(const Capabilities&, const Capabilities&) = default;
};

/// Row capacities of the scored graphs: from 128 on fourfold below the chunk limit, which is always the last. R39.
std::vector<int32_t> scored_capacities(int32_t prefill_chunk);

/// Checks the declarations' dtypes, ranks, extents and bindings. Errors: kMismatch, naming buffer, expected, found.
Result<Capabilities> derive_capabilities(const CoreManifest& manifest);

/// Ok when two ranks declare the same core, their memory aside. Errors: kMismatch, naming the first difference.
Status check_same_core(const CoreManifest& a, const CoreManifest& b);

namespace buffer_name {
inline constexpr std::string_view kRecords = "completion_records";
inline constexpr std::string_view kLogprobs = "completion_logprobs";
inline constexpr std::string_view kRequested = "logprob_requested";
inline constexpr std::string_view kTokenIds = "logprob_token_ids";
inline constexpr std::string_view kTokenIdCounts = "logprob_token_id_counts";
inline constexpr std::string_view kPromptTargets = "prompt_target_tokens";
inline constexpr std::string_view kPromptLogprobs = "prompt_logprobs";
}  // namespace buffer_name

}  // namespace helios
