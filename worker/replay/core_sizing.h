// Decides a core's shape from the configuration, the model and the memory there is. Thread: start-up.
#pragma once

#include "kernels/base/dtype.h"
#include "worker/backend/backend.h"
#include "worker/catalog/core_catalog.h"
#include "worker/collective/communicator.h"
#include "worker/model/model_config.h"
#include "worker/model/rank_shape.h"
#include "worker/replay/executor.h"

namespace helios {

/// Checks the configuration against the model; everything but the KV cache's size. Throws LoadError.
CoreShape size_core(const CoreConfig& config, const ModelConfig& model, int world, Backend& backend);

/// KV cache blocks that every rank can hold: what was asked, or what fits a quarter of the free memory. One exchange,
/// so that all ranks declare the same. Throws LoadError, also for more bytes than are free; CollectiveError.
int32_t size_kv_cache(const CoreConfig& config, const CoreShape& shape, const ModelConfig& model, const RankShape& rank,
                      Communicator& communicator, Device& device);

/// Blocks that every rank's host tier can hold: what was asked; 0: no tier. One exchange when it was asked. Throws
/// LoadError, CollectiveError.
int32_t size_host_tier(const CoreConfig& config, const CoreShape& shape, const ModelConfig& model,
                       const RankShape& rank, Communicator& communicator, Device& device);

/// What the core's keys and values are stored as.
DType kv_dtype(const CoreShape& shape);

/// What weights and inputs of matrix products are rounded to; kFloat32: they are not.
DType rounded_dtype(const CoreShape& shape);

}  // namespace helios
