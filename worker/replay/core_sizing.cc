#include "worker/replay/core_sizing.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "common/base/readable_bytes.h"
#include "common/contract/completion_layout.h"
#include "worker/model/kv_cache.h"

namespace helios {
namespace {

constexpr int kMaxSlots = 4096;
constexpr int kMaxPrefillChunk = 1 << 16;
constexpr int kMaxTokenCapacity = 1024;

void expect_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    throw LoadError(fmt::format("{}: expected {} to {}, found {}", name, low, high, value));
  }
}

bool stores_bf16(const CoreConfig& config) {
  if (config.kv_cache_dtype == KvCacheDtype::kAuto) return config.dtype == ComputeDtype::kBFloat16;
  return config.kv_cache_dtype == KvCacheDtype::kBFloat16;
}

const char* dtype_name(ComputeDtype dtype) {
  if (dtype == ComputeDtype::kBFloat16) return "bfloat16";
  return dtype == ComputeDtype::kFloat16 ? "float16" : "float32";
}

int64_t block_bytes_of(const CoreShape& shape, const ModelConfig& model, const RankShape& rank) {
  return KvCache::block_bytes(model.num_layers, rank.num_kv(), model.head_dim, kv_dtype(shape));
}

}  // namespace

DType rounded_dtype(const CoreShape& shape) {
  if (shape.dtype == "bfloat16") return DType::kBFloat16;
  return shape.dtype == "float16" ? DType::kFloat16 : DType::kFloat32;
}

DType kv_dtype(const CoreShape& shape) {
  return shape.kv_cache_dtype == "bfloat16" ? DType::kBFloat16 : DType::kFloat32;
}

CoreShape size_core(const CoreConfig& config, const ModelConfig& model, int world, Backend& backend) {
  if (!valid_world_size(world)) throw LoadError(fmt::format("world size: expected 1, 2, 4 or 8, found {}", world));
  if (config.tp_reduce == TpReduce::kFast && backend.name() == "cpu") {
    throw LoadError("tp_reduce fast: only cuda adds partial sums in its library; on this device they are canonical");
  }
  expect_range("max_num_seqs", config.slot_capacity, 1, kMaxSlots);
  expect_range("prefill_chunk", config.prefill_chunk, 1, kMaxPrefillChunk);
  expect_range("token_capacity", config.token_capacity, 0, kMaxTokenCapacity);
  expect_range("num_speculative_tokens", config.num_speculative_tokens, 0, kMaxSpeculativeTokens);
  if (config.num_speculative_tokens > 0 && config.token_capacity > 0) {
    throw LoadError(fmt::format("token_capacity: with num_speculative_tokens {} it is one more; expected 0, found {}",
                                config.num_speculative_tokens, config.token_capacity));
  }
  expect_range("max_logprobs", config.max_logprobs, 0, kMaxNaturalAlternatives);
  expect_range("max_model_len", config.max_model_len, 0, INT32_MAX);
  if (config.max_model_len > model.max_positions) {
    throw LoadError(fmt::format("{}/config.json: max_model_len {} is over the model's max_position_embeddings {}",
                                config.model_dir, config.max_model_len, model.max_positions));
  }
  CoreShape shape{.model_type = model.model_type,
                  .device = std::string(backend.name()),
                  .dtype = dtype_name(config.dtype),
                  .kv_cache_dtype = stores_bf16(config) ? "bfloat16" : "float32",
                  .vocab_size = model.vocab_size,
                  .max_model_len = config.max_model_len > 0 ? config.max_model_len : model.max_positions,
                  .slot_capacity = config.slot_capacity,
                  .token_capacity = resolve_token_capacity(config.token_capacity),
                  .num_speculative_tokens = config.num_speculative_tokens,
                  .prefill_chunk = config.prefill_chunk,
                  .kv_block_size = kKvBlockSize,
                  .alternatives = config.max_logprobs};
  if (shape.num_speculative_tokens > 0) shape.token_capacity = shape.num_speculative_tokens + 1;
  shape.token_ids = config.logprob_token_ids && config.max_logprobs == kMaxNaturalAlternatives;
  shape.prompt_scoring = config.prompt_logprobs;
  if (shape.prompt_scoring && config.max_logprobs != kMaxNaturalAlternatives) {
    throw LoadError(
        fmt::format("prompt_logprobs: needs max_logprobs {}, found {}", kMaxNaturalAlternatives, config.max_logprobs));
  }
  return shape;
}

/// Exchanged in device memory, where every communicator can reach it.
static int64_t smallest_of_all(int64_t value, Communicator& communicator, Device& device) {
  const auto world = static_cast<size_t>(communicator.world_size());
  Memory pinned = device.backend->pinned_memory((world + 1) * sizeof(int64_t));
  Memory memory = device.backend->device_memory((world + 1) * sizeof(int64_t));
  int64_t* const host = pinned.as<int64_t>();
  int64_t* const own = memory.as<int64_t>();
  host[world] = value;
  device.compute->copy(own + world, host + world, sizeof(int64_t));
  device.compute->synchronize();
  communicator.all_gather_words<int64_t>({own + world, 1}, {own, world});
  device.compute->copy(host, own, world * sizeof(int64_t));
  device.compute->synchronize();
  return *std::min_element(host, host + world);
}

/// A rank without heads holds any number.
static int64_t blocks_in(int64_t bytes, int64_t block_bytes) {
  return block_bytes > 0 ? std::min<int64_t>(bytes / block_bytes, INT32_MAX) : INT32_MAX;
}

int32_t size_kv_cache(const CoreConfig& config, const CoreShape& shape, const ModelConfig& model, const RankShape& rank,
                      Communicator& communicator, Device& device) {
  const int64_t block_bytes = block_bytes_of(shape, model, rank);
  const int64_t sequence_blocks = (shape.max_model_len + kKvBlockSize - 1) / kKvBlockSize;
  int64_t blocks = (config.kv_cache_tokens + kKvBlockSize - 1) / kKvBlockSize;
  if (config.kv_cache_bytes > 0) {
    const int64_t free = device.backend->free_memory();
    if (config.kv_cache_bytes > free) {
      throw LoadError(fmt::format("KV cache: {} were asked for, {} are free", readable_bytes(config.kv_cache_bytes),
                                  readable_bytes(free)));
    }
    blocks = blocks_in(config.kv_cache_bytes, block_bytes);
  } else if (config.kv_cache_tokens <= 0) {
    blocks = std::min<int64_t>(sequence_blocks * shape.slot_capacity, INT32_MAX);
    const int64_t budget = device.backend->free_memory() / 4 / rank.world;  // ranks of one host share its memory
    if (block_bytes > 0) blocks = std::min(blocks, budget / block_bytes);
  }
  blocks = smallest_of_all(blocks, communicator, device);
  if (blocks < sequence_blocks || blocks > INT32_MAX) {
    throw LoadError(
        fmt::format("KV cache: expected at least {} blocks of {} positions for one sequence of {}, found room for {}",
                    sequence_blocks, kKvBlockSize, shape.max_model_len, blocks));
  }
  return static_cast<int32_t>(blocks);
}

int32_t size_host_tier(const CoreConfig& config, const CoreShape& shape, const ModelConfig& model,
                       const RankShape& rank, Communicator& communicator, Device& device) {
  if (config.host_tier_bytes <= 0) return 0;
  const int64_t block_bytes = block_bytes_of(shape, model, rank);
  if (const int64_t free = device.backend->free_memory();
      device.backend->name() == "cpu" && config.host_tier_bytes > free) {  // elsewhere the device says so itself
    throw LoadError(fmt::format("host tier: {} were asked for, {} are free", readable_bytes(config.host_tier_bytes),
                                readable_bytes(free)));
  }
  const int64_t blocks = smallest_of_all(blocks_in(config.host_tier_bytes, block_bytes), communicator, device);
  if (blocks < 1) {
    throw LoadError(fmt::format("host tier: {} do not hold one block of {} positions, which has {}",
                                readable_bytes(config.host_tier_bytes), kKvBlockSize, readable_bytes(block_bytes)));
  }
  return static_cast<int32_t>(blocks);
}

}  // namespace helios
