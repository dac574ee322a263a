#include "worker/rank/status_pages.h"

#include <fmt/format.h>

#include <iterator>

namespace helios {
namespace {

using namespace std::chrono_literals;

constexpr auto kLinkTurnLimit = 2s;  // the link thread turns at least every 50 ms

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// One family of Prometheus text: HELP, TYPE and a single sample.
class MetricsText {
 public:
  explicit MetricsText(Rank rank) : rank_(rank) {}

  void add(std::string_view name, std::string_view type, std::string_view help, double value) {
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n{0}{{rank=\"{3}\"}} {4}\n", name, help,
                   type, rank_.value, value);
  }
  std::string take() { return std::move(text_); }

 private:
  const Rank rank_;
  std::string text_;
};

}  // namespace

std::optional<StatusPage> StatusPages::page(std::string_view path) const {
  if (path == "/livez") return livez();
  if (path == "/readyz") return readyz();
  if (path == "/metrics") return metrics();
  return std::nullopt;
}

StatusPage StatusPages::livez() const {
  const auto idle = vitals_.since_link_turn();
  if (idle < kLinkTurnLimit) return {.body = "ok\n"};
  return {.status = 503, .body = fmt::format("link thread stopped {:.1f} s ago\n", seconds(idle))};
}

StatusPage StatusPages::readyz() const {
  const RankState state = vitals_.state();
  if (state == RankState::kReady) return {.body = fmt::format("ready incarnation={}\n", vitals_.incarnation())};
  return {.status = 503, .body = fmt::format("{} progress={:.0f}%\n", to_string(state), 100 * vitals_.load_progress())};
}

StatusPage StatusPages::metrics() const {
  const RankVitals::Steps steps = vitals_.steps();
  MetricsText text(rank_);
  text.add("helios_rank_ready", "gauge", "1 when the rank is ready in the current incarnation.",
           vitals_.state() == RankState::kReady ? 1 : 0);
  text.add("helios_rank_incarnation", "gauge", "Incarnation of the rank set; 0 before the first welcome.",
           vitals_.incarnation());
  text.add("helios_rank_load_progress", "gauge", "Share of the weights that is packed, 0 to 1.",
           vitals_.load_progress());
  text.add("helios_rank_steps_total", "counter", "Submissions taken.", static_cast<double>(steps.begun));
  text.add("helios_rank_steps_completed_total", "counter", "Submissions whose frame was collected.",
           static_cast<double>(steps.ended));
  text.add("helios_rank_last_sequence", "gauge", "Sequence of the last submission taken.",
           static_cast<double>(steps.last_sequence.value));
  text.add("helios_rank_busy_seconds", "gauge", "How long the oldest step in flight has been the oldest; 0 when idle.",
           seconds(steps.busy_for));
  text.add("helios_rank_completions_sent_total", "counter", "Completions handed to the coordinator's socket.",
           static_cast<double>(vitals_.completions_sent));
  text.add("helios_rank_heartbeats_sent_total", "counter", "Heartbeats sent.",
           static_cast<double>(vitals_.heartbeats_sent));
  text.add("helios_rank_coordinator_silence_seconds", "gauge", "Time since the coordinator was last heard.",
           seconds(vitals_.since_coordinator_heard()));
  text.add("helios_rank_messages_refused_total", "counter", "Messages that could not be decoded.",
           static_cast<double>(vitals_.messages_refused));
  text.add("helios_rank_submissions_dropped_total", "counter", "Submissions of another incarnation.",
           static_cast<double>(vitals_.submissions_dropped));
  text.add("process_resident_memory_bytes", "gauge", "Resident memory of the process.",
           static_cast<double>(resident_bytes()));
  for (const Executor::Counter& counter : vitals_.counters()) {
    text.add(counter.name, counter.name.ends_with("_total") ? "counter" : "gauge", counter.help, counter.value);
  }
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = text.take()};
}

}  // namespace helios
