// The CPU names of the transformer kernels, carried out by the CUDA sources on the SIMT engine: the CPU's parity tests link
// this instead of the CPU kernels and so become the CUDA kernels' parity tests.
#include "kernels/transformer/transformer_cuda.h"

namespace helios {

void embed(const EmbedArgs& args, ThreadPool&) { cuda::embed(args, nullptr); }
void rms_norm(const RmsNormArgs& args, ThreadPool&) { cuda::rms_norm(args, nullptr); }
void add_partials(const AddPartialsArgs& args, ThreadPool&) { cuda::add_partials(args, nullptr); }
void gated_mlp(const GatedMlpArgs& args, ThreadPool&) { cuda::gated_mlp(args, nullptr); }
void rope_and_cache(const RopeAndCacheArgs& args, ThreadPool&) { cuda::rope_and_cache(args, nullptr); }
int64_t attention_scratch_bytes(const AttentionShape&, int) { return 0; }
void paged_attention(const AttentionArgs& args, void*, ThreadPool&) { cuda::paged_attention(args, nullptr); }

}  // namespace helios
