// The row-wise operations and attention on CUDA: the argument structs of layers.h and attention.h with device pointers,
// and a stream. Launches allocate nothing, never synchronise, and are safe to capture.
//
// The same source compiles as C++ through kernels/base/simt.h, where a launch runs the grid before it returns.
#pragma once

#include "kernels/base/simt.h"
#include "kernels/transformer/attention.h"
#include "kernels/transformer/layers.h"

namespace helios::cuda {

void embed(const EmbedArgs& args, simt::Stream stream);
void rms_norm(const RmsNormArgs& args, simt::Stream stream);
void add_partials(const AddPartialsArgs& args, simt::Stream stream);
void gated_mlp(const GatedMlpArgs& args, simt::Stream stream);
void rope_and_cache(const RopeAndCacheArgs& args, simt::Stream stream);

/// Prefill and decode alike: one block a (row, query head), so a row's result does not depend on its company.
void paged_attention(const AttentionArgs& args, simt::Stream stream);

}  // namespace helios::cuda
