// --dtype and --kv-cache-dtype as the worker and helios-bench take them: one set of words for both.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include "common/base/result.h"
#include "worker/replay/executor.h"

namespace helios {

/// Errors: kInvalidArgument, one line that names the flag and what it takes.
inline Result<ComputeDtype> parse_dtype(std::string_view text) {
  if (text == "auto") return ComputeDtype::kAuto;
  if (text == "float32") return ComputeDtype::kFloat32;
  if (text == "bfloat16") return ComputeDtype::kBFloat16;
  if (text == "float16") return ComputeDtype::kFloat16;
  return Error{Errc::kInvalidArgument,
               fmt::format("--dtype: expected auto, float32, bfloat16 or float16, found '{}'", text), ""};
}

/// The same.
inline Result<KvCacheDtype> parse_kv_cache_dtype(std::string_view text) {
  if (text == "auto") return KvCacheDtype::kAuto;
  if (text == "float32") return KvCacheDtype::kFloat32;
  if (text == "bfloat16") return KvCacheDtype::kBFloat16;
  return Error{Errc::kInvalidArgument,
               fmt::format("--kv-cache-dtype: expected auto, float32 or bfloat16, found '{}'", text), ""};
}

}  // namespace helios
