#include <coracle/operators/rnn/rnn_cell.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/rnn/rnn_cell_simd.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
#include <coracle/operators/kernels/simd_math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

// One vector of hidden units, or the last, partial one: `count` floats at `k`.
struct Lanes {
  int64_t k, count;
  Vec Load(const float* p) const { return coracle::HWY_NAMESPACE::LoadFirst(p + k, count); }
  void Store(Vec v, float* p) const { coracle::HWY_NAMESPACE::StoreFirst(v, p + k, count); }
  // Stores h' as state and as output.
  void StoreState(Vec h, const RnnCell<float>& c) const {
    Store(h, c.state_out);
    Store(h, c.out);
  }
  Vec StateGrad(const RnnCellGrad<float>& c) const {
    const Vec dh = Load(c.dstate);
    return c.dout ? hn::Add(dh, Load(c.dout)) : dh;
  }
};

template <class F>
HWY_INLINE void ForLanes(int64_t hidden, F&& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  for (int64_t k = 0; k < hidden; k += lanes) f(Lanes{k, std::min(lanes, hidden - k)});
}

// s (1 - s) and 1 - t^2: derivatives of sigmoid and tanh from their values.
HWY_INLINE Vec SigmoidSlope(Vec s) { return hn::NegMulAdd(s, s, s); }
HWY_INLINE Vec TanhSlope(Vec t) { return hn::NegMulAdd(t, t, Set(1.0f)); }

void Lstm(const RnnCell<float>& c) {
  const int64_t n = c.hidden;
  ForLanes(n, [&](Lanes at) {
    auto gate = [&](int64_t g) {
      return hn::Add(at.Load(c.gates + g * n), at.Load(c.bias + g * n));
    };
    const Vec i = SafeSigmoid(gate(0)), f = SafeSigmoid(gate(1));
    const Vec g = SafeTanh(gate(2)), o = SafeSigmoid(gate(3));
    at.Store(i, c.gates);
    at.Store(f, c.gates + n);
    at.Store(g, c.gates + 2 * n);
    at.Store(o, c.gates + 3 * n);
    const Vec cell = hn::MulAdd(f, at.Load(c.cell), hn::Mul(i, g));
    at.Store(cell, c.cell_out);
    at.StoreState(hn::Mul(o, SafeTanh(cell)), c);
  });
}

void LstmGrad(const RnnCellGrad<float>& c) {
  const int64_t n = c.hidden;
  ForLanes(n, [&](Lanes at) {
    const Vec i = at.Load(c.gates), f = at.Load(c.gates + n);
    const Vec g = at.Load(c.gates + 2 * n), o = at.Load(c.gates + 3 * n);
    const Vec t = SafeTanh(at.Load(c.cell_out)), dh = at.StateGrad(c);
    const Vec dc = hn::MulAdd(hn::Mul(dh, o), TanhSlope(t), at.Load(c.dcell));
    at.Store(hn::Mul(hn::Mul(dc, g), SigmoidSlope(i)), c.dgates);
    at.Store(hn::Mul(hn::Mul(dc, at.Load(c.cell)), SigmoidSlope(f)), c.dgates + n);
    at.Store(hn::Mul(hn::Mul(dc, i), TanhSlope(g)), c.dgates + 2 * n);
    at.Store(hn::Mul(hn::Mul(dh, t), SigmoidSlope(o)), c.dgates + 3 * n);
    at.Store(hn::Mul(dc, f), c.dcell);
    at.Store(hn::Zero(Tag()), c.dstate);
  });
}

void RowOfLstm(const LstmRow& r) {
  const int64_t n = r.hidden;
  const float* p = r.peepholes;
  ForLanes(n, [&](Lanes at) {
    const Vec before = at.Load(r.before);
    auto gate = [&](int64_t q) {
      const Vec z = at.Load(r.gates + q * n);
      return r.bias ? hn::Add(z, at.Load(r.bias + q * n)) : z;
    };
    auto peep = [&](int64_t q, Vec z, Vec cell) {
      return p ? hn::MulAdd(at.Load(p + q * n), cell, z) : z;
    };
    const Vec g = SafeTanh(gate(0));
    const Vec i = SafeSigmoid(peep(0, gate(1), before));
    const Vec f = SafeSigmoid(peep(1, gate(2), before));
    const Vec cell = hn::MulAdd(f, before, hn::Mul(i, g));
    const Vec o = SafeSigmoid(peep(2, gate(3), cell));
    at.Store(g, r.gates);
    at.Store(i, r.gates + n);
    at.Store(f, r.gates + 2 * n);
    at.Store(o, r.gates + 3 * n);
    at.Store(cell, r.cell);
    at.Store(hn::Mul(o, SafeTanh(cell)), r.state);
  });
}

void RowOfLstmGrad(const LstmRowGrad& r) {
  const int64_t n = r.hidden;
  const float* p = r.peepholes;
  ForLanes(n, [&](Lanes at) {
    const Vec g = at.Load(r.gates), i = at.Load(r.gates + n);
    const Vec f = at.Load(r.gates + 2 * n), o = at.Load(r.gates + 3 * n);
    const Vec before = at.Load(r.before), dh = at.Load(r.dstate), t = SafeTanh(at.Load(r.cell));
    const Vec d_o = hn::Mul(hn::Mul(dh, t), SigmoidSlope(o));
    Vec dc = hn::MulAdd(hn::Mul(dh, o), TanhSlope(t), at.Load(r.dcell));
    if (p) dc = hn::MulAdd(d_o, at.Load(p + 2 * n), dc);
    const Vec di = hn::Mul(hn::Mul(dc, g), SigmoidSlope(i));
    const Vec df = hn::Mul(hn::Mul(dc, before), SigmoidSlope(f));
    at.Store(hn::Mul(hn::Mul(dc, i), TanhSlope(g)), r.dgates);
    at.Store(di, r.dgates + n);
    at.Store(df, r.dgates + 2 * n);
    at.Store(d_o, r.dgates + 3 * n);
    Vec to = hn::MulAdd(dc, f, at.Load(r.dbefore));
    if (p) to = hn::MulAdd(di, at.Load(p), hn::MulAdd(df, at.Load(p + n), to));
    at.Store(to, r.dbefore);
  });
}

LstmRows FindLstmRows() { return {RowOfLstm, RowOfLstmGrad}; }

void Gru(const RnnCell<float>& c) {
  const int64_t n = c.hidden;
  ForLanes(n, [&](Lanes at) {
    auto input = [&](int64_t g) {
      return hn::Add(at.Load(c.gates + g * n), at.Load(c.bias + g * n));
    };
    const Vec r = SafeSigmoid(hn::Add(input(0), at.Load(c.recurrent)));
    const Vec z = SafeSigmoid(hn::Add(input(1), at.Load(c.recurrent + n)));
    const Vec inner = hn::Add(at.Load(c.recurrent + 2 * n), at.Load(c.candidate_bias));
    const Vec candidate = SafeTanh(hn::MulAdd(r, inner, input(2)));
    at.Store(r, c.gates);
    at.Store(z, c.gates + n);
    at.Store(candidate, c.gates + 2 * n);
    at.Store(inner, c.candidate);
    at.StoreState(hn::MulAdd(hn::Sub(at.Load(c.state), candidate), z, candidate), c);
  });
}

void GruGrad(const RnnCellGrad<float>& c) {
  const int64_t n = c.hidden;
  ForLanes(n, [&](Lanes at) {
    const Vec r = at.Load(c.gates), z = at.Load(c.gates + n), candidate = at.Load(c.gates + 2 * n);
    const Vec dh = at.StateGrad(c);
    const Vec dz = hn::Mul(hn::Mul(dh, hn::Sub(at.Load(c.state), candidate)), SigmoidSlope(z));
    const Vec dn = hn::Mul(hn::NegMulAdd(dh, z, dh), TanhSlope(candidate));
    const Vec dr = hn::Mul(hn::Mul(dn, at.Load(c.candidate)), SigmoidSlope(r));
    at.Store(dr, c.dgates);
    at.Store(dr, c.drecurrent);
    at.Store(dz, c.dgates + n);
    at.Store(dz, c.drecurrent + n);
    at.Store(dn, c.dgates + 2 * n);
    at.Store(hn::Mul(dn, r), c.drecurrent + 2 * n);
    at.Store(hn::Mul(dh, z), c.dstate);
  });
}

template <bool relu>
void Simple(const RnnCell<float>& c) {
  ForLanes(c.hidden, [&](Lanes at) {
    const Vec a = hn::Add(at.Load(c.gates), at.Load(c.bias));
    const Vec h = relu ? hn::IfThenZeroElse(hn::Lt(a, hn::Zero(Tag())), a) : SafeTanh(a);
    at.Store(h, c.gates);
    at.StoreState(h, c);
  });
}

template <bool relu>
void SimpleGrad(const RnnCellGrad<float>& c) {
  ForLanes(c.hidden, [&](Lanes at) {
    const Vec h = at.Load(c.gates), dh = at.StateGrad(c);
    const Vec da =
        relu ? hn::IfThenZeroElse(hn::Le(h, hn::Zero(Tag())), dh) : hn::Mul(dh, TanhSlope(h));
    at.Store(da, c.dgates);
    at.Store(hn::Zero(Tag()), c.dstate);
  });
}

RnnCells<float> FindRnnCells(RnnMode mode) {
  switch (mode) {
    case RnnMode::kLstm:
      return {Lstm, LstmGrad};
    case RnnMode::kGru:
      return {Gru, GruGrad};
    case RnnMode::kTanh:
      return {Simple<false>, SimpleGrad<false>};
    case RnnMode::kRelu:
      return {Simple<true>, SimpleGrad<true>};
  }
  return {};
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::simd {
HWY_EXPORT(FindRnnCells);
HWY_EXPORT(FindLstmRows);
}  // namespace coracle::simd

namespace coracle::inline internal {

RnnCells<float> SimdRnnCells(RnnMode mode) {
  using namespace simd;  // NOLINT: where the dispatch table lies
  return HWY_DYNAMIC_DISPATCH(FindRnnCells)(mode);
}

LstmRows SimdLstmRows() {
  using namespace simd;  // NOLINT: where the dispatch table lies
  return HWY_DYNAMIC_DISPATCH(FindLstmRows)();
}

}  // namespace coracle::inline internal
#endif
