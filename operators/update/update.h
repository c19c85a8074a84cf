#pragma once
// Shared by optimizer ops: the shape rule, scalars that are read at run time, and the update loops,
// which are one sweep over the parameter. Outputs may share memory with their inputs.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace coracle::inline internal {

// C1: Grad and the accumulators have Param's shape and dtype. (Grad may be selected rows if the op
// supports them; Grad and accumulators may be float32 with a 16-bit Param.) C2: the scalars hold
// one element.
void InferUpdate(InferContext& ctx,
                 std::initializer_list<std::pair<const char*, const char*>> state,
                 std::initializer_list<const char*> scalars);

// For ops with these slots: MasterParam is checked like an accumulator (C1), and needs
// MasterParamOut (constraint `id`).
void InferMasterParam(InferContext& ctx, std::string_view id);

// The parameter that an update reads and writes: MasterParam if there is one; then Param becomes a
// copy of it, rounded for a 16-bit Param.
struct UpdatedParam {
  explicit UpdatedParam(const PrepareContext& ctx)
      : in(ctx.Input(ctx.HasInput("MasterParam") ? "MasterParam" : "Param")),
        out(ctx.Output(ctx.HasInput("MasterParam") ? "MasterParamOut" : "ParamOut")) {
    if (ctx.HasInput("MasterParam")) copy = ctx.Output("ParamOut");
  }
  template <class T>
  void CopyOut(Workspace& ws, int64_t begin, int64_t end) const {
    if (copy) std::copy_n(ws.Data<const T>(out) + begin, end - begin, ws.Data<T>(copy) + begin);
  }
  TensorArg in, out, copy;
};

struct MomentumStep {
  double lr, mu, rescale, decay;
  bool nesterov;
};
struct AdamStep {
  double lr, beta1, beta2, epsilon;  // lr and epsilon corrected for the bias
};
struct AdagradStep {
  double lr, epsilon;
};

// The updates below compute in double, so that only results leave the range of a float.

template <class T>
void SgdUpdate(const T* p, const T* g, double lr, T* p_out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    p_out[i] = static_cast<T>(static_cast<double>(p[i]) - lr * static_cast<double>(g[i]));
}

// SgdUpdate of row rows[i] of p with row i of g, for the rows of the share, in order.
template <class T>
void SgdRowsUpdate(const RowsView& rows, const T* g, double lr, const RowShare& share, T* p) {
  for (int64_t i = 0; i < rows.count(); ++i) {
    const int64_t row = rows.rows[static_cast<size_t>(i)];
    if (!share.Has(row)) continue;
    T* at = p + row * rows.width;
    SgdUpdate(at, g + i * rows.width, lr, at, rows.width);
  }
}

// decay p; 0 without decay, even for an infinite p.
template <class T>
T DecayOf(T decay, T p) {
  return decay == 0 ? T(0) : decay * p;
}

// g' = rescale g + decay p;  v' = mu v + g';  p' = p - lr v', or p - lr (g' + mu v') (Nesterov)
template <class T>
void MomentumUpdate(const T* p, const T* g, const T* v, const MomentumStep& s, T* p_out, T* v_out,
                    int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto param = static_cast<double>(p[i]);
    const double grad = s.rescale * static_cast<double>(g[i]) + DecayOf(s.decay, param);
    const double velocity = s.mu * static_cast<double>(v[i]) + grad;
    v_out[i] = static_cast<T>(velocity);
    p_out[i] = static_cast<T>(param - s.lr * (s.nesterov ? grad + s.mu * velocity : velocity));
  }
}

// m' = m + g^2;  p' = p - lr g / (sqrt(m') + eps)
template <class T>
void AdagradUpdate(const T* p, const T* g, const T* m, const AdagradStep& s, T* p_out, T* m_out,
                   int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto grad = static_cast<double>(g[i]), param = static_cast<double>(p[i]);
    const double moment = static_cast<double>(m[i]) + grad * grad;
    m_out[i] = static_cast<T>(moment);
    p_out[i] = static_cast<T>(param - s.lr * (grad / (std::sqrt(moment) + s.epsilon)));
  }
}

// m' = beta1 m + (1 - beta1) g;  v' = beta2 v + (1 - beta2) g^2;  p' = p - lr m' / (sqrt(v') + eps)
template <class T>
void AdamUpdate(const T* p, const T* g, const T* m, const T* v, const AdamStep& s, T* p_out,
                T* m_out, T* v_out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const auto grad = static_cast<double>(g[i]), param = static_cast<double>(p[i]);
    const double m1 = s.beta1 * static_cast<double>(m[i]) + (1 - s.beta1) * grad;
    const double m2 = s.beta2 * static_cast<double>(v[i]) + (1 - s.beta2) * grad * grad;
    m_out[i] = static_cast<T>(m1);
    v_out[i] = static_cast<T>(m2);
    p_out[i] = static_cast<T>(param - s.lr * (m1 / (std::sqrt(m2) + s.epsilon)));
  }
}

// The updates above with the machine's vector instructions.
void SgdUpdateSimd(const float* p, const float* g, double lr, float* p_out, int64_t n);
void SgdRowsUpdateSimd(const RowsView& rows, const float* g, double lr, const RowShare& share,
                       float* p);
void MomentumUpdateSimd(const float* p, const float* g, const float* v, const MomentumStep& s,
                        float* p_out, float* v_out, int64_t n);
void AdagradUpdateSimd(const float* p, const float* g, const float* m, const AdagradStep& s,
                       float* p_out, float* m_out, int64_t n);
void AdamUpdateSimd(const float* p, const float* g, const float* m, const float* v,
                    const AdamStep& s, float* p_out, float* m_out, float* v_out, int64_t n);

inline constexpr int64_t kUpdateGrain = 32768;

}  // namespace coracle::inline internal
