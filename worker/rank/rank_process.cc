#include "worker/rank/rank_process.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "common/base/log.h"
#include "common/base/readable_bytes.h"
#include "worker/rank/drain.h"
#include "worker/rank/rank_loop.h"

namespace helios {
namespace {

/// Ends loading early, from within the progress report.
struct LeavesWhileLoading : std::runtime_error {
  using std::runtime_error::runtime_error;
};

CommunicatorConfig group_of(const Hello& hello, const Welcome& welcome, std::chrono::milliseconds timeout,
                            CoordinatorLink& link) {
  CommunicatorConfig config;
  config.collective = welcome.collective;
  config.group_key = welcome.group_key;
  config.rank = hello.rank;
  config.world_size = welcome.world_size;
  config.host_name = hello.host_name;
  config.timeout = timeout;
  config.store_set = [&link](const std::string& key, const std::string& value) { link.store_set(key, value); };
  config.store_get = [&link, timeout](const std::string& key) { return link.store_get(key, timeout); };
  return config;
}

/// The link may abort the communicator from its own thread, so it lets go of it first, however this ends.
class Attached {
 public:
  Attached(CoordinatorLink& link, Communicator& communicator) : link_(link) { link_.attach(&communicator); }
  void change_to(Communicator& communicator) { link_.attach(&communicator); }
  ~Attached() { link_.attach(nullptr); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  CoordinatorLink& link_;
};

PreparedCore load(const PrepareCore& prepare, Communicator& communicator, CoordinatorLink& link, RankVitals& vitals) {
  vitals.advance_state(RankState::kLoading);
  PreparedCore core = prepare(communicator, [&](double progress) {
    vitals.set_load_progress(progress);
    if (const Leave leave = link.leave(); leave.reason != LeaveReason::kNone) throw LeavesWhileLoading(leave.why);
  });
  vitals.set_load_progress(1.0);
  return core;
}

/// Where the memory went: the parts, then the device's totals (R25).
void log_memory(Rank rank, const CoreManifest& core) {
  const MemoryReport& m = core.memory;
  log_info("rank_memory",
           "rank={} weights=\"{}\" kv_cache=\"{}\" kv_cache_dtype={} kv_cache_tokens={} host_tier=\"{}\" "
           "host_tier_tokens={} bundle=\"{}\" scoring=\"{}\" workspace=\"{}\" pinned=\"{}\" device_allocated=\"{}\" "
           "device_reserved=\"{}\"",
           rank.value, readable_bytes(m.weights_bytes), readable_bytes(m.kv_cache_bytes), core.kv_cache_dtype,
           int64_t{core.kv_num_blocks} * core.kv_block_size, readable_bytes(m.host_tier_bytes),
           int64_t{core.host_num_blocks} * core.kv_block_size, readable_bytes(m.bundle_bytes),
           readable_bytes(m.scoring_bytes), readable_bytes(m.workspace_bytes), readable_bytes(m.pinned_bytes),
           readable_bytes(m.device_allocated_bytes), readable_bytes(m.device_reserved_bytes));
}

void serve(const Hello& hello, std::chrono::milliseconds timeout, const PrepareCore& prepare, CoordinatorLink& link,
           RankVitals& vitals) {
  const std::optional<Welcome> welcome = link.wait_welcome();
  if (!welcome) return;
  log_info("rank_welcomed", "rank={} incarnation={} world_size={} collective={}", hello.rank.value,
           welcome->incarnation, welcome->world_size, welcome->collective);
  const std::unique_ptr<Communicator> communicator = make_communicator(group_of(hello, *welcome, timeout, link));
  PreparedCore core;  // before `attached`: the link lets go of its group before it is destroyed
  Attached attached(link, *communicator);
  core = load(prepare, *communicator, link, vitals);
  Communicator& group = core.device_group ? *core.device_group : *communicator;
  attached.change_to(group);
  Executor& executor = *core.executor;
  vitals.publish_counters(executor.counters());
  link.send(Ready{welcome->incarnation, executor.manifest()});
  vitals.advance_state(RankState::kReady);
  log_memory(hello.rank, executor.manifest());
  log_info("rank_ready", "rank={} incarnation={} resident_mib={}", hello.rank.value, welcome->incarnation,
           resident_bytes() >> 20);
  RankLoop(executor, group, welcome->incarnation, link, vitals).run();
  vitals.publish_counters(executor.counters());
}

}  // namespace

int serve_rank(const Hello& hello, std::chrono::milliseconds collective_timeout, const PrepareCore& prepare,
               CoordinatorLink& link, RankVitals& vitals) {
  try {
    serve(hello, collective_timeout, prepare, link, vitals);
  } catch (const LeavesWhileLoading&) {  // the link has said why
  } catch (const LoadError& error) {
    link.report_fault(error.what(), kExitCannotServe);
  } catch (const CollectiveError& error) {
    link.report_fault(error.what());
  } catch (const std::bad_alloc&) {
    link.report_fault("out of memory while loading", kExitCannotServe);
  } catch (const std::exception& error) {
    link.report_fault(error.what(), kExitCannotServe);
  }
  return link.exit_code();
}

}  // namespace helios
