// Which rank a process is, of how many, and where the coordinator listens: from its options, or from the variables that
// a launcher sets.
//
// In this order, the first that says anything decides and must then be complete and consistent:
//
//   options      --rank --world-size [--local-rank] [--coordinator]
//   HELIOS_*     HELIOS_RANK HELIOS_WORLD_SIZE [HELIOS_LOCAL_RANK] [HELIOS_COORDINATOR]
//   Open MPI     OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
//   PMI          PMI_RANK PMI_SIZE [MPI_LOCALRANKID MPI_LOCALNRANKS]        (MPICH's Hydra)
//   torchrun     RANK WORLD_SIZE LOCAL_RANK [LOCAL_WORLD_SIZE] MASTER_ADDR MASTER_PORT
//   Slurm        SLURM_PROCID SLURM_NTASKS SLURM_LOCALID, only with SLURM_STEP_ID: a batch shell has the others too
//
// The endpoint comes from --coordinator, else HELIOS_COORDINATOR, else MASTER_ADDR and MASTER_PORT under torchrun, else
// the default, which is refused when the ranks are seen to span hosts.
//
// One job may hold the coordinator too, `mpirun -np 1 helios-coordinator ... : -np 2 helios-worker ...`: all its
// processes are then numbered together, coordinator first, and a worker counts from the first worker. Open MPI says so
// in its variables; under PMI and Slurm nothing does, and `--world-size N` with N one less than the job's size means
// it. Pure but for name look-ups in bind_endpoint(). Thread: any.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace helios {

inline constexpr const char* kDefaultCoordinator = "tcp://127.0.0.1:29500";

/// As ::getenv.
using GetEnv = std::function<const char*(const char*)>;

/// What the command line said; unset where it said nothing.
struct LaunchOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<std::string> coordinator;
};

struct LaunchPlace {
  std::optional<Rank> rank;  // both or neither: unset when nothing says that there is a group
  std::optional<int> world_size;
  int local_rank = 0;  // among the workers of this host: picks the device
  int local_size = 1;  // workers of this host, as far as known
  // The launcher says that it gave this rank CPUs which no other of its host has; false: not said. From within, a mask
  // of its own looks like one that several have: those of a socket, or all under a taskset around the launcher.
  bool own_cpus = false;
  std::string coordinator = kDefaultCoordinator;
  std::string source;  // "options", "HELIOS_*", "Open MPI", "PMI", "torchrun", "Slurm" or "none"
};

/// For a worker. Errors: kInvalidArgument, one line that names the variable or option and what it lacks.
Result<LaunchPlace> resolve_launch_place(const LaunchOptions& options, const GetEnv& getenv);

struct CoordinatorLaunchOptions {
  std::optional<int> world_size;
  std::optional<std::string> rank_endpoint;
};

struct CoordinatorPlace {
  std::optional<int> world_size;               // how many workers to wait for; unset when nothing says
  std::string endpoint = kDefaultCoordinator;  // where ranks connect
  std::string source;                          // of the world size, as above
};

/// For the coordinator, whose own process is never counted as a worker.
Result<CoordinatorPlace> resolve_coordinator_place(const CoordinatorLaunchOptions& options, const GetEnv& getenv);

/// `endpoint` with a tcp host name replaced by its address, since a socket binds to addresses only; others unchanged.
Result<std::string> bind_endpoint(const std::string& endpoint);

/// This host's address on the route to a tcp endpoint: what peers on other hosts can reach. "127.0.0.1" for ipc. A host
/// name would not do: many systems resolve their own to a loopback address.
Result<std::string> local_address_towards(const std::string& endpoint);

}  // namespace helios
