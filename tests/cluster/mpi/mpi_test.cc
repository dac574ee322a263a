// Helios as one mpirun job: Open MPI starts the coordinator and the ranks, and ends them all when one dies.
//
// MPI is a launcher only: no process calls it. Skipped loudly without mpirun.
#include "tests/cluster/launch/real_process.h"

namespace helios::testing {
namespace {

const std::string kBin = bin_dir();
const std::string kDemo = demo_model();

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("mpirun --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "SKIPPED, NOT CHECKED: no mpirun here";
  }

  /// Under its own endpoint, so that nothing else on this machine can meet it.
  std::unique_ptr<RealProcess> start(const Scene& scene) {
    const std::vector<std::string> command = {"mpirun",
                                              "--allow-run-as-root",
                                              "--oversubscribe",
                                              "--bind-to",
                                              "none",  //
                                              "-np",
                                              "1",
                                              kBin + "/helios-coordinator",
                                              "--model",
                                              kDemo,
                                              "--port",
                                              "0",  //
                                              ":",  //
                                              "-np",
                                              "2",
                                              kBin + "/helios-worker",
                                              "--model",
                                              kDemo,
                                              "--threads-per-rank",
                                              "1"};
    return std::make_unique<RealProcess>(
        scene, "mpirun", command,
        RealProcess::Variables{{"HELIOS_COORDINATOR", "tcp://127.0.0.1:" + std::to_string(free_port())}});
  }
  static void expect_nothing_left(const Scene& scene) {
    EXPECT_TRUE(wait_until([&] { return scene.left_running().empty(); }, milliseconds(20000)));
    for (const std::string& process : scene.left_running()) ADD_FAILURE() << "still runs: " << process;
  }
};

TEST_F(Mpi, ServesACompletionAndEndsOnSigterm) {
  const Scene scene;
  const auto job = start(scene);
  const int port = job->wait_for_ready_port();
  ASSERT_GT(port, 0) << job->errors();
  EXPECT_NE(completion_logprobs(port), "");
  const HttpReply health = http(port, "/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_NE(health.body.find("\"rank\":1"), std::string::npos) << health.body;
  job->signal(SIGTERM);
  EXPECT_NE(job->wait_for_exit(), -1);  // mpirun's own code for being told to stop
  expect_nothing_left(scene);
}

TEST_F(Mpi, AKilledRankEndsTheJob) {
  const Scene scene;
  const auto job = start(scene);
  const int port = job->wait_for_ready_port();
  ASSERT_GT(port, 0) << job->errors();
  const std::string health = http(port, "/health").body;
  const int pid = std::atoi(json_value(health, "pid", health.find("\"rank\":1")).c_str());
  ASSERT_GT(pid, 1) << health;
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  const int code = job->wait_for_exit(milliseconds(30000));
  EXPECT_GT(code, 0) << "a lost rank is a failure of the job, in bounded time";
  expect_nothing_left(scene);
}

}  // namespace
}  // namespace helios::testing
