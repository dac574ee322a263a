// helios-bench's command line: defaults, every flag, and one clear line for what is wrong.
#include "worker/bench/bench_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace helios {
namespace {

Result<BenchArguments> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "helios-bench");
  return parse_bench_arguments(static_cast<int>(arguments.size()), arguments.data());
}

std::string error_of(std::vector<const char*> arguments) {
  const auto parsed = parse(std::move(arguments));
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(BenchOptions, DefaultsSuitThisMachine) {
  const auto parsed = parse({"--model", "dir"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const BenchOptions& o = parsed->options;
  EXPECT_EQ(o.model_dir, "dir");
  EXPECT_EQ(o.ranks, 1);
  EXPECT_GE(o.threads, 1);
  EXPECT_EQ(o.rounds, 5);
  EXPECT_EQ(o.dtype, ComputeDtype::kAuto);
  EXPECT_EQ(o.kv_cache_dtype, KvCacheDtype::kAuto);
  EXPECT_FALSE(o.json);
  EXPECT_EQ(o.contents, BenchContents::kAll);
}

TEST(BenchOptions, EveryFlagIsTaken) {
  const auto parsed = parse({"--model=m", "--nproc", "4", "--threads", "3", "--rounds", "9", "--dtype", "bfloat16",
                             "--kv-cache-dtype", "bfloat16", "--json", "--prompt-logprobs"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const BenchOptions& o = parsed->options;
  EXPECT_EQ(o.ranks, 4);
  EXPECT_EQ(o.threads, 3);
  EXPECT_EQ(o.rounds, 9);
  EXPECT_EQ(o.dtype, ComputeDtype::kBFloat16);
  EXPECT_EQ(o.kv_cache_dtype, KvCacheDtype::kBFloat16);
  EXPECT_EQ(parse({"--model", "m", "--kv-cache-dtype", "float32"})->options.kv_cache_dtype, KvCacheDtype::kFloat32);
  EXPECT_TRUE(o.json);
  EXPECT_EQ(o.contents, BenchContents::kScored);
  EXPECT_EQ(parse({"--model", "m", "--dtype", "float16"})->options.dtype, ComputeDtype::kFloat16);
  EXPECT_EQ(parse({"--model", "m", "--plain"})->options.contents, BenchContents::kPlain);
  const auto paired = parse({"--model", "m", "--nproc", "2", "--paired", "--only", "decode-4", "--cpu-bind", "auto"});
  ASSERT_TRUE(paired.ok()) << paired.error().message;
  EXPECT_TRUE(paired->options.paired);
  EXPECT_EQ(paired->options.only, "decode-4");
  EXPECT_EQ(paired->options.cpu_bind, "auto");
}

TEST(BenchOptions, WhatIsWrongIsNamedInOneLine) {
  EXPECT_EQ(error_of({}), "--model DIR is missing: a Hugging Face model directory");
  EXPECT_EQ(error_of({"--model", "m", "--nproc", "3"}), "--nproc: expected 1, 2, 4 or 8, found 3");
  EXPECT_EQ(error_of({"--model", "m", "--threads", "0"}), "--threads: expected 1 to 1024, found 0");
  EXPECT_EQ(error_of({"--model", "m", "--rounds", "-1"}), "--rounds: expected 1 to 1000, found -1");
  EXPECT_EQ(error_of({"--model", "m", "--dtype", "int4"}),
            "--dtype: expected auto, float32, bfloat16 or float16, found 'int4'");
  EXPECT_EQ(error_of({"--model", "m", "--kv-cache-dtype", "fp8"}),
            "--kv-cache-dtype: expected auto, float32 or bfloat16, found 'fp8'");
  EXPECT_EQ(error_of({"--model", "m", "--plain", "--prompt-logprobs"}),
            "--plain and --prompt-logprobs: expected one of them, each chooses the work");
  EXPECT_EQ(error_of({"--model", "m", "--paired"}),
            "--paired: compares ranks with one process, expected --nproc 2, 4 or 8");
  EXPECT_EQ(error_of({"--model", "m", "--only", "decode-1", "--prompt-logprobs"}),
            "--only decode-1 and --prompt-logprobs: expected one of them, that measures prefill alone");
  EXPECT_EQ(error_of({"--model", "m", "--only", "prefill-2048"}), "--only prefill-2048: needs --prompt-logprobs");
  EXPECT_EQ(error_of({"--model", "m", "--cpu-bind", "0-1"}), "--cpu-bind: expected none or auto, found '0-1'");
  EXPECT_EQ(error_of({"--model", "m", "--only", "decode-3"}),
            "--only: expected prefill-128, prefill-512, prefill-2048, decode-1, decode-4, decode-16, found 'decode-3'");
  EXPECT_EQ(error_of({"--model", "m", "extra"}), "unexpected argument 'extra'");
  for (const std::vector<const char*>& wrong : {std::vector<const char*>{"--model", "m", "--speed", "9"},
                                                {"--model", "m", "--round", "9"},  // no guessing
                                                {"--model", "m", "--rounds", "many"},
                                                {"--model", "a", "--model", "b"},
                                                {"--model"}}) {
    const std::string error = error_of(wrong);
    EXPECT_NE(error, "accepted");
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 0) << error;
    EXPECT_NE(error.find("--"), std::string::npos) << error;
  }
}

TEST(BenchOptions, HelpFitsAScreenAndNamesEveryFlag) {
  ASSERT_TRUE(parse({"--help"}).ok());
  EXPECT_TRUE(parse({"--help"})->help);
  EXPECT_TRUE(parse({"-h"})->help);
  const std::string help = bench_help();
  int lines = 0;
  std::istringstream text(help);
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_LE(lines, 30);
  for (const char* flag : {"--model", "--nproc", "--threads", "--rounds", "--dtype", "--kv-cache-dtype",
                           "--prompt-logprobs", "--only", "--paired", "--cpu-bind", "--json", "--help"}) {
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace helios
