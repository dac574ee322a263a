#include "worker/bench/bench_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <optional>

#include "common/base/cpu_affinity.h"
#include "worker/replay/dtype_flags.h"

namespace helios {
namespace {

namespace po = boost::program_options;

constexpr int kMaxThreads = 1024, kMaxRounds = 1000;

struct Flags {
  std::optional<std::string> model, dtype, kv_cache_dtype, only, cpu_bind;
  std::optional<int> nproc, threads, rounds;
  bool prompt_logprobs = false, plain = false, paired = false, json = false, help = false;
};

Error invalid(std::string message) { return Error{Errc::kInvalidArgument, std::move(message), {}}; }

template <class T>
void option(po::options_description& all, const char* name, std::optional<T>& target) {
  all.add_options()(name, po::value<T>()->notifier([&target](const T& value) { target = value; }));
}

Result<Flags> read_flags(int argc, const char* const* argv) {
  Flags flags;
  po::options_description all;
  option(all, "model", flags.model);
  option(all, "nproc", flags.nproc);
  option(all, "threads", flags.threads);
  option(all, "rounds", flags.rounds);
  option(all, "dtype", flags.dtype);
  option(all, "kv-cache-dtype", flags.kv_cache_dtype);
  option(all, "only", flags.only);
  option(all, "cpu-bind", flags.cpu_bind);
  all.add_options()("prompt-logprobs", po::bool_switch(&flags.prompt_logprobs));
  all.add_options()("plain", po::bool_switch(&flags.plain));
  all.add_options()("paired", po::bool_switch(&flags.paired));
  all.add_options()("json", po::bool_switch(&flags.json));
  all.add_options()("help,h", po::bool_switch(&flags.help));
  const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  try {
    const po::parsed_options parsed = po::command_line_parser(argc, argv).options(all).style(style).run();
    for (const auto& given : parsed.options) {
      if (given.position_key >= 0) return invalid(fmt::format("unexpected argument '{}'", given.value.front()));
    }
    po::variables_map values;
    po::store(parsed, values);
    po::notify(values);
  } catch (const po::too_many_positional_options_error&) {
    return invalid("unexpected argument: every value follows its flag");
  } catch (const po::error& error) {
    return invalid(error.what());
  }
  return flags;
}

Status take_number(const char* flag, const std::optional<int>& given, int high, int* target) {
  if (!given) return Ok{};
  if (*given < 1 || *given > high) {
    return invalid(fmt::format("--{}: expected 1 to {}, found {}", flag, high, *given));
  }
  *target = *given;
  return Ok{};
}

}  // namespace

Result<BenchArguments> parse_bench_arguments(int argc, const char* const* argv) {
  Result<Flags> read = read_flags(argc, argv);
  if (!read.ok()) return std::move(read).error();
  const Flags& flags = *read;
  if (flags.help) return BenchArguments{.help = true, .options = {}};

  BenchOptions options;
  if (!flags.model || flags.model->empty()) return invalid("--model DIR is missing: a Hugging Face model directory");
  options.model_dir = *flags.model;
  options.json = flags.json;
  if (flags.prompt_logprobs && flags.plain) {
    return invalid("--plain and --prompt-logprobs: expected one of them, each chooses the work");
  }
  if (flags.prompt_logprobs) options.contents = BenchContents::kScored;
  if (flags.plain) options.contents = BenchContents::kPlain;
  options.ranks = flags.nproc.value_or(1);
  if (options.ranks != 1 && options.ranks != 2 && options.ranks != 4 && options.ranks != 8) {
    return invalid(fmt::format("--nproc: expected 1, 2, 4 or 8, found {}", options.ranks));
  }
  options.only = flags.only.value_or("");
  if (flags.only && std::find(std::begin(kBenchWorkNames), std::end(kBenchWorkNames), *flags.only) ==
                        std::end(kBenchWorkNames)) {
    return invalid(fmt::format("--only: expected {}, found '{}'", fmt::join(kBenchWorkNames, ", "), *flags.only));
  }
  const bool scored = options.contents == BenchContents::kScored;
  if (scored && options.only.starts_with("decode")) {
    return invalid(fmt::format("--only {} and --prompt-logprobs: expected one of them, that measures prefill alone",
                               options.only));
  }
  if (!scored && options.only == "prefill-2048") return invalid("--only prefill-2048: needs --prompt-logprobs");
  options.cpu_bind = flags.cpu_bind.value_or("none");
  if (options.cpu_bind != "none" && options.cpu_bind != "auto") {
    return invalid(fmt::format("--cpu-bind: expected none or auto, found '{}'", options.cpu_bind));
  }
  options.paired = flags.paired;
  if (flags.paired && options.ranks == 1) {
    return invalid("--paired: compares ranks with one process, expected --nproc 2, 4 or 8");
  }
  options.threads = std::max(1, static_cast<int>(allowed_cpus().size()) / options.ranks);
  if (const Status status = take_number("threads", flags.threads, kMaxThreads, &options.threads); !status.ok()) {
    return status.error();
  }
  if (const Status status = take_number("rounds", flags.rounds, kMaxRounds, &options.rounds); !status.ok()) {
    return status.error();
  }
  const Result<ComputeDtype> dtype = parse_dtype(flags.dtype.value_or("auto"));
  if (!dtype.ok()) return dtype.error();
  options.dtype = *dtype;
  const Result<KvCacheDtype> stored = parse_kv_cache_dtype(flags.kv_cache_dtype.value_or("auto"));
  if (!stored.ok()) return stored.error();
  options.kv_cache_dtype = *stored;
  return BenchArguments{.help = false, .options = std::move(options)};
}

std::string bench_help() {
  return R"(helios-bench --model DIR [flags]

Measures prefill and decode of a model on this machine's CPU, without HTTP: tokens per second, bytes
moved, and their share of the read bandwidth and FMA peak that it measures between rounds, with as
many threads.

  --model DIR        Hugging Face directory: config.json and safetensors. Required
  --nproc N          rank processes, tensor parallel: 1, 2, 4 or 8 (1)
  --threads N        compute threads of each rank (this machine's cores / nproc)
  --cpu-bind HOW     none, or auto: each rank its share of the CPUs, as helios-launch does it (none)
  --rounds N         rounds of all work; each figure is the median (5)
  --dtype D          auto, float32: weights as they are; bfloat16, float16: weights and inputs of
                     products rounded (auto)
  --kv-cache-dtype D what keys and values are stored as, as for helios-worker (auto)
  --plain            prefill and greedy decode without logprobs alone
  --prompt-logprobs  instead: prefill of 128, 512 and 2048 tokens, ordinary and scored, their ratio
  --only WORK        of it nothing but such as prefill-512 or decode-16
  --paired           each piece of work by one process of nproc * threads threads too, in turn with
                     the ranks, both loaded: the median ratio of neighbours (memory: two models)
  --json             one JSON object a line instead of the table
  -h, --help         this

Work: prefill of 128 and of 512 tokens; decode at batch 1, 4 and 16 after 64 tokens of context:
greedy without and with logprobs (20 alternatives), which differ in nothing else, and sampled
through top-k, top-p and min-p. They take turns within each round, in both orders. Words are those
that a rank sends to its peers.
Exit codes: 0 measured, 1 the model cannot be run or a rank was lost, 2 unknown or contradictory
flag.
)";
}

}  // namespace helios
