// exp(x) for x <= 0 on vectors: lse_state.h's exp_nonpositive(), lane for lane. NaN stays NaN; below -87 the result is
// 0.
//
// Included once a target, behind foreach_target.h.
#if defined(HELIOS_KERNELS_LOGPROBS_SIMD_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HELIOS_KERNELS_LOGPROBS_SIMD_EXP_INL_H_
#undef HELIOS_KERNELS_LOGPROBS_SIMD_EXP_INL_H_
#else
#define HELIOS_KERNELS_LOGPROBS_SIMD_EXP_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/logprobs/lse_state.h"

HWY_BEFORE_NAMESPACE();
namespace helios {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_nonpositive(D d, V x) {
  using namespace exp_constants;
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, kMagic);
  const V shifted = hn::MulAdd(x, hn::Set(d, kLog2e), magic);
  const V f = hn::NegMulAdd(hn::Sub(shifted, magic), hn::Set(d, kLn2), x);
  V p = hn::MulAdd(hn::Set(d, kC5), f, hn::Set(d, kC4));
  p = hn::MulAdd(p, f, hn::Set(d, kC3));
  p = hn::MulAdd(p, f, hn::Set(d, kC2));
  p = hn::MulAdd(p, f, hn::Set(d, kC1));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLowest)), hn::Mul(p, scale));
}

}  // namespace HWY_NAMESPACE
}  // namespace helios
HWY_AFTER_NAMESPACE();

#endif
