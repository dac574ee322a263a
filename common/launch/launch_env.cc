#include "common/launch/launch_env.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace helios {
namespace {

Error invalid(std::string message) { return {Errc::kInvalidArgument, std::move(message), ""}; }

std::optional<std::string> read(const GetEnv& getenv, const char* name) {
  const char* value = getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Unset is fine here; what is set must be a number of at least `least`.
Result<std::optional<int>> read_number(const GetEnv& getenv, const char* name, int least) {
  if (!*name) return std::optional<int>();
  const std::optional<std::string> text = read(getenv, name);
  if (!text) return std::optional<int>();
  const std::optional<int> value = parse_number(*text);
  if (!value || *value < least) {
    return invalid(fmt::format("{}=\"{}\": expected a number of at least {}", name, *text, least));
  }
  return value;
}

// The variables of one launcher. Empty names: it has none.
struct Launcher {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
  bool needs_local_rank;
  const char* only_with;      // not looked at unless this is set
  bool may_hide_coordinator;  // a job that includes the coordinator looks like one that does not
};

constexpr Launcher kLaunchers[] = {
    {"HELIOS_*", "HELIOS_RANK", "HELIOS_WORLD_SIZE", "HELIOS_LOCAL_RANK", "HELIOS_LOCAL_SIZE", false, "", false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", true, "", false},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", false, "", true},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true, "", false},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", true, "SLURM_STEP_ID", true},
};

// A launcher's numbers, before the coordinator's own process is taken out.
struct JobPlace {
  const Launcher* launcher = nullptr;
  int rank = 0;
  int size = 0;
  std::optional<int> local_rank;
  std::optional<int> local_size;

  bool is(std::string_view source) const { return launcher && launcher->source == source; }
};

const Launcher* find_launcher(const GetEnv& getenv) {
  for (const Launcher& launcher : kLaunchers) {
    if (*launcher.only_with && !read(getenv, launcher.only_with)) continue;
    if (read(getenv, launcher.rank) || read(getenv, launcher.world_size)) return &launcher;
  }
  return nullptr;
}

// What the four numbers are called where they come from.
struct Names {
  const char *rank, *world_size, *local_rank, *local_size;
};
Names names_of(const Launcher& launcher) {
  return {launcher.rank, launcher.world_size, launcher.local_rank, launcher.local_size};
}
constexpr Names kOptionNames = {"--rank", "--world-size", "--local-rank", "HELIOS_LOCAL_SIZE"};

Status check_place(const Names& names, const JobPlace& place) {
  if (place.size < 1) return invalid(fmt::format("{} {}: expected at least 1", names.world_size, place.size));
  if (place.rank < 0 || place.rank >= place.size) {
    return invalid(fmt::format("{} {}: expected 0 to {}, {} being {}", names.rank, place.rank, place.size - 1,
                               names.world_size, place.size));
  }
  if (place.local_size && *place.local_size > place.size) {
    return invalid(fmt::format("{} {}: more ranks on this host than {} {} in all", names.local_size, *place.local_size,
                               names.world_size, place.size));
  }
  const int local_size = place.local_size.value_or(place.size);
  if (place.local_rank && (*place.local_rank < 0 || *place.local_rank >= local_size)) {
    return invalid(fmt::format("{} {}: expected 0 to {}, one of this host's ranks", names.local_rank, *place.local_rank,
                               local_size - 1));
  }
  return Ok{};
}

Result<JobPlace> read_launcher(const Launcher& launcher, const GetEnv& getenv) {
  std::optional<int> values[4];
  const char* const names[4] = {launcher.rank, launcher.world_size, launcher.local_rank, launcher.local_size};
  constexpr int kLeast[4] = {0, 1, 0, 1};
  for (int i = 0; i < 4; ++i) {
    Result<std::optional<int>> value = read_number(getenv, names[i], kLeast[i]);
    if (!value) return value.error();
    values[i] = *value;
  }
  for (int i = 0; i < (launcher.needs_local_rank ? 3 : 2); ++i) {
    if (values[i]) continue;
    const char* const there = values[0] ? launcher.rank : launcher.world_size;
    return invalid(fmt::format("{} is set, but {} is not: {} needs both", there, names[i], launcher.source));
  }
  JobPlace place{&launcher, *values[0], *values[1], values[2], values[3]};
  if (const Status good = check_place(names_of(launcher), place); !good) return good.error();
  return place;
}

// How many of the job's processes come before the first worker, as Open MPI tells: the first program's, when there are
// several. The numbering follows the programs' order.
Result<int> open_mpi_first_program(const JobPlace& place, const GetEnv& getenv) {
  const std::string text = read(getenv, "OMPI_APP_CTX_NUM_PROCS").value_or("");
  std::vector<int> counts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) {
      const std::optional<int> count = parse_number(std::string_view(text).substr(begin, end - begin));
      if (!count || *count < 1) return invalid(fmt::format("OMPI_APP_CTX_NUM_PROCS=\"{}\": expected numbers", text));
      counts.push_back(*count);
    }
    begin = end + 1;
  }
  if (counts.size() < 2) return 0;
  int total = 0;
  for (const int count : counts) total += count;
  if (total != place.size) {
    return invalid(
        fmt::format("OMPI_APP_CTX_NUM_PROCS=\"{}\" does not add up to OMPI_COMM_WORLD_SIZE={}", text, place.size));
  }
  return counts[0];
}

// Open MPI binds to cores and hyperthreads without giving one to two processes, unless it was allowed to; PE is so many
// cores a process. Several may share whatever is larger.
bool open_mpi_binds_apart(const GetEnv& getenv) {
  if (read(getenv, "OMPI_MCA_orte_bound_at_launch") != "1") return false;
  const std::string level = read(getenv, "OMPI_MCA_hwloc_base_binding_policy").value_or("");
  const std::string mapping = read(getenv, "OMPI_MCA_rmaps_base_mapping_policy").value_or("");
  if (level.find("overload") != std::string::npos) return false;
  return level.starts_with("core") || level.starts_with("hwthread") || mapping.find("PE=") != std::string::npos ||
         mapping.find("pe=") != std::string::npos;
}

// The bits of a mask such as "0x00f0", lowest four first; empty when it is none.
std::vector<int> mask_digits(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  std::vector<int> digits;
  for (auto c = text.rbegin(); c != text.rend(); ++c) {
    int digit = 0;
    const auto [end, error] = std::from_chars(&*c, &*c + 1, digit, 16);
    if (error != std::errc() || end != &*c + 1) return {};
    digits.push_back(digit);
  }
  return digits;
}

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}

// Slurm tells every task the masks of all tasks of its node, in the order of their local ranks.
bool slurm_binds_apart(int local_rank, const GetEnv& getenv) {
  if (!read(getenv, "SLURM_CPU_BIND_TYPE").value_or("").starts_with("mask_cpu")) return false;
  const std::string list = read(getenv, "SLURM_CPU_BIND_LIST").value_or("");
  std::vector<std::vector<int>> masks;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    masks.push_back(mask_digits(std::string_view(list).substr(begin, end - begin)));
    if (masks.back().empty()) return false;
    begin = end + 1;
  }
  if (local_rank < 0 || static_cast<size_t>(local_rank) >= masks.size()) return false;
  for (size_t other = 0; other < masks.size(); ++other) {
    const auto mine = static_cast<size_t>(local_rank);
    if (other != mine && overlap(masks[mine], masks[other])) return false;
  }
  return true;
}

bool binds_apart(const JobPlace& place, const GetEnv& getenv) {
  if (place.is("Open MPI")) return open_mpi_binds_apart(getenv);
  return place.is("Slurm") && slurm_binds_apart(*place.local_rank, getenv);
}

// Takes the coordinator's processes out of a worker's numbers.
Result<JobPlace> without_coordinator(JobPlace place, int num_before) {
  if (num_before == 0) return place;
  if (place.rank < num_before) {
    return invalid(
        fmt::format("{} starts several programs and this worker is in the first: that must be "
                    "helios-coordinator; with workers only, give --rank and --world-size",
                    place.launcher->source));
  }
  // The coordinator shares this host when all are here, or when the host was filled from rank 0 on.
  const bool shares_host = place.local_size.value_or(place.size) == place.size || place.local_rank == place.rank;
  place.rank -= num_before;
  place.size -= num_before;
  if (shares_host && place.local_rank) *place.local_rank -= num_before;
  if (shares_host && place.local_size) *place.local_size -= num_before;
  if (const Status good = check_place(names_of(*place.launcher), place); !good) return good.error();
  return place;
}

// MASTER_ADDR and MASTER_PORT; unset when neither is there.
Result<std::optional<std::string>> master_endpoint(const GetEnv& getenv) {
  const std::optional<std::string> address = read(getenv, "MASTER_ADDR");
  Result<std::optional<int>> port = read_number(getenv, "MASTER_PORT", 1);
  if (!port) return port.error();
  if (!address && !*port) return std::optional<std::string>();
  if (!address || !*port) {
    return invalid(
        fmt::format("MASTER_{} is set, but MASTER_{} is not", address ? "ADDR" : "PORT", address ? "PORT" : "ADDR"));
  }
  // The elastic agent listens on MASTER_PORT itself then.
  const int chosen = **port + (read(getenv, "TORCHELASTIC_USE_AGENT_STORE") == "True" ? 1 : 0);
  if (chosen > 65535) return invalid(fmt::format("MASTER_PORT={}: no port {} for the coordinator", **port, chosen));
  const bool ipv6 = address->find(':') != std::string::npos && address->front() != '[';
  return std::optional(ipv6 ? fmt::format("tcp://[{}]:{}", *address, chosen)
                            : fmt::format("tcp://{}:{}", *address, chosen));
}

bool spans_hosts(const JobPlace& place, const GetEnv& getenv) {
  if (place.is("Slurm")) return parse_number(read(getenv, "SLURM_STEP_NUM_NODES").value_or("1")).value_or(1) > 1;
  return place.local_size && *place.local_size < place.size;
}

Result<std::string> choose_endpoint(const std::optional<std::string>& option, const JobPlace& place,
                                    const GetEnv& getenv) {
  if (option) return *option;
  if (const auto own = read(getenv, "HELIOS_COORDINATOR")) return *own;
  if (!place.launcher || place.is("torchrun")) {
    Result<std::optional<std::string>> master = master_endpoint(getenv);
    if (!master) return master.error();
    if (*master) return **master;
    if (place.launcher) {
      return invalid("RANK and WORLD_SIZE are set, but MASTER_ADDR and MASTER_PORT are not: set them or --coordinator");
    }
  }
  if (spans_hosts(place, getenv)) {
    return invalid(
        fmt::format("{} starts ranks on several hosts: set HELIOS_COORDINATOR=tcp://HOST:PORT for all, "
                    "HOST being the coordinator's",
                    place.launcher->source));
  }
  return std::string(kDefaultCoordinator);
}

// --rank and --world-size say it all; only what they leave out comes from the environment.
Result<LaunchPlace> place_from_options(const LaunchOptions& options, const GetEnv& getenv) {
  JobPlace place;
  place.rank = *options.rank;
  place.size = *options.world_size;
  Result<std::optional<int>> local_rank = read_number(getenv, "HELIOS_LOCAL_RANK", 0);
  if (!local_rank) return local_rank.error();
  Result<std::optional<int>> local_size = read_number(getenv, "HELIOS_LOCAL_SIZE", 1);
  if (!local_size) return local_size.error();
  place.local_rank = options.local_rank ? options.local_rank : *local_rank;
  place.local_size = *local_size;
  if (const Status good = check_place(kOptionNames, place); !good) return good.error();
  JobPlace launcher;  // only for MASTER_ADDR and MASTER_PORT: those count where no other launcher does
  launcher.launcher = find_launcher(getenv);
  std::string endpoint = kDefaultCoordinator;
  if (options.coordinator || read(getenv, "HELIOS_COORDINATOR") || launcher.is("torchrun")) {
    Result<std::string> chosen = choose_endpoint(options.coordinator, launcher, getenv);
    if (!chosen) return chosen.error();
    endpoint = *chosen;
  }
  return LaunchPlace{.rank = Rank(place.rank),
                     .world_size = place.size,
                     .local_rank = place.local_rank.value_or(place.rank),
                     .local_size = place.local_size.value_or(place.size),
                     .coordinator = endpoint,
                     .source = "options"};
}

// How many processes of the launcher's job come before the first worker, and whether --world-size agrees.
Result<int> num_before_workers(const JobPlace& place, std::optional<int> world_size, const GetEnv& getenv) {
  int num_before = 0;
  if (place.is("Open MPI")) {
    Result<int> first = open_mpi_first_program(place, getenv);
    if (!first) return first.error();
    num_before = *first;
  } else if (place.launcher->may_hide_coordinator && world_size && *world_size == place.size - 1) {
    num_before = 1;
  }
  if (world_size && *world_size != place.size - num_before) {
    return invalid(fmt::format("--world-size {}, but {} starts {} workers", *world_size, place.launcher->source,
                               place.size - num_before));
  }
  return num_before;
}

}  // namespace

Result<LaunchPlace> resolve_launch_place(const LaunchOptions& options, const GetEnv& getenv) {
  if (options.rank && !options.world_size) return invalid("--rank is given, but --world-size is not");
  if (options.rank) return place_from_options(options, getenv);
  const Launcher* launcher = find_launcher(getenv);
  if (!launcher) {
    if (options.world_size) return invalid("--world-size is given, but --rank is not, and no launcher names the rank");
    LaunchPlace alone;
    Result<std::string> endpoint = choose_endpoint(options.coordinator, JobPlace{}, getenv);
    if (!endpoint) return endpoint.error();
    alone.coordinator = *endpoint;
    alone.local_rank = options.local_rank.value_or(0);
    alone.source = "none";
    return alone;
  }
  Result<JobPlace> job = read_launcher(*launcher, getenv);
  if (!job) return job.error();
  Result<int> num_before = num_before_workers(*job, options.world_size, getenv);
  if (!num_before) return num_before.error();
  Result<std::string> endpoint = choose_endpoint(options.coordinator, *job, getenv);
  if (!endpoint) return endpoint.error();
  Result<JobPlace> place = without_coordinator(*job, *num_before);
  if (!place) return place.error();
  if (options.local_rank) place->local_rank = options.local_rank;
  if (const Status good = check_place(kOptionNames, *place); !good) return good.error();
  return LaunchPlace{.rank = Rank(place->rank),
                     .world_size = place->size,
                     .local_rank = place->local_rank.value_or(place->rank),
                     .local_size = place->local_size.value_or(place->size),
                     .own_cpus = binds_apart(*job, getenv),
                     .coordinator = *endpoint,
                     .source = launcher->source};
}

Result<CoordinatorPlace> resolve_coordinator_place(const CoordinatorLaunchOptions& options, const GetEnv& getenv) {
  CoordinatorPlace found;
  found.world_size = options.world_size;
  found.source = options.world_size ? "options" : "none";
  // Nothing is left to ask: a launcher's job around us may be one of helios-launch processes, not of workers.
  if (options.world_size && options.rank_endpoint) {
    found.endpoint = *options.rank_endpoint;
    return found;
  }
  JobPlace job;
  job.launcher = find_launcher(getenv);
  if (job.is("HELIOS_*") || job.is("torchrun")) {  // these number workers only, and the coordinator has no rank
    Result<std::optional<int>> size = read_number(getenv, job.launcher->world_size, 1);
    if (!size) return size.error();
    if (!found.world_size && *size) {
      found.world_size = *size;
      found.source = job.launcher->source;
    }
  } else if (job.launcher) {
    Result<JobPlace> read = read_launcher(*job.launcher, getenv);
    if (!read) return read.error();
    job = *read;
    if (job.rank != 0) {
      return invalid(fmt::format("{} starts this coordinator as process {}: it must be the first, and the only one",
                                 job.launcher->source, job.rank));
    }
    Result<int> first = job.is("Open MPI") ? open_mpi_first_program(job, getenv) : Result<int>(job.size > 1 ? 1 : 0);
    if (!first) return first.error();
    if (*first > 1 || (*first == 0 && job.size > 1)) {
      return invalid(fmt::format("{} starts {} coordinators: it must be one", job.launcher->source,
                                 *first > 1 ? *first : job.size));
    }
    const int num_workers = job.size - 1;
    if (num_workers > 0 && options.world_size && *options.world_size != num_workers) {
      return invalid(fmt::format("--world-size {}, but {} starts {} workers", *options.world_size, job.launcher->source,
                                 num_workers));
    }
    if (num_workers > 0 && !options.world_size) {
      found.world_size = num_workers;
      found.source = job.launcher->source;
    }
  }
  Result<std::string> endpoint = options.rank_endpoint || !job.is("torchrun") || read(getenv, "MASTER_ADDR")
                                     ? choose_endpoint(options.rank_endpoint, job, getenv)
                                     : choose_endpoint(std::nullopt, JobPlace{}, getenv);
  if (!endpoint) return endpoint.error();
  found.endpoint = *endpoint;
  return found;
}

}  // namespace helios
