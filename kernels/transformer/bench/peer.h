// A library that helios-matmul-bench is measured against, in turn and at the same shapes, where the build asked for
// one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace helios {

/// out[m, n] = x[m, k] * w[k, n].
struct PeerProduct {
  int64_t n, k;
};

class Peer {
 public:
  virtual ~Peer() = default;
  /// What it is, and what it multiplies with: one line.
  virtual std::string name() const = 0;
  /// Seconds that `rows` rows take through all products of all layers, in the order of a step.
  virtual double run(int64_t rows) = 0;
};

/// Null in a build without a peer (-DHELIOS_BENCH_ONEDNN=ON). `threads` compute threads; weights of its own. Throws
/// what the library throws.
std::unique_ptr<Peer> make_peer(std::span<const PeerProduct> products, int layers, int threads);

}  // namespace helios
