#include "common/contract/core_manifest.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/contract/completion_layout.h"

namespace helios {
namespace {

const BufferDeclaration* find(const CoreManifest& manifest, std::string_view name) {
  const auto it = std::find_if(manifest.buffers.begin(), manifest.buffers.end(),
                               [&](const BufferDeclaration& b) { return b.name == name; });
  return it == manifest.buffers.end() ? nullptr : &*it;
}

std::string describe(BufferDtype dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{}[{}]", to_string(dtype), fmt::join(shape, ", "));
}

Status expect(const BufferDeclaration& found, BufferDtype dtype, const std::vector<int64_t>& shape) {
  if (found.dtype == dtype && found.shape == shape) return Ok{};
  return Error{Errc::kMismatch, fmt::format("buffer {}: expected {}, found {}", found.name, describe(dtype, shape),
                                            describe(found.dtype, found.shape))};
}

bool samples(Operation operation) {
  return operation == Operation::kPrefill || operation == Operation::kDecode || operation == Operation::kMixed ||
         operation == Operation::kVerify || operation == Operation::kScoredPrefill;
}

bool binds(const GraphDeclaration& graph, ValueSource source) {
  return std::find(graph.bindings.begin(), graph.bindings.end(), source) != graph.bindings.end();
}

Status require_binding(const GraphDeclaration& graph, ValueSource source, std::string_view name) {
  if (binds(graph, source)) return Ok{};
  return Error{Errc::kMismatch, fmt::format("graph {}[{}]: expected a binding of {}, found none",
                                            to_string(graph.operation), graph.row_capacity, name)};
}

Status positive(std::string_view name, int64_t value) {
  if (value > 0) return Ok{};
  return Error{Errc::kMismatch, fmt::format("core manifest: {} must be positive, found {}", name, value)};
}

/// What no declaration may do, whatever the core can.
Status check_names(const CoreManifest& m) {
  for (size_t i = 0; i < m.buffers.size(); ++i) {
    if (find(m, m.buffers[i].name) != &m.buffers[i])
      return Error{Errc::kMismatch, fmt::format("buffer {}: expected one declaration, found two", m.buffers[i].name)};
  }
  const std::pair<ValueSource, std::string_view> inputs[] = {{ValueSource::kLogprobRequested, buffer_name::kRequested},
                                                             {ValueSource::kLogprobTokenIds, buffer_name::kTokenIds},
                                                             {ValueSource::kLogprobTokenIdCounts,
                                                              buffer_name::kTokenIdCounts},
                                                             {ValueSource::kPromptTargetToken,
                                                              buffer_name::kPromptTargets}};
  for (const GraphDeclaration& graph : m.graphs) {
    const std::string where = fmt::format("graph {}[{}]", to_string(graph.operation), graph.row_capacity);
    for (const std::string& output : graph.outputs) {
      if (!find(m, output))
        return Error{Errc::kMismatch,
                     fmt::format("{}: expected output {} among the buffers, found none", where, output)};
    }
    for (const auto& [source, name] : inputs) {
      if (binds(graph, source) && !find(m, name))
        return Error{Errc::kMismatch,
                     fmt::format("{}: binds buffer {}, expected its declaration, found none", where, name)};
    }
  }
  return Ok{};
}

/// The logprob part of the bundle: sets K and selected-id support. R34, R35, R36.
Status derive_logprobs(const CoreManifest& m, Capabilities* out) {
  const BufferDeclaration* packed = find(m, buffer_name::kLogprobs);
  const BufferDeclaration* requested = find(m, buffer_name::kRequested);
  const BufferDeclaration* ids = find(m, buffer_name::kTokenIds);
  const BufferDeclaration* counts = find(m, buffer_name::kTokenIdCounts);
  if (!packed && !requested && !ids && !counts) return Ok{};  // K = 0: serves without logprobs

  const auto missing = [](std::string_view declared, std::string_view absent) {
    return Error{Errc::kMismatch, fmt::format("buffer {}: declared without {}", declared, absent)};
  };
  if (!packed) return missing((requested ? requested : ids ? ids : counts)->name, buffer_name::kLogprobs);
  if (!requested) return missing(packed->name, buffer_name::kRequested);
  if (ids && !counts) return missing(ids->name, buffer_name::kTokenIdCounts);
  if (counts && !ids) return missing(counts->name, buffer_name::kTokenIds);

  const int64_t capacity = m.slot_capacity, t = m.token_capacity;
  if (auto s = expect(*requested, BufferDtype::kInt32, {capacity}); !s) return s;
  if (ids) {
    if (auto s = expect(*packed, BufferDtype::kInt32, {kNumFrames, capacity, t, kPackedWords}); !s) return s;
    if (auto s = expect(*ids, BufferDtype::kInt32, {capacity, kMaxSelectedIds}); !s) return s;
    if (auto s = expect(*counts, BufferDtype::kInt32, {capacity}); !s) return s;
    out->max_logprobs = kMaxNaturalAlternatives;
    out->logprob_token_ids = true;
  } else {
    const int64_t last = packed->shape.empty() ? 0 : packed->shape.back();
    const int64_t k = (last - kPairWords) / kPairWords;
    if (last % kPairWords != 0 || k < 1 || k > kMaxNaturalAlternatives) {
      return Error{Errc::kMismatch,
                   fmt::format("buffer {}: expected a last extent of 2 + 2*K with 1 <= K <= {}, found {}", packed->name,
                               kMaxNaturalAlternatives, describe(packed->dtype, packed->shape))};
    }
    if (auto s = expect(*packed, BufferDtype::kInt32, {kNumFrames, capacity, t, last}); !s) return s;
    out->max_logprobs = static_cast<int32_t>(k);
  }
  for (const GraphDeclaration& graph : m.graphs) {
    if (!samples(graph.operation)) continue;
    if (auto s = require_binding(graph, ValueSource::kLogprobRequested, buffer_name::kRequested); !s) return s;
    if (!ids) continue;
    if (auto s = require_binding(graph, ValueSource::kLogprobTokenIds, buffer_name::kTokenIds); !s) return s;
    if (auto s = require_binding(graph, ValueSource::kLogprobTokenIdCounts, buffer_name::kTokenIdCounts); !s) return s;
  }
  return Ok{};
}

bool writes(const GraphDeclaration& graph, std::string_view buffer) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), buffer) != graph.outputs.end();
}

Status check_scored_graph(const GraphDeclaration& graph) {
  if (auto s = require_binding(graph, ValueSource::kPromptTargetToken, buffer_name::kPromptTargets); !s) return s;
  for (const std::string_view output : {buffer_name::kRecords, buffer_name::kLogprobs, buffer_name::kPromptLogprobs}) {
    if (writes(graph, output)) continue;
    return Error{Errc::kMismatch, fmt::format("graph {}[{}]: expected an output {}, found none",
                                              to_string(graph.operation), graph.row_capacity, output)};
  }
  return Ok{};
}

/// Prompt scoring is whole or absent: both buffers and every scored graph, beside K = 20. R39, R40, R45.
Status derive_scoring(const CoreManifest& m, Capabilities* out) {
  const BufferDeclaration* targets = find(m, buffer_name::kPromptTargets);
  const BufferDeclaration* rows = find(m, buffer_name::kPromptLogprobs);
  std::vector<int32_t> capacities;
  for (const GraphDeclaration& graph : m.graphs) {
    if (graph.operation == Operation::kScoredPrefill) capacities.push_back(graph.row_capacity);
    else if (binds(graph, ValueSource::kPromptTargetToken) || writes(graph, buffer_name::kPromptLogprobs))
      return Error{Errc::kMismatch, fmt::format("graph {}[{}]: expected no prompt scoring in this operation",
                                                to_string(graph.operation), graph.row_capacity)};
  }
  if (!targets && !rows && capacities.empty()) return Ok{};
  const auto incomplete = [](std::string_view absent) {
    return Error{Errc::kMismatch,
                 fmt::format("prompt scoring (prompt_logprobs): declared in part, expected {}, found none", absent)};
  };
  if (!rows) return incomplete(buffer_name::kPromptLogprobs);
  if (!targets) return incomplete(buffer_name::kPromptTargets);
  if (capacities.empty()) return incomplete("scored_prefill graphs");
  if (out->max_logprobs != kMaxNaturalAlternatives) {
    return Error{Errc::kMismatch,
                 fmt::format("buffer {}: prompt scoring needs {} with K = {}, found K = {}", rows->name,
                             buffer_name::kLogprobs, kMaxNaturalAlternatives, out->max_logprobs)};
  }
  if (auto s = expect(*targets, BufferDtype::kInt32, {m.prefill_chunk}); !s) return s;
  if (auto s = expect(*rows, BufferDtype::kInt32, {kNumFrames, m.prefill_chunk, kPromptScoreWords}); !s) return s;
  if (const auto expected = scored_capacities(m.prefill_chunk); capacities != expected) {
    return Error{Errc::kMismatch, fmt::format("graphs scored_prefill: expected capacities [{}], found [{}]",
                                              fmt::join(expected, ", "), fmt::join(capacities, ", "))};
  }
  for (const GraphDeclaration& graph : m.graphs) {
    if (graph.operation != Operation::kScoredPrefill) continue;
    if (auto s = check_scored_graph(graph); !s) return s;
  }
  out->prompt_scoring = true;
  out->scored_capacities = std::move(capacities);
  return Ok{};
}

/// A verify step has room for every slot, and for the proposals of one of them at least.
Status derive_verification(const CoreManifest& m, Capabilities* out) {
  for (const GraphDeclaration& graph : m.graphs) {
    if (graph.operation != Operation::kVerify) continue;
    if (m.token_capacity < 2) {
      return Error{Errc::kMismatch, fmt::format("graph verify[{}]: expected a token_capacity of at least 2, found {}",
                                                graph.row_capacity, m.token_capacity)};
    }
    if (graph.row_capacity < m.slot_capacity + m.token_capacity - 1) {
      return Error{Errc::kMismatch, fmt::format("graph verify[{}]: expected at least {} rows, a slot each and {} "
                                                "proposals", graph.row_capacity,
                                                m.slot_capacity + m.token_capacity - 1, m.token_capacity - 1)};
    }
    out->verify_rows = std::max(out->verify_rows, graph.row_capacity);
  }
  return Ok{};
}

}  // namespace

std::vector<int32_t> scored_capacities(int32_t prefill_chunk) {
  std::vector<int32_t> out;
  for (int64_t capacity = 128; capacity < prefill_chunk; capacity *= 4) out.push_back(static_cast<int32_t>(capacity));
  out.push_back(prefill_chunk);
  return out;
}

std::string_view to_string(BufferDtype dtype) {
  switch (dtype) {
    case BufferDtype::kInt32: return "int32";
    case BufferDtype::kInt64: return "int64";
    case BufferDtype::kFloat32: return "float32";
    case BufferDtype::kBFloat16: return "bfloat16";
    case BufferDtype::kFloat16: return "float16";
  }
  return "unknown";
}

Result<Capabilities> derive_capabilities(const CoreManifest& m) {
  for (const auto& [name, value] : {std::pair<std::string_view, int64_t>{"vocab_size", m.vocab_size},
                                    {"max_model_len", m.max_model_len},
                                    {"slot_capacity", m.slot_capacity},
                                    {"token_capacity", m.token_capacity},
                                    {"prefill_chunk", m.prefill_chunk},
                                    {"kv_block_size", m.kv_block_size},
                                    {"kv_num_blocks", m.kv_num_blocks}}) {
    if (auto s = positive(name, value); !s) return s.error();
  }
  if (m.host_num_blocks < 0) {
    return Error{Errc::kMismatch, fmt::format("host_num_blocks: expected at least 0, found {}", m.host_num_blocks)};
  }
  if (auto s = check_names(m); !s) return s.error();
  const BufferDeclaration* records = find(m, buffer_name::kRecords);
  if (!records) {
    return Error{Errc::kMismatch, fmt::format("buffer {}: expected, found none", buffer_name::kRecords)};
  }
  if (auto s = expect(*records, BufferDtype::kInt64, {kNumFrames, m.slot_capacity, record_words(m.token_capacity)});
      !s) {
    return s.error();
  }
  Capabilities out{.vocab_size = m.vocab_size,
                   .max_model_len = m.max_model_len,
                   .slot_capacity = m.slot_capacity,
                   .token_capacity = m.token_capacity,
                   .prefill_chunk = m.prefill_chunk,
                   .kv_block_size = m.kv_block_size,
                   .kv_num_blocks = m.kv_num_blocks,
                   .host_num_blocks = m.host_num_blocks};
  if (auto s = derive_logprobs(m, &out); !s) return s.error();
  if (auto s = derive_scoring(m, &out); !s) return s.error();
  if (auto s = derive_verification(m, &out); !s) return s.error();
  return out;
}

Status check_same_core(const CoreManifest& a, const CoreManifest& b) {
  const auto differ = [](std::string_view what, const auto& x, const auto& y) {
    return Error{Errc::kMismatch, fmt::format("ranks declare different cores: {} is {} and {}", what, x, y)};
  };
  if (a.model_type != b.model_type) return differ("model_type", a.model_type, b.model_type);
  if (a.device != b.device) return differ("device", a.device, b.device);
  if (a.dtype != b.dtype) return differ("dtype", a.dtype, b.dtype);
  if (a.kv_cache_dtype != b.kv_cache_dtype) return differ("kv_cache_dtype", a.kv_cache_dtype, b.kv_cache_dtype);
  if (a.vocab_size != b.vocab_size) return differ("vocab_size", a.vocab_size, b.vocab_size);
  if (a.max_model_len != b.max_model_len) return differ("max_model_len", a.max_model_len, b.max_model_len);
  if (a.slot_capacity != b.slot_capacity) return differ("slot_capacity", a.slot_capacity, b.slot_capacity);
  if (a.token_capacity != b.token_capacity) return differ("token_capacity", a.token_capacity, b.token_capacity);
  if (a.prefill_chunk != b.prefill_chunk) return differ("prefill_chunk", a.prefill_chunk, b.prefill_chunk);
  if (a.kv_block_size != b.kv_block_size) return differ("kv_block_size", a.kv_block_size, b.kv_block_size);
  if (a.kv_num_blocks != b.kv_num_blocks) return differ("kv_num_blocks", a.kv_num_blocks, b.kv_num_blocks);
  if (a.host_num_blocks != b.host_num_blocks) return differ("host_num_blocks", a.host_num_blocks, b.host_num_blocks);
  if (a.buffers != b.buffers) {
    for (size_t i = 0; i < std::max(a.buffers.size(), b.buffers.size()); ++i) {
      const auto text = [&](const CoreManifest& m) {
        return i < m.buffers.size() ? m.buffers[i].name + " " + describe(m.buffers[i].dtype, m.buffers[i].shape)
                                    : std::string("nothing");
      };
      if (text(a) != text(b)) return differ(fmt::format("buffer {}", i), text(a), text(b));
    }
  }
  if (a.graphs != b.graphs) return differ("the graph catalog's length or bindings", a.graphs.size(), b.graphs.size());
  return Ok{};
}

}  // namespace helios
