// The row-wise operations and attention in float64, straight from their definitions; tests only.
//
// They take the kernels' own argument structs and read the same memory, so that an argument which a kernel ignores
// shows. Outputs are dense [rows, width] float64.
#pragma once

#include "kernels/transformer/attention.h"
#include "kernels/transformer/layers.h"

namespace helios {

void embed_reference(const EmbedArgs& args, double* out);
void rms_norm_reference(const RmsNormArgs& args, double* out);
/// residual as it should be after the call; args.residual is read before it.
void add_partials_reference(const AddPartialsArgs& args, double* out);
void gated_mlp_reference(const GatedMlpArgs& args, double* out);

/// qkv after norm and rotation, before rounding, dense [rows, (q_heads + 2 kv_heads) * head_dim]; dead rows unchanged.
void rope_reference(const RopeAndCacheArgs& args, double* out);
/// Reads the cache that the kernel reads; [rows, q_heads * head_dim].
void attention_reference(const AttentionArgs& args, double* out);

}  // namespace helios
