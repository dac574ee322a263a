// The real programs started the other ways: by hand under torchrun's variables, and by helios-launch on two "hosts".
#include <algorithm>
#include <map>
#include <span>

#include "common/base/cpu_affinity.h"
#include "common/launch/cpu_binding.h"
#include "tests/cluster/launch/real_process.h"

namespace helios::testing {
namespace {

const std::string kBin = bin_dir();
const std::string kDemo = demo_model();

void expect_nothing_left(const Scene& scene) {
  EXPECT_TRUE(wait_until([&] { return scene.left_running().empty(); }, milliseconds(20000)));
  for (const std::string& process : scene.left_running()) ADD_FAILURE() << "still runs: " << process;
}

/// A coordinator and two ranks under torchrun-style variables; what they answer.
std::string serve_by_hand(const std::string& collective) {
  const Scene scene;
  const RealProcess::Variables master = {
      {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", std::to_string(free_port())}, {"WORLD_SIZE", "2"}};
  RealProcess coordinator(scene, "coordinator",
                          {kBin + "/helios-coordinator", "--model", kDemo, "--port", "0", "--collective", collective},
                          master);
  std::vector<std::unique_ptr<RealProcess>> workers;
  for (int rank = 0; rank < 2; ++rank) {
    RealProcess::Variables variables = master;
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
    variables["LOCAL_WORLD_SIZE"] = "2";
    workers.push_back(std::make_unique<RealProcess>(
        scene, "worker" + std::to_string(rank),
        std::vector<std::string>{kBin + "/helios-worker", "--model", kDemo, "--threads-per-rank", "1"}, variables));
  }
  const int port = coordinator.wait_for_ready_port();
  EXPECT_GT(port, 0) << coordinator.errors() << workers[0]->errors();
  const std::string answer = port > 0 ? completion_logprobs(port) : "";
  coordinator.signal(SIGTERM);
  EXPECT_EQ(coordinator.wait_for_exit(), 0);
  for (const auto& worker : workers) EXPECT_EQ(worker->wait_for_exit(), 0) << worker->errors();
  expect_nothing_left(scene);
  return answer;
}

TEST(ByHand, TorchrunVariablesMakeACluster) { EXPECT_NE(serve_by_hand("auto"), ""); }

TEST(ByHand, TheTransportDoesNotChangeASingleDigit) { EXPECT_EQ(serve_by_hand("shm"), serve_by_hand("gloo")); }

TEST(ByHand, AnIncompleteSetOfVariablesIsRefused) {
  const Scene scene;
  RealProcess worker(scene, "worker", {kBin + "/helios-worker", "--model", kDemo}, {{"RANK", "0"}});
  EXPECT_EQ(worker.wait_for_exit(), 2);
  EXPECT_NE(worker.errors().find("WORLD_SIZE"), std::string::npos) << worker.errors();
}

std::string new_key() {
  const Scene scene;
  RealProcess launch(scene, "key", {kBin + "/helios-launch", "--new-cluster-key"});
  EXPECT_EQ(launch.wait_for_exit(), 0);
  const std::string line = launch.output();
  return line.substr(0, line.find('\n'));
}

TEST(TwoNodes, AreServedByOneCoordinatorThatSharesTheirKey) {
  const Scene scene;
  const RealProcess::Variables key{{"HELIOS_CLUSTER_KEY", new_key()}};
  const std::string port = std::to_string(free_port());
  const auto node = [&](const std::string& rank) {
    return std::vector<std::string>{kBin + "/helios-launch",
                                    "--model",
                                    kDemo,
                                    "--port",
                                    "0",
                                    "--nnodes",
                                    "2",
                                    "--node-rank",
                                    rank,
                                    "--master-addr",
                                    "127.0.0.1",
                                    "--master-port",
                                    port,
                                    "--collective",
                                    "gloo",
                                    "--threads-per-rank",
                                    "1"};
  };
  RealProcess second(scene, "node1", node("1"), key);  // may come first: it waits for the coordinator
  RealProcess first(scene, "node0", node("0"), key);
  const int http_port = first.wait_for_ready_port();
  ASSERT_GT(http_port, 0) << first.errors() << second.errors();
  EXPECT_NE(completion_logprobs(http_port), "");
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait_for_exit(), 0) << first.errors();
  EXPECT_EQ(second.wait_for_exit(), 0) << second.errors();
  expect_nothing_left(scene);
}

TEST(TwoNodes, NeedAKeyWhereOthersCanConnect) {
  const Scene scene;
  RealProcess launch(
      scene, "launch",
      {kBin + "/helios-launch", "--model", kDemo, "--nnodes", "2", "--node-rank", "1", "--master-addr", "192.0.2.1"});
  EXPECT_EQ(launch.wait_for_exit(), 2);
  EXPECT_NE(launch.errors().find("--new-cluster-key"), std::string::npos) << launch.errors();
}

/// Cpus_allowed_list of each thread of a process, by the thread's name.
std::multimap<std::string, std::string> cpus_of_threads(int pid) {
  std::multimap<std::string, std::string> found;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(thread.path() / "status");
    std::string name;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      if (line.starts_with("Cpus_allowed_list:\t")) found.emplace(name, line.substr(19));
    }
  }
  return found;
}

int pid_of_rank(const std::string& health, int rank) {
  return std::atoi(json_value(health, "pid", health.find("\"rank\":" + std::to_string(rank))).c_str());
}

TEST(Launched, RanksRunWhereTheyAreBound) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU: nothing to share out";
  const std::vector<std::string> shares = {print_cpu_list(std::span(cpus).first(cpus.size() / 2)),
                                           print_cpu_list(std::span(cpus).subspan(cpus.size() / 2))};
  const Scene scene;
  RealProcess launch(scene, "launch",
                     {kBin + "/helios-launch", "--model", kDemo, "--port", "0", "--nproc", "2", "--cpu-bind",
                      shares[1] + "|" + shares[0]},
                     {{"TMPDIR", scene.dir().string()}});
  const int port = launch.wait_for_ready_port();
  ASSERT_GT(port, 0) << launch.errors();
  EXPECT_NE(completion_logprobs(port), "");
  const std::string health = http(port, "/health").body;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string share = shares[static_cast<size_t>(1 - rank)];
    EXPECT_NE(launch.errors().find("cpus=\"" + share + ", a thread each\""), std::string::npos) << launch.errors();
    std::string compute;
    for (const auto& [name, list] : cpus_of_threads(pid_of_rank(health, rank))) {
      const Result<std::vector<std::vector<int>>> allowed = parse_cpu_lists(list);
      ASSERT_TRUE(allowed.ok()) << list;
      const std::vector<int> own = parse_cpu_lists(share)->front();
      for (const int cpu : allowed->front()) {
        EXPECT_EQ(std::count(own.begin(), own.end(), cpu), 1) << name << " " << list;
      }
      if (name == "compute") compute = list;
      if (name == "helios-compute") {
        EXPECT_EQ(allowed->front().size(), 1u) << list;
      }
    }
    EXPECT_EQ(compute, share.substr(0, share.find_first_of("-,"))) << "the first thread on the first CPU";
  }
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait_for_exit(), 0) << launch.errors();
  expect_nothing_left(scene);
}

TEST(Launched, ThreadsOfARankHaveACpuEach) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU: nothing to share out";
  const Scene scene;
  RealProcess launch(scene, "launch",
                     {kBin + "/helios-launch", "--model", kDemo, "--port", "0", "--cpu-bind",
                      std::to_string(cpus[1]) + "," + std::to_string(cpus[0])},
                     {{"TMPDIR", scene.dir().string()}});
  ASSERT_GT(launch.wait_for_ready_port(), 0) << launch.errors();
  const int port = launch.wait_for_ready_port();
  const std::multimap<std::string, std::string> threads = cpus_of_threads(pid_of_rank(http(port, "/health").body, 0));
  ASSERT_EQ(threads.count("compute"), 1u);
  ASSERT_EQ(threads.count("helios-compute"), 1u);
  EXPECT_EQ(threads.find("compute")->second, std::to_string(cpus[1]));
  EXPECT_EQ(threads.find("helios-compute")->second, std::to_string(cpus[0]));
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait_for_exit(), 0) << launch.errors();
  expect_nothing_left(scene);
}

TEST(Launched, ServesAndSurvivesALostRank) {
  const Scene scene;
  RealProcess launch(scene, "launch", {kBin + "/helios-launch", "--model", kDemo, "--port", "0", "--nproc", "2"},
                     {{"TMPDIR", scene.dir().string()}});
  const int port = launch.wait_for_ready_port();
  ASSERT_GT(port, 0) << launch.errors();
  const std::string before = completion_logprobs(port);
  const std::string health = http(port, "/health").body;
  const int pid = std::atoi(json_value(health, "pid", health.find("\"rank\":1")).c_str());
  ASSERT_GT(pid, 1) << health;
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_TRUE(wait_until([&] { return http(port, "/readyz").status != 200; })) << "readiness goes off";
  ASSERT_TRUE(wait_until([&] { return http(port, "/readyz").status == 200; })) << launch.errors();
  EXPECT_EQ(completion_logprobs(port), before);
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait_for_exit(), 0) << launch.errors();
  EXPECT_EQ(launch.output(), "ready http://127.0.0.1:" + std::to_string(port) + "\n");
  expect_nothing_left(scene);
}

}  // namespace
}  // namespace helios::testing
