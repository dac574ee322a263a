// Products of BF16 or 8-bit weights and inputs that are BF16 values, two of k an instruction (AVX512_BF16's VDPBF16PS):
// the bits of two fused multiply-adds, at up to twice their rate and without widening.
//
// To each 32-bit lane the instruction adds the product of the upper halves, then that of the lower halves, rounding
// both sums to nearest even and taking subnormal operands and results as zeros, whatever the control register says.
// Panels and pairs of inputs hold the even k above the odd one, so that this is the order of every other kernel; those
// multiply such inputs with subnormals flushed, too. Intel's and AMD's manuals describe the instruction so;
// has_pair_products() believes what it computes.
//
// Every INT8 and E4M3 weight is a BF16 number: its two bytes are looked up in tables of 128 by AVX512_VBMI, 64 weights
// an instruction. E4M3 comes 2^-56 times as large, as scale_factor_of() expects it; none of them is subnormal.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/transformer/matmul_tile.h"

namespace helios {

/// Columns of the panels that pair tiles multiply.
inline constexpr int64_t kPairWidth = 32;
/// The most rows of a tile that is packed, and of one in place.
inline constexpr int64_t kPairTileRows = 12, kPairDirectRows = 12;

/// Whether this processor has the instruction and that of the tables, and it rounds as described: found out once, on
/// numbers of all sizes. Of processors that multiply pairs Cooper Lake alone has no look-up in tables.
bool has_pair_products();

/// Tiles whose x are pairs, a 32-bit word each that float pointers carry: [pair of k][rows], or rows in place,
/// `x_stride` pairs apart; the upper half is the even k, and 0 stands where a segment has no odd one. `len` is of k,
/// odd only at the end of a segment. Only where has_pair_products().
TileFunction packed_pair_tile(int64_t rows);
/// Panels that a tile in place takes side by side, by the weights' type.
int64_t direct_pair_panels(DType stored, int64_t rows);
/// `together`: direct_pair_panels() panels; else one. `stored`: BF16, INT8 or E4M3.
TileFunction direct_pair_tile(DType stored, int64_t rows, bool together);
/// 8-bit weights of one panel as BF16 ones would lie: [pair of k][kPairWidth] words; the last odd k of an odd `len` is
/// of no meaning.
void bytes_to_pairs(DType stored, const uint32_t* words, int64_t len, uint32_t* to);

}  // namespace helios
