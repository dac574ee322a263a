#include "coordinator/engine/engine.h"

#include "coordinator/engine/engine_loop.h"

#include <utility>

namespace helios {

Engine::Engine(std::unique_ptr<EngineLoop> loop) : loop_(std::move(loop)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::start(EngineConfig config, EngineObserver* observer) {
  auto loop = std::make_unique<EngineLoop>(std::move(config), observer);
  if (auto endpoint = loop->start(); !endpoint) return endpoint.error();
  return std::unique_ptr<Engine>(new Engine(std::move(loop)));
}

Result<std::vector<std::shared_ptr<SequenceStream>>> Engine::submit(std::vector<SequenceRequest> requests,
                                                                    Notify notify) {
  return loop_->submit(std::move(requests), std::move(notify));
}

EngineStatus Engine::status() const { return loop_->status(); }
const std::string& Engine::rank_endpoint() const { return loop_->endpoint(); }
void Engine::drain(std::chrono::milliseconds limit) { loop_->drain(limit); }
void Engine::stop() { loop_->stop(); }

}  // namespace helios
