#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/update/update.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/update/update_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file again for every instruction set.
#include <coracle/operators/kernels/simd-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = FloatTag;

// A vector in which a float overflows goes to the plain loop, which computes in double, and so do
// all elements if float cannot hold a factor.

// Whether the roots of all squares have their digits: with an epsilon that is not next to 0, lost
// digits in subnormal squares do not matter.
HWY_INLINE bool AllHeld(hn::Vec<D> squares, double epsilon) {
  constexpr double kEpsilon = 1e-12;
  if (!AllFinite(squares)) return false;
  return epsilon >= kEpsilon || hn::AllTrue(D(), hn::Ge(squares, hn::Set(D(), 1e-30f)));
}
template <class... Factors>
bool AreFloats(Factors... factors) {
  return (IsFactorOf<float>(factors) && ...);
}

void Sgd(const float* p, const float* g, double lr, float* p_out, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto rate = hn::Set(d, static_cast<float>(lr));
  if (!AreFloats(lr)) return SgdUpdate(p, g, lr, p_out, n);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t k = std::min(lanes, n - i);
    StoreFirst(hn::NegMulAdd(rate, LoadFirst(g + i, k), LoadFirst(p + i, k)), p_out + i, k);
  }
}

void SgdRows(const RowsView& rows, const float* g, double lr, const RowShare& share, float* p) {
  const int64_t width = rows.width, count = rows.count();
  const int64_t ahead = PrefetchDistance(width * static_cast<int64_t>(sizeof(float)));
  const int64_t* row = rows.rows.data();
  for (int64_t i = 0; i < count; ++i) {
    if (i + ahead < count && share.Has(row[i + ahead]))
      PrefetchRow<true>(p + row[i + ahead] * width, width);
    if (!share.Has(row[i])) continue;
    float* at = p + row[i] * width;
    Sgd(at, g + i * width, lr, at, width);
  }
}

void Momentum(const float* p, const float* g, const float* v, const MomentumStep& s, float* p_out,
              float* v_out, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lr = hn::Set(d, static_cast<float>(s.lr)), mu = hn::Set(d, static_cast<float>(s.mu));
  const auto rescale = hn::Set(d, static_cast<float>(s.rescale));
  const auto decay = hn::Set(d, static_cast<float>(s.decay));
  const bool decays = static_cast<float>(s.decay) != 0;
  if (!AreFloats(s.lr, s.mu, s.rescale, s.decay))
    return MomentumUpdate(p, g, v, s, p_out, v_out, n);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t k = std::min(lanes, n - i);
    const auto param = LoadFirst(p + i, k);
    const auto plain = hn::Mul(rescale, LoadFirst(g + i, k));
    // Skipped without decay, since 0 times inf is nan.
    const auto grad = decays ? hn::MulAdd(decay, param, plain) : plain;
    const auto velocity = hn::MulAdd(mu, LoadFirst(v + i, k), grad);
    const auto direction = s.nesterov ? hn::MulAdd(mu, velocity, grad) : velocity;
    const auto moved = hn::NegMulAdd(lr, direction, param);
    if (HWY_UNLIKELY(!AllFinite(moved))) {
      MomentumUpdate(p + i, g + i, v + i, s, p_out + i, v_out + i, k);
      continue;
    }
    StoreFirst(velocity, v_out + i, k);
    StoreFirst(moved, p_out + i, k);
  }
}

void Adagrad(const float* p, const float* g, const float* m, const AdagradStep& s, float* p_out,
             float* m_out, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lr = hn::Set(d, static_cast<float>(s.lr));
  const auto eps = hn::Set(d, static_cast<float>(s.epsilon));
  if (!AreFloats(s.lr, s.epsilon)) return AdagradUpdate(p, g, m, s, p_out, m_out, n);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t k = std::min(lanes, n - i);
    const auto grad = LoadFirst(g + i, k);
    const auto moment = hn::MulAdd(grad, grad, LoadFirst(m + i, k));
    const auto ratio = hn::Div(grad, hn::Add(hn::Sqrt(moment), eps));
    const auto moved = hn::NegMulAdd(lr, ratio, LoadFirst(p + i, k));
    if (HWY_UNLIKELY(!AllFinite(moved) || !AllHeld(moment, s.epsilon))) {
      AdagradUpdate(p + i, g + i, m + i, s, p_out + i, m_out + i, k);
      continue;
    }
    StoreFirst(moment, m_out + i, k);
    StoreFirst(moved, p_out + i, k);
  }
}

void Adam(const float* p, const float* g, const float* m, const float* v, const AdamStep& s,
          float* p_out, float* m_out, float* v_out, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lr = hn::Set(d, static_cast<float>(s.lr));
  const auto eps = hn::Set(d, static_cast<float>(s.epsilon));
  const auto b1 = hn::Set(d, static_cast<float>(s.beta1));
  const auto b2 = hn::Set(d, static_cast<float>(s.beta2));
  const auto c1 = hn::Set(d, static_cast<float>(1 - s.beta1));
  const auto c2 = hn::Set(d, static_cast<float>(1 - s.beta2));
  if (!AreFloats(s.lr, s.epsilon, s.beta1, s.beta2, 1 - s.beta1, 1 - s.beta2))
    return AdamUpdate(p, g, m, v, s, p_out, m_out, v_out, n);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t k = std::min(lanes, n - i);
    const auto grad = LoadFirst(g + i, k);
    const auto m1 = hn::MulAdd(c1, grad, hn::Mul(b1, LoadFirst(m + i, k)));
    const auto m2 = hn::MulAdd(hn::Mul(c2, grad), grad, hn::Mul(b2, LoadFirst(v + i, k)));
    const auto ratio = hn::Div(m1, hn::Add(hn::Sqrt(m2), eps));
    const auto moved = hn::NegMulAdd(lr, ratio, LoadFirst(p + i, k));
    if (HWY_UNLIKELY(!AllFinite(moved) || !AllHeld(m2, s.epsilon))) {
      AdamUpdate(p + i, g + i, m + i, v + i, s, p_out + i, m_out + i, v_out + i, k);
      continue;
    }
    StoreFirst(m1, m_out + i, k);
    StoreFirst(m2, v_out + i, k);
    StoreFirst(moved, p_out + i, k);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(Sgd);
HWY_EXPORT(SgdRows);
HWY_EXPORT(Momentum);
HWY_EXPORT(Adagrad);
HWY_EXPORT(Adam);

void SgdUpdateSimd(const float* p, const float* g, double lr, float* p_out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Sgd)(p, g, lr, p_out, n);
}
void SgdRowsUpdateSimd(const RowsView& rows, const float* g, double lr, const RowShare& share,
                       float* p) {
  HWY_DYNAMIC_DISPATCH(SgdRows)(rows, g, lr, share, p);
}
void MomentumUpdateSimd(const float* p, const float* g, const float* v, const MomentumStep& s,
                        float* p_out, float* v_out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Momentum)(p, g, v, s, p_out, v_out, n);
}
void AdagradUpdateSimd(const float* p, const float* g, const float* m, const AdagradStep& s,
                       float* p_out, float* m_out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Adagrad)(p, g, m, s, p_out, m_out, n);
}
void AdamUpdateSimd(const float* p, const float* g, const float* m, const float* v,
                    const AdamStep& s, float* p_out, float* m_out, float* v_out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Adam)(p, g, m, v, s, p_out, m_out, v_out, n);
}

namespace {

void RequireState(InferContext& ctx, const char* slot) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta &param = ctx.Input("Param"), &state = ctx.Input(slot);
  const bool fits = state.type == VarType::kLoDTensor && state.shape.CompatibleWith(param.shape);
  if (fits && IsHalf(param.dtype) && state.dtype == DType::kFloat32) return;
  RequireSameType(ctx, "C1", slot, "Param");
}

// The gradient of a parameter of 16 bits may be float32: a sum of gradients, or an unscaled one.
void RequireGradient(InferContext& ctx) {
  const VarMeta &param = ctx.Input("Param"), &grad = ctx.Input("Grad");
  const bool wide = IsHalf(param.dtype) && grad.dtype == DType::kFloat32;
  if (!wide || !grad.shape.CompatibleWith(param.shape))
    RequireSameElements(ctx, "C1", "Grad", "Param");
}

}  // namespace

void InferUpdate(InferContext& ctx,
                 std::initializer_list<std::pair<const char*, const char*>> state,
                 std::initializer_list<const char*> scalars) {
  RequireGradient(ctx);
  for (const auto& in_out : state) RequireState(ctx, in_out.first);
  for (const char* slot : scalars) RequireScalar(ctx, "C2", slot);
  ctx.SetOutput("ParamOut", ctx.Input("Param"));
  for (const auto& [in, out] : state)
    ctx.SetOutput(out, ctx.Input(ctx.HasInput(in) ? in : "Param"));
}

void InferMasterParam(InferContext& ctx, std::string_view id) {
  if (!ctx.HasInput("MasterParam")) return;
  ctx.Require(id, ctx.HasOutput("MasterParamOut"), "MasterParam", ctx.Input("MasterParam"));
  RequireState(ctx, "MasterParam");
  ctx.SetOutput("MasterParamOut", ctx.Input("MasterParam"));
}

}  // namespace coracle::inline internal
#endif
