// helios-bench's flags, read and checked into one struct. Thread: main.
#pragma once

#include <string>

#include "common/base/result.h"
#include "worker/bench/bench_plan.h"
#include "worker/replay/executor.h"

namespace helios {

struct BenchOptions {
  std::string model_dir;
  int ranks = 1;    // 1, 2, 4 or 8
  int threads = 1;  // a rank; resolved: at least 1
  int rounds = 5;   // the median of so many
  ComputeDtype dtype = ComputeDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  BenchContents contents = BenchContents::kAll;
  std::string only;  // measure nothing else; empty: all of the plan
  bool paired = false;  // in turn with one process of ranks * threads threads
  std::string cpu_bind = "none";  // or "auto"
  bool json = false;
};

struct BenchArguments {
  bool help = false;  // nothing else is set then
  BenchOptions options;
};

/// Errors: kInvalidArgument, one line that names the flag, what was found and what is expected.
Result<BenchArguments> parse_bench_arguments(int argc, const char* const* argv);

/// What --help prints: every flag, on one screen.
std::string bench_help();

}  // namespace helios
