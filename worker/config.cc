#include "worker/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <vector>

#include "common/base/cpu_affinity.h"
#include "common/base/vocab_range.h"
#include "common/contract/completion_layout.h"
#include "common/net/zmq_socket.h"
#include "worker/replay/dtype_flags.h"

namespace helios {
namespace {

namespace po = boost::program_options;

constexpr int64_t kMaxCacheTokens = int64_t{1} << 40;

Error invalid(std::string message) { return Error{Errc::kInvalidArgument, std::move(message)}; }

/// As the command line gave them: unset where it said nothing.
struct Flags {
  std::optional<std::string> model, coordinator, device, dtype, kv_cache_dtype, tp_reduce, logprob_token_ids;
  std::optional<std::string> status_host, log_level, cpu_bind;
  std::optional<int> rank, world_size, local_rank, threads, max_num_seqs, max_model_len, prefill_chunk, max_logprobs,
      num_speculative_tokens, collective_timeout_ms, status_port;
  std::optional<int64_t> kv_cache_tokens;
  std::optional<double> kv_cache_gib, host_cache_gib;
  bool prompt_logprobs = false;
  bool die_with_parent = false;
  bool help = false;
};

template <class T>
void option(po::options_description& all, const char* name, std::optional<T>& target) {
  all.add_options()(name, po::value<T>()->notifier([&target](const T& value) { target = value; }));
}

void declare(po::options_description& all, Flags& flags) {
  option(all, "model", flags.model);
  option(all, "coordinator", flags.coordinator);
  option(all, "rank", flags.rank);
  option(all, "world-size", flags.world_size);
  option(all, "local-rank", flags.local_rank);
  option(all, "device", flags.device);
  option(all, "dtype", flags.dtype);
  option(all, "kv-cache-dtype", flags.kv_cache_dtype);
  option(all, "tp-reduce", flags.tp_reduce);
  option(all, "threads-per-rank", flags.threads);
  option(all, "cpu-bind", flags.cpu_bind);
  option(all, "max-num-seqs", flags.max_num_seqs);
  option(all, "max-model-len", flags.max_model_len);
  option(all, "prefill-chunk", flags.prefill_chunk);
  option(all, "max-logprobs", flags.max_logprobs);
  option(all, "num-speculative-tokens", flags.num_speculative_tokens);
  option(all, "logprob-token-ids", flags.logprob_token_ids);
  option(all, "kv-cache-tokens", flags.kv_cache_tokens);
  option(all, "kv-cache-gib", flags.kv_cache_gib);
  option(all, "host-cache-gib", flags.host_cache_gib);
  option(all, "collective-timeout-ms", flags.collective_timeout_ms);
  option(all, "status-host", flags.status_host);
  option(all, "status-port", flags.status_port);
  option(all, "log-level", flags.log_level);
  all.add_options()("prompt-logprobs", po::bool_switch(&flags.prompt_logprobs));
  all.add_options()("die-with-parent", po::bool_switch(&flags.die_with_parent));
  all.add_options()("help,h", po::bool_switch(&flags.help));
}

Result<Flags> read_flags(int argc, const char* const* argv) {
  Flags flags;
  po::options_description all;
  declare(all, flags);
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

template <class T>
Status take_number(const char* flag, const std::optional<T>& given, T low, T high, T* target) {
  if (!given) return Ok{};
  if (*given < low || *given > high) {
    return invalid(fmt::format("--{}: expected {} to {}, found {}", flag, low, high, *given));
  }
  *target = *given;
  return Ok{};
}

Status take_gib(const char* flag, const std::optional<double>& given, int64_t* bytes) {
  constexpr double kMaxGib = 1 << 20;
  if (!given) return Ok{};
  if (!(*given >= 0.0 && *given <= kMaxGib)) {
    return invalid(fmt::format("--{}: expected 0 to {} GiB, found {}", flag, kMaxGib, *given));
  }
  *bytes = static_cast<int64_t>(*given * static_cast<double>(int64_t{1} << 30));
  return Ok{};
}

Status take_numbers(const Flags& flags, WorkerConfig* config) {
  int timeout_ms = static_cast<int>(config->collective_timeout.count());
  CoreConfig& core = config->core;
  for (const Status& status :
       {take_number("max-num-seqs", flags.max_num_seqs, 1, 4096, &core.slot_capacity),
        take_number("max-model-len", flags.max_model_len, 0, 1 << 24, &core.max_model_len),
        take_number("prefill-chunk", flags.prefill_chunk, 1, 1 << 16, &core.prefill_chunk),
        take_number("max-logprobs", flags.max_logprobs, 0, kMaxNaturalAlternatives, &core.max_logprobs),
        take_number("num-speculative-tokens", flags.num_speculative_tokens, 0, kMaxSpeculativeTokens,
                    &core.num_speculative_tokens),
        take_number("kv-cache-tokens", flags.kv_cache_tokens, int64_t{0}, kMaxCacheTokens, &core.kv_cache_tokens),
        take_gib("kv-cache-gib", flags.kv_cache_gib, &core.kv_cache_bytes),
        take_gib("host-cache-gib", flags.host_cache_gib, &core.host_tier_bytes),
        take_number("collective-timeout-ms", flags.collective_timeout_ms, 100, 3600000, &timeout_ms),
        take_number("status-port", flags.status_port, -1, 65535, &config->status_port)}) {
    if (!status.ok()) return status;
  }
  if (core.kv_cache_tokens > 0 && core.kv_cache_bytes > 0) {
    return invalid("--kv-cache-tokens and --kv-cache-gib: both say how large the KV cache is; expected one of them");
  }
  config->collective_timeout = std::chrono::milliseconds(timeout_ms);
  return Ok{};
}

Status take_choices(const Flags& flags, WorkerConfig* config) {
  config->device = flags.device.value_or("cpu");
  if (config->device != "cpu" && config->device != "cuda") {
    return invalid(fmt::format("--device: expected cpu or cuda, found '{}'", config->device));
  }
  const Result<ComputeDtype> dtype = parse_dtype(flags.dtype.value_or("auto"));
  if (!dtype.ok()) return dtype.error();
  config->core.dtype = *dtype;
  const Result<KvCacheDtype> stored = parse_kv_cache_dtype(flags.kv_cache_dtype.value_or("auto"));
  if (!stored.ok()) return stored.error();
  config->core.kv_cache_dtype = *stored;

  const std::string reduce = flags.tp_reduce.value_or("canonical");
  if (reduce != "canonical" && reduce != "fast") {
    return invalid(fmt::format("--tp-reduce: expected canonical or fast, found '{}'", reduce));
  }
  config->core.tp_reduce = reduce == "fast" ? TpReduce::kFast : TpReduce::kCanonical;
  if (reduce == "fast" && config->device != "cuda") {
    return invalid("--tp-reduce fast: is for --device cuda; on cpu partial sums are canonical");
  }

  const std::string ids = flags.logprob_token_ids.value_or("on");
  if (ids != "on" && ids != "off") {
    return invalid(fmt::format("--logprob-token-ids: expected on or off, found '{}'", ids));
  }
  config->core.logprob_token_ids = ids == "on";
  if (flags.logprob_token_ids == "on" && config->core.max_logprobs != kMaxNaturalAlternatives) {
    return invalid(fmt::format("--logprob-token-ids on: needs --max-logprobs {}, found {}", kMaxNaturalAlternatives,
                               config->core.max_logprobs));
  }
  config->core.prompt_logprobs = flags.prompt_logprobs;
  if (flags.prompt_logprobs && config->core.max_logprobs != kMaxNaturalAlternatives) {
    return invalid(fmt::format("--prompt-logprobs: needs --max-logprobs {}, found {}", kMaxNaturalAlternatives,
                               config->core.max_logprobs));
  }
  if (flags.log_level && !parse_log_level(*flags.log_level, &config->log_level)) {
    return invalid(
        fmt::format("--log-level: expected trace, debug, info, warning, error or off, found '{}'", *flags.log_level));
  }
  return Ok{};
}

/// How many compute threads, and which CPUs they are held to: a share of those that this process may use, or all of
/// them where the launcher gave each rank its own.
Status take_cpus(const Flags& flags, const LaunchPlace& place, WorkerConfig* config) {
  const std::vector<HostCpu> host = host_cpus(allowed_cpus());
  const std::string how = flags.cpu_bind.value_or("none");
  const bool listed = how != "none" && how != "auto";
  const bool alone = place.own_cpus && !listed;
  const int sharers = alone ? 1 : place.local_size;
  const int share = std::max(1, static_cast<int>(host.size()) / std::max(1, sharers));
  int threads = 0;
  if (Status given = take_number("threads-per-rank", flags.threads, 0, 1024, &threads); !given.ok()) return given;
  if (threads == 0 && !listed) threads = share;
  Result<CpuBinding> cpus = bind_rank(how, alone ? 0 : config->local_rank, sharers, threads, host);
  if (!cpus.ok()) return invalid("--cpu-bind: " + cpus.error().message);
  config->cpus = *std::move(cpus);
  config->core.num_threads = threads > 0 ? threads : static_cast<int>(config->cpus.cpus.size());
  config->cpus.each_thread = config->cpus.each_thread && config->device == "cpu";  // a GPU's host threads share theirs
  if (config->cpus.each_thread) config->core.thread_cpus = config->cpus.cpus;
  return Ok{};
}

Status take_place(const Flags& flags, const GetEnv& getenv, WorkerConfig* config) {
  const Result<LaunchPlace> place = resolve_launch_place({.rank = flags.rank,
                                                          .world_size = flags.world_size,
                                                          .local_rank = flags.local_rank,
                                                          .coordinator = flags.coordinator},
                                                         getenv);
  if (!place.ok()) return place.error();
  if (!place->rank || !place->world_size) {
    return invalid("--rank and --world-size: missing, and no launcher's variables say which rank this is");
  }
  config->rank = *place->rank;
  config->world_size = *place->world_size;
  config->local_rank = place->local_rank;
  config->coordinator = place->coordinator;
  config->place_source = place->source;
  if (!valid_world_size(config->world_size)) {
    return invalid(fmt::format("--world-size: expected 1, 2, 4 or 8, found {}", config->world_size));
  }
  if (config->rank.value < 0 || config->rank.value >= config->world_size) {
    return invalid(fmt::format("--rank: expected 0 to {}, found {}", config->world_size - 1, config->rank.value));
  }
  if (Status endpoint = check_endpoint(config->coordinator); !endpoint.ok()) {
    return invalid("--coordinator: " + endpoint.error().message);
  }
  Result<std::optional<ClusterKey>> key = cluster_key_for(config->coordinator, getenv(kClusterKeyVariable));
  if (!key.ok()) return key.error();
  config->cluster_key = *std::move(key);
  return take_cpus(flags, *place, config);
}

}  // namespace

Result<WorkerArguments> parse_worker_arguments(int argc, const char* const* argv, const GetEnv& getenv) {
  Result<Flags> flags = read_flags(argc, argv);
  if (!flags.ok()) return flags.error();
  if (flags->help) return WorkerArguments{.help = true};
  WorkerConfig config;
  if (!flags->model || flags->model->empty()) return invalid("--model: missing, expected a model directory");
  config.core.model_dir = *flags->model;
  config.die_with_parent = flags->die_with_parent;
  if (flags->status_host) config.status_host = *flags->status_host;
  if (Status status = take_numbers(*flags, &config); !status.ok()) return status.error();
  if (Status status = take_choices(*flags, &config); !status.ok()) return status.error();
  if (Status status = take_place(*flags, getenv, &config); !status.ok()) return status.error();
  return WorkerArguments{.config = std::move(config)};
}

std::string worker_help() {
  return R"(helios-worker: one rank of a Helios cluster, started by helios-launch, mpirun, torchrun or srun.

  --model DIR               Hugging Face directory: config.json, safetensors (required)
  --coordinator ENDPOINT    tcp://HOST:PORT or ipc://PATH (default: the launcher's, else
                            tcp://127.0.0.1:29500)
  --rank R                  this rank, 0 to N-1           } default: from HELIOS_*, Open MPI, PMI,
  --world-size N            ranks: 1, 2, 4 or 8           } torchrun or Slurm variables, in this
  --local-rank L            of its host's ranks, this one } order

  --device cpu|cuda         where to compute (default cpu)
  --dtype D                 auto, float32: exact products, FP32 activations; bfloat16, float16:
                            weights and matrix inputs rounded once (default auto)
  --kv-cache-dtype D        keys and values in float32, or bfloat16: half the memory, rounded once,
                            half of attention's products on cuda (default auto: bfloat16 with
                            --dtype bfloat16)
  --tp-reduce HOW           canonical: partial sums in one order, the same bits at every world
                            size; fast: by NCCL, less traffic; only on cuda (default canonical)
  --threads-per-rank N      0: usable CPUs divided by the ranks of this host, or all where Open MPI
                            or Slurm says that it gave each rank its own (default 0)
  --cpu-bind HOW            none; auto: this rank's share of the usable CPUs, counted alike, by NUMA
                            node; or lists, one a rank of this host: 0-3|4-7 (default none)
  --max-num-seqs N          sequences at the same time (default 32)
  --max-model-len N         longest sequence in tokens; 0: the model's own (default 0)
  --prefill-chunk N         prompt tokens in one step (default 512)
  --kv-cache-tokens N       tokens the KV cache holds; 0: what a quarter of free memory does
                            (default 0)
  --kv-cache-gib G          or GiB of this rank's device for it; 0: as above (default 0)
  --host-cache-gib G        GiB of host memory where known prefixes come back from (default 0: none)
  --max-logprobs K          alternatives a token, 0 to 20; 0: a core without logprobs (default 20)
  --prompt-logprobs         score prompts too: graphs and storage of their own; needs K = 20
  --logprob-token-ids on|off  report ids that the request names; needs K = 20 (default on, off with
                            a smaller K)
  --num-speculative-tokens N  proposals of a sequence that one step can verify, 0 to 15; 0: no
                            verification (default 0)

  --collective-timeout-ms N longest wait for another rank in an exchange (default 60000)
  --status-host HOST        where to answer /livez, /readyz and /metrics (default 127.0.0.1)
  --status-port P           0: the kernel picks, -1: off (default 0; the URL is logged)
  --die-with-parent         end when the process that started us ends; Ctrl-C is left to it
  --log-level L             trace, debug, info, warning, error or off (default info), on stderr
  -h, --help                this text

HELIOS_CLUSTER_KEY: the coordinator's key, where that is on another host.
Exit codes: 0 drained or terminated (a second SIGTERM ends at once); 1 this model or configuration
cannot be served; 2 wrong flags; 75 the rank set is broken (a fault, an abort, a silent
coordinator): start it again.
)";
}

}  // namespace helios
