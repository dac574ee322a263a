// oneDNN's matmul in its fastest BF16 form: BF16 activations times BF16 weights into FP32, weights in whatever layout
// the library chooses for the number of rows.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "kernels/transformer/bench/peer.h"

namespace helios {
namespace {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

/// Zero-filled pages of 2 MB, as the other side's weights have. Never freed: the program ends with them.
void* pages(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

/// BF16 numbers of either sign from 1 to 2, which are such in any layout.
void* random_weights(size_t bytes) {
  auto* const words = static_cast<uint32_t*>(pages(bytes));
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i < bytes / 4; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    words[i] = (static_cast<uint32_t>(state) & 0x807f807fu) | 0x3f803f80u;
  }
  return words;
}

class Onednn final : public Peer {
 public:
  Onednn(std::span<const PeerProduct> products, int layers)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), products_(products.begin(), products.end()) {
    for (int layer = 0; layer < layers; ++layer) {
      for (const PeerProduct& p : products_) weights_.push_back(random_weights(weight_bytes(p)));
    }
  }

  std::string name() const override {
    const dnnl::version_t* v = dnnl::version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) +
           ", BF16 weights and activations, " + implementation_;
  }

  double run(int64_t rows) override {
    std::vector<Primitive>& primitives = at(rows);
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < weights_.size(); ++i) {
      Primitive& p = primitives[i % primitives.size()];
      p.weights.set_data_handle(weights_[i]);
      p.matmul.execute(stream_, {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, p.weights}, {DNNL_ARG_DST, p.out}});
    }
    stream_.wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  struct Primitive {
    dnnl::matmul matmul;
    dnnl::memory x, weights, out;
  };

  /// With room for a padded layout.
  static size_t weight_bytes(const PeerProduct& p) {
    return static_cast<size_t>((p.n + 63) / 64 * 64 * ((p.k + 63) / 64 * 64) * 2);
  }

  std::vector<Primitive>& at(int64_t rows) {
    std::vector<Primitive>& made = primitives_[rows];
    for (size_t i = made.size(); i < products_.size(); ++i) {
      const auto [n, k] = products_[i];
      const dnnl::memory::desc x({rows, k}, Type::bf16, Tag::ab), out({rows, n}, Type::f32, Tag::ab);
      const dnnl::memory::desc weights({k, n}, Type::bf16, Tag::any);
      const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(x, weights, out), engine_);
      implementation_ = chosen.impl_info_str();
      if (chosen.weights_desc().get_size() > weight_bytes(products_[i])) throw std::bad_alloc();
      made.push_back({dnnl::matmul(chosen), dnnl::memory(x, engine_, random_weights(x.get_size())),
                      dnnl::memory(chosen.weights_desc(), engine_, nullptr),
                      dnnl::memory(out, engine_, pages(out.get_size()))});
    }
    return made;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<PeerProduct> products_;
  std::vector<void*> weights_;
  std::map<int64_t, std::vector<Primitive>> primitives_;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<Peer> make_peer(std::span<const PeerProduct> products, int layers, int threads) {
  omp_set_num_threads(threads);
  return std::make_unique<Onednn>(products, layers);
}

}  // namespace helios
