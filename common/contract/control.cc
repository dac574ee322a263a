#include "common/contract/control.h"

namespace helios {

std::string_view to_string(RankState state) {
  switch (state) {
    case RankState::kStarting: return "starting";
    case RankState::kLoading: return "loading";
    case RankState::kReady: return "ready";
    case RankState::kDraining: return "draining";
    case RankState::kLost: return "lost";
  }
  return "unknown";
}

}  // namespace helios
