// Every launcher's variables as they were seen from a real run, and the ways in which a set can be incomplete.
#include "common/launch/launch_env.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace helios {
namespace {

using Variables = std::map<std::string, std::string>;

GetEnv environment(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Variables join(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Variables open_mpi(int rank, int size, int local_rank, int local_size, const std::string& contexts) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
          {"OMPI_APP_CTX_NUM_PROCS", contexts},
          {"OMPI_FIRST_RANKS", "0 0"},
          {"OMPI_UNIVERSE_SIZE", "3"},
          {"PMIX_RANK", std::to_string(rank)}};
}
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29400"}};
const Variables kSlurmBatch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
const Variables kSlurmStep = {
    {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "2"}, {"SLURM_STEP_ID", "0"}};

// LaunchOptions as a table can hold it.
struct Given {
  std::optional<int> rank, world_size, local_rank;
  const char* coordinator = nullptr;

  LaunchOptions options() const {
    LaunchOptions all{rank, world_size, local_rank, {}};
    if (coordinator) all.coordinator = coordinator;
    return all;
  }
};

struct Good {
  const char* name;
  Given given;
  Variables variables;
  int rank, world_size, local_rank, local_size;
  const char* coordinator;
  const char* source;
};
std::ostream& operator<<(std::ostream& out, const Good& one) { return out << one.name; }

class WorkerPlace : public ::testing::TestWithParam<Good> {};

TEST_P(WorkerPlace, IsFound) {
  const Good& want = GetParam();
  const Result<LaunchPlace> place = resolve_launch_place(want.given.options(), environment(want.variables));
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_EQ(place->rank, Rank(want.rank));
  EXPECT_EQ(place->world_size, want.world_size);
  EXPECT_EQ(place->local_rank, want.local_rank);
  EXPECT_EQ(place->local_size, want.local_size);
  EXPECT_EQ(place->coordinator, want.coordinator);
  EXPECT_EQ(place->source, want.source);
}

const Good kGood[] = {
    {"Options", {1, 2, {}, nullptr}, {}, 1, 2, 1, 2, kDefaultCoordinator, "options"},
    {"OptionsWithEverything", {5, 8, 1, "tcp://a:1"}, {}, 5, 8, 1, 8, "tcp://a:1", "options"},
    {"OptionsWinOverAnyLauncher",
     {1, 2, {}, nullptr},
     join(kTorchrun, open_mpi(0, 3, 0, 3, "3")),
     1,
     2,
     1,
     2,
     kDefaultCoordinator,
     "options"},
    {"OptionsTakeTheEndpointOfTorchrun", {1, 2, {}, nullptr}, kTorchrun, 1, 2, 1, 2, "tcp://node0:29400", "options"},
    {"OptionsWithALocalRankFromTheEnvironment",
     {5, 8, {}, nullptr},
     {{"HELIOS_LOCAL_RANK", "1"}, {"HELIOS_LOCAL_SIZE", "4"}},
     5,
     8,
     1,
     4,
     kDefaultCoordinator,
     "options"},
    {"Helios",
     {},
     {{"HELIOS_RANK", "1"},
      {"HELIOS_WORLD_SIZE", "4"},
      {"HELIOS_LOCAL_RANK", "0"},
      {"HELIOS_COORDINATOR", "tcp://h:7"}},
     1,
     4,
     0,
     4,
     "tcp://h:7",
     "HELIOS_*"},
    {"HeliosWinsOverOpenMpi",
     {},
     join({{"HELIOS_RANK", "1"}, {"HELIOS_WORLD_SIZE", "4"}}, open_mpi(0, 2, 0, 2, "2")),
     1,
     4,
     1,
     4,
     kDefaultCoordinator,
     "HELIOS_*"},
    {"OpenMpi", {}, open_mpi(1, 2, 1, 2, "2"), 1, 2, 1, 2, kDefaultCoordinator, "Open MPI"},
    {"OpenMpiWithTheCoordinator",
     {},
     join(open_mpi(1, 3, 1, 3, "1 2"), {{"OMPI_MCA_orte_app_num", "1"}}),
     0,
     2,
     0,
     2,
     kDefaultCoordinator,
     "Open MPI"},
    {"OpenMpiWithTheCoordinatorAndTwoWorkerPrograms",
     {},
     open_mpi(2, 3, 2, 3, "1 1 1"),
     1,
     2,
     1,
     2,
     kDefaultCoordinator,
     "Open MPI"},
    {"OpenMpiOnTheCoordinatorsHost",
     {},
     join(open_mpi(2, 5, 2, 3, "1 4"), {{"HELIOS_COORDINATOR", "tcp://h:1"}}),
     1,
     4,
     1,
     2,
     "tcp://h:1",
     "Open MPI"},
    {"OpenMpiOnAnotherHost",
     {},
     join(open_mpi(3, 5, 0, 2, "1 4"), {{"HELIOS_COORDINATOR", "tcp://h:1"}}),
     2,
     4,
     0,
     2,
     "tcp://h:1",
     "Open MPI"},
    {"OpenMpiInsideSlurm",
     {},
     join(open_mpi(1, 2, 1, 2, "2"), kSlurmStep),
     1,
     2,
     1,
     2,
     kDefaultCoordinator,
     "Open MPI"},
    {"OpenMpiAgreesWithWorldSize",
     {{}, 2, {}, {}},
     open_mpi(2, 3, 2, 3, "1 2"),
     1,
     2,
     1,
     2,
     kDefaultCoordinator,
     "Open MPI"},
    {"Hydra",
     {},
     {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     1,
     2,
     1,
     2,
     kDefaultCoordinator,
     "PMI"},
    {"HydraWithTheCoordinator",
     {{}, 2, {}, {}},
     {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "3"}},
     0,
     2,
     0,
     2,
     kDefaultCoordinator,
     "PMI"},
    {"PmiWithoutLocalNumbers", {}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, 1, 2, 1, 2, kDefaultCoordinator, "PMI"},
    {"Torchrun", {}, kTorchrun, 3, 4, 1, 2, "tcp://node0:29400", "torchrun"},
    {"TorchrunWithTheAgentsStore",
     {},
     join(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
     3,
     4,
     1,
     2,
     "tcp://node0:29401",
     "torchrun"},
    {"TorchrunWithItsOwnStore",
     {},
     join(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}),
     3,
     4,
     1,
     2,
     "tcp://node0:29400",
     "torchrun"},
    {"TorchrunWithAnIpv6Master",
     {},
     join({{"MASTER_ADDR", "fd00::1"}}, kTorchrun),
     3,
     4,
     1,
     2,
     "tcp://[fd00::1]:29400",
     "torchrun"},
    {"TorchrunWithAnotherEndpoint", {{}, {}, {}, "ipc:///x"}, kTorchrun, 3, 4, 1, 2, "ipc:///x", "torchrun"},
    {"TorchrunInsideABatchShell", {}, join(kTorchrun, kSlurmBatch), 3, 4, 1, 2, "tcp://node0:29400", "torchrun"},
    {"SlurmStep", {}, kSlurmStep, 2, 4, 2, 4, kDefaultCoordinator, "Slurm"},
    {"SlurmStepWithTheCoordinator", {{}, 3, {}, {}}, kSlurmStep, 1, 3, 1, 3, kDefaultCoordinator, "Slurm"},
    {"SlurmStepOnTwoHosts",
     {},
     join(kSlurmStep, {{"SLURM_STEP_NUM_NODES", "2"}, {"HELIOS_COORDINATOR", "tcp://h:1"}}),
     2,
     4,
     2,
     4,
     "tcp://h:1",
     "Slurm"},
};
INSTANTIATE_TEST_SUITE_P(Sources, WorkerPlace, ::testing::ValuesIn(kGood),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(LaunchPlace, NothingSaysAnything) {
  for (const Variables& variables : {Variables{}, kSlurmBatch}) {
    const Result<LaunchPlace> place = resolve_launch_place({}, environment(variables));
    ASSERT_TRUE(place.ok()) << place.error().message;
    EXPECT_FALSE(place->rank);
    EXPECT_FALSE(place->world_size);
    EXPECT_EQ(place->coordinator, kDefaultCoordinator);
    EXPECT_EQ(place->source, "none");
  }
}

// Otherwise a rank with eight cores of its own would take two of them, beside three ranks that have eight each.
TEST(LaunchPlace, KnowsWhereTheLauncherGaveARankItsOwnCpus) {
  const Variables mpi = open_mpi(1, 4, 1, 4, "4"), bound = {{"OMPI_MCA_orte_bound_at_launch", "1"}};
  const auto policy = [](const char* level) { return Variables{{"OMPI_MCA_hwloc_base_binding_policy", level}}; };
  const auto mapping = [](const char* by) { return Variables{{"OMPI_MCA_rmaps_base_mapping_policy", by}}; };
  const auto masks = [](const char* type, const char* list) {
    return join(kSlurmStep, {{"SLURM_CPU_BIND_TYPE", type}, {"SLURM_CPU_BIND_LIST", list}});  // local rank 2
  };
  const struct {
    Variables variables;
    bool own;
  } cases[] = {
      {mpi, false},
      {join(mpi, bound), false},  // its default, which depends on how many there are
      {join(join(mpi, bound), policy("core")), true},
      {join(join(mpi, bound), policy("hwthread:if-supported")), true},
      {join(mpi, policy("core")), false},  // not possible there, and so not done
      {join(join(mpi, bound), policy("core:overload-allowed")), false},
      {join(join(mpi, bound), policy("socket")), false},
      {join(join(mpi, bound), mapping("slot:PE=8")), true},
      {join(join(mpi, bound), mapping("socket")), false},
      {kSlurmStep, false},
      {masks("mask_cpu:", "0x03,0x0C,0x30,0xc0"), true},
      {masks("mask_cpu:", "0x00000000000003,0xc,0x30"), true},
      {masks("mask_cpu:", "0x0f,0x0f,0xf0,0xf0"), false},                         // two a socket
      {masks("mask_cpu:", "0x0f,0x0f,0xff0000000000000000"), true},               // more CPUs than an integer has bits
      {masks("mask_cpu:", "0x1,0x80000000000000000,0x80000000000000000"), false},
      {masks("mask_cpu:", "0x3,0xc"), false},  // of others
      {masks("mask_cpu:", ""), false},
      {masks("mask_cpu:", "0x3,,0x30"), false},
      {masks("mask_cpu:", "0x3,-c,0x30"), false},
      {masks("mask_cpu:", "0x3,0xc,0x3g"), false},
      {masks("none", "0x3,0xc,0x30"), false},
      {join(kTorchrun, bound), false},
  };
  for (const auto& [variables, own] : cases) {
    const Result<LaunchPlace> place = resolve_launch_place({}, environment(variables));
    ASSERT_TRUE(place.ok()) << place.error().message;
    EXPECT_EQ(place->own_cpus, own) << ::testing::PrintToString(variables);
  }
  const Result<LaunchPlace> told = resolve_launch_place({.rank = 0, .world_size = 2}, environment(cases[2].variables));
  EXPECT_FALSE(told->own_cpus) << "options do not say how the launcher counts";
}

struct Bad {
  const char* name;
  Given given;
  Variables variables;
  const char* message_part;
};
std::ostream& operator<<(std::ostream& out, const Bad& one) { return out << one.name; }

class IncompletePlace : public ::testing::TestWithParam<Bad> {};

TEST_P(IncompletePlace, IsRefusedInOneLine) {
  const Result<LaunchPlace> place = resolve_launch_place(GetParam().given.options(), environment(GetParam().variables));
  ASSERT_FALSE(place.ok());
  EXPECT_EQ(place.error().code, Errc::kInvalidArgument);
  EXPECT_NE(place.error().message.find(GetParam().message_part), std::string::npos) << place.error().message;
  EXPECT_EQ(place.error().message.find('\n'), std::string::npos);
}

Variables without(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

const Bad kBad[] = {
    {"RankAlone", {}, {{"RANK", "0"}}, "WORLD_SIZE is not"},
    {"WorldSizeAlone", {}, {{"WORLD_SIZE", "2"}}, "RANK is not"},
    {"TorchrunWithoutLocalRank", {}, without(kTorchrun, "LOCAL_RANK"), "LOCAL_RANK is not"},
    {"TorchrunWithoutMaster", {}, without(without(kTorchrun, "MASTER_ADDR"), "MASTER_PORT"), "MASTER_ADDR"},
    {"TorchrunWithHalfAMaster", {}, without(kTorchrun, "MASTER_PORT"), "MASTER_PORT is not"},
    {"AMasterPortThatIsNone", {}, join({{"MASTER_PORT", "29400x"}}, kTorchrun), "MASTER_PORT=\"29400x\""},
    {"AMasterPortWithoutANext",
     {},
     join({{"MASTER_PORT", "65535"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}, kTorchrun),
     "65536"},
    {"AnEmptyWorldSize", {}, {{"RANK", "0"}, {"WORLD_SIZE", ""}}, "WORLD_SIZE is not"},
    {"HeliosRankAlone", {}, {{"HELIOS_RANK", "0"}}, "HELIOS_WORLD_SIZE is not"},
    {"OpenMpiRankAlone", {}, {{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE is not"},
    {"PmiSizeAlone", {}, {{"PMI_SIZE", "2"}}, "PMI_RANK is not"},
    {"RankOptionAlone", {0, {}, {}, {}}, {}, "--world-size is not"},
    {"WorldSizeOptionAlone", {{}, 2, {}, {}}, {}, "--rank is not"},
    {"RankBeyondTheWorld", {2, 2, {}, nullptr}, {}, "--rank 2: expected 0 to 1, --world-size being 2"},
    {"NegativeRank", {-1, 2, {}, nullptr}, {}, "--rank -1: expected 0 to 1"},
    {"NoWorld", {0, 0, {}, nullptr}, {}, "--world-size 0: expected at least 1"},
    {"LocalRankOptionBeyondTheHost", {{}, {}, 2, nullptr}, kTorchrun, "--local-rank 2: expected 0 to 1"},
    {"TorchrunRankBeyondTheWorld", {}, join({{"RANK", "4"}}, kTorchrun), "RANK 4: expected 0 to 3, WORLD_SIZE being 4"},
    {"LocalRankBeyondTheHost",
     {},
     join({{"LOCAL_RANK", "2"}}, kTorchrun),
     "LOCAL_RANK 2: expected 0 to 1, one of this host's ranks"},
    {"MoreOnTheHostThanInAll",
     {},
     join({{"LOCAL_WORLD_SIZE", "5"}}, kTorchrun),
     "LOCAL_WORLD_SIZE 5: more ranks on this host than WORLD_SIZE 4 in all"},
    {"ANumberThatIsNone", {}, {{"PMI_RANK", "one"}, {"PMI_SIZE", "2"}}, "PMI_RANK=\"one\""},
    {"ANumberTooLarge", {}, {{"PMI_RANK", "0"}, {"PMI_SIZE", "99999999999"}}, "PMI_SIZE"},
    {"WorldSizeAgainstOpenMpi", {{}, 4, {}, {}}, open_mpi(1, 3, 1, 3, "1 2"), "Open MPI starts 2 workers"},
    {"WorldSizeAgainstHydra", {{}, 4, {}, {}}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, "PMI starts 3 workers"},
    {"AWorkerInTheFirstProgram", {}, open_mpi(0, 3, 0, 3, "1 2"), "helios-coordinator"},
    {"ProgramsThatDoNotAddUp", {}, open_mpi(1, 3, 1, 3, "1 3"), "add up"},
    {"OpenMpiOnSeveralHosts", {}, open_mpi(1, 4, 1, 2, "4"), "HELIOS_COORDINATOR"},
    {"SlurmOnSeveralHosts", {}, join(kSlurmStep, {{"SLURM_STEP_NUM_NODES", "2"}}), "HELIOS_COORDINATOR"},
};
INSTANTIATE_TEST_SUITE_P(Sets, IncompletePlace, ::testing::ValuesIn(kBad),
                         [](const auto& one) { return std::string(one.param.name); });

struct CoordinatorCase {
  const char* name;
  std::optional<int> given_world_size;
  const char* given_endpoint;
  Variables variables;
  int world_size;  // 0: unset
  const char* endpoint;
  const char* source;
};
std::ostream& operator<<(std::ostream& out, const CoordinatorCase& one) { return out << one.name; }

class CoordinatorsPlace : public ::testing::TestWithParam<CoordinatorCase> {};

TEST_P(CoordinatorsPlace, IsFound) {
  const CoordinatorCase& want = GetParam();
  CoordinatorLaunchOptions options{want.given_world_size, {}};
  if (want.given_endpoint) options.rank_endpoint = want.given_endpoint;
  const Result<CoordinatorPlace> place = resolve_coordinator_place(options, environment(want.variables));
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_EQ(place->world_size.value_or(0), want.world_size);
  EXPECT_EQ(place->endpoint, want.endpoint);
  EXPECT_EQ(place->source, want.source);
}

const CoordinatorCase kCoordinators[] = {
    {"OptionsInsideAJobOfLaunchers", 8, "tcp://h:1", kSlurmStep, 8, "tcp://h:1", "options"},
    {"Options", 2, "ipc:///x", {}, 2, "ipc:///x", "options"},
    {"Nothing", {}, nullptr, {}, 0, kDefaultCoordinator, "none"},
    {"Helios",
     {},
     nullptr,
     {{"HELIOS_WORLD_SIZE", "4"}, {"HELIOS_COORDINATOR", "tcp://h:7"}},
     4,
     "tcp://h:7",
     "HELIOS_*"},
    {"OpenMpiWithWorkers", {}, nullptr, open_mpi(0, 3, 0, 3, "1 2"), 2, kDefaultCoordinator, "Open MPI"},
    {"OpenMpiAlone", {}, nullptr, open_mpi(0, 1, 0, 1, "1"), 0, kDefaultCoordinator, "none"},
    {"OpenMpiAgreesWithTheOption", 2, nullptr, open_mpi(0, 3, 0, 3, "1 2"), 2, kDefaultCoordinator, "options"},
    {"Hydra", {}, nullptr, {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}, 2, kDefaultCoordinator, "PMI"},
    {"TorchrunVariables", {}, nullptr, kTorchrun, 4, "tcp://node0:29400", "torchrun"},
    {"TorchrunAgent",
     {},
     nullptr,
     join(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
     4,
     "tcp://node0:29401",
     "torchrun"},
    {"MasterOnly",
     2,
     nullptr,
     {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}},
     2,
     "tcp://10.0.0.1:1234",
     "options"},
    {"WorldSizeOnly", {}, nullptr, {{"WORLD_SIZE", "2"}}, 2, kDefaultCoordinator, "torchrun"},
    {"SlurmStepOfItsOwn",
     4,
     nullptr,
     {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_ID", "1"}},
     4,
     kDefaultCoordinator,
     "options"},
    {"SlurmBatchShell", {}, nullptr, kSlurmBatch, 0, kDefaultCoordinator, "none"},
};
INSTANTIATE_TEST_SUITE_P(Sources, CoordinatorsPlace, ::testing::ValuesIn(kCoordinators),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(CoordinatorPlace, RefusesToBeOneOfManyOrNotTheFirst) {
  const auto message = [](const CoordinatorLaunchOptions& options, const Variables& variables) {
    const Result<CoordinatorPlace> place = resolve_coordinator_place(options, environment(variables));
    return place.ok() ? std::string("accepted") : place.error().message;
  };
  EXPECT_NE(message({}, open_mpi(1, 3, 1, 3, "1 2")).find("must be the first"), std::string::npos);
  EXPECT_NE(message({}, open_mpi(0, 3, 0, 3, "2 1")).find("2 coordinators"), std::string::npos);
  EXPECT_NE(message({}, open_mpi(0, 2, 0, 2, "2")).find("2 coordinators"), std::string::npos);
  EXPECT_NE(message({4, {}}, open_mpi(0, 3, 0, 3, "1 2")).find("starts 2 workers"), std::string::npos);
  EXPECT_NE(message({}, open_mpi(0, 3, 0, 2, "1 2")).find("HELIOS_COORDINATOR"), std::string::npos);
}

TEST(Endpoint, IsBoundByAddress) {
  EXPECT_EQ(*bind_endpoint("tcp://localhost:29500"), "tcp://127.0.0.1:29500");
  EXPECT_EQ(*bind_endpoint("tcp://10.1.2.3:1"), "tcp://10.1.2.3:1");
  EXPECT_EQ(*bind_endpoint("tcp://[::1]:5"), "tcp://[::1]:5");
  EXPECT_EQ(*bind_endpoint("tcp://*:5"), "tcp://*:5");
  EXPECT_EQ(*bind_endpoint("tcp://127.0.0.1:*"), "tcp://127.0.0.1:*");
  EXPECT_EQ(*bind_endpoint("ipc:///tmp/x"), "ipc:///tmp/x");
  for (const char* bad : {"", "127.0.0.1:80", "tcp://", "tcp://host", "tcp://:1", "tcp://h:", "udp://h:1"}) {
    EXPECT_FALSE(bind_endpoint(bad).ok()) << bad;
  }
  EXPECT_FALSE(bind_endpoint("tcp://no-such-host.invalid:1").ok());
}

TEST(Endpoint, OwnAddressLiesOnTheRouteToIt) {
  EXPECT_EQ(*local_address_towards("tcp://127.0.0.1:29500"), "127.0.0.1");
  EXPECT_EQ(*local_address_towards("ipc:///tmp/x"), "127.0.0.1");
  EXPECT_FALSE(local_address_towards("tcp://127.0.0.1").ok());
}

}  // namespace
}  // namespace helios
