// What a rank answers to GET /livez, /readyz and /metrics. Thread: any; reads RankVitals only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/ids.h"
#include "worker/rank/rank_vitals.h"

namespace helios {

struct StatusPage {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class StatusPages {
 public:
  StatusPages(Rank rank, const RankVitals& vitals) : rank_(rank), vitals_(vitals) {}

  /// /livez: 200 while the process answers and its link thread turns. /readyz: 200 when ready in the current
  /// incarnation, else 503 with the state. /metrics: Prometheus text. Empty for any other path (404).
  std::optional<StatusPage> page(std::string_view path) const;

 private:
  StatusPage livez() const;
  StatusPage readyz() const;
  StatusPage metrics() const;

  const Rank rank_;
  const RankVitals& vitals_;
};

}  // namespace helios
