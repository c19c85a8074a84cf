#pragma once
// Loops of optimizer ops: one sweep over the parameter and its state. Outputs may be the memory of
// their inputs.

#include <coracle/framework/base/parallel.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/common/update.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace coracle {

// A piece of optimizer state: the slots that it is read from and written to.
using StateSlots = std::pair<const char*, const char*>;

// An op each element of which is updated by itself. `make(ws)` is called once per run and returns
// the step, called for each element as step(param, grad, state): `state` is a T(&)[N] to read and
// change, the result is the new parameter.
template <class T, size_t N, class Make>
Kernel ElementwiseUpdate(const PrepareContext& ctx, const std::array<StateSlots, N>& slots,
                         Make make) {
  struct Args {
    TensorArg param, grad, param_out;
    std::array<TensorArg, N> in, out;
  };
  Args args = {ctx.Input("Param"), ctx.Input("Grad"), ctx.Output("ParamOut"), {}, {}};
  for (size_t k = 0; k < N; ++k) {
    args.in[k] = ctx.Input(slots[k].first);
    args.out[k] = ctx.Output(slots[k].second);
  }
  return [args, make](Workspace& ws) {
    const T *p = ws.Data<const T>(args.param), *g = ws.Data<const T>(args.grad);
    T* p_out = ws.Data<T>(args.param_out);
    std::array<const T*, N> in;
    std::array<T*, N> out;
    for (size_t k = 0; k < N; ++k) {
      in[k] = ws.Data<const T>(args.in[k]);
      out[k] = ws.Data<T>(args.out[k]);
    }
    const auto step = make(ws);
    ParallelFor(args.param.numel, kUpdateGrain / 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T state[N + 1];  // one more, so that N may be 0
        for (size_t k = 0; k < N; ++k) state[k] = in[k][i];
        p_out[i] = step(p[i], g[i], state);
        for (size_t k = 0; k < N; ++k) out[k][i] = state[k];
      }
    });
  };
}

// Sums over all elements of a tensor, in parallel and in double. Fixed blocks are summed one by
// one, then their sums: the same bits for any number of threads.
class BlockedSum {
 public:
  BlockedSum(const PrepareContext& ctx, int64_t numel)
      : numel_(numel),
        blocks_((numel + kBlock - 1) / kBlock),
        partial_(ctx.Scratch(DType::kFloat64, {std::max<int64_t>(blocks_, 1)})) {}

  // The sum of term(i) for i in [0, numel).
  template <class Term>
  double operator()(Workspace& ws, Term term) const {
    double* partial = ws.Data<double>(partial_);
    ParallelFor(blocks_, 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        double sum = 0;
        const int64_t stop = std::min(numel_, (b + 1) * kBlock);
        for (int64_t i = b * kBlock; i < stop; ++i) sum += term(i);
        partial[b] = sum;
      }
    });
    double sum = 0;
    for (int64_t b = 0; b < blocks_; ++b) sum += partial[b];
    return sum;
  }

 private:
  static constexpr int64_t kBlock = 4096;
  int64_t numel_, blocks_;
  TensorArg partial_;
};

// The power of a decay rate that an optimizer keeps: a tensor [1], float32 or float64, which the
// update multiplies once more (in place or not, or not at all when `out` is absent).
class DecayPower {
 public:
  DecayPower(TensorArg in, TensorArg out) : in_(in), out_(out) {}
  double operator()(Workspace& ws) const { return ScalarInput(in_)(ws); }
  void Multiply(Workspace& ws, double factor) const {
    if (!out_) return;
    const double value = (*this)(ws)*factor;
    if (out_.dtype == DType::kFloat64)
      *ws.Data<double>(out_) = value;
    else
      *ws.Data<float>(out_) = static_cast<float>(value);
  }

 private:
  TensorArg in_, out_;
};

}  // namespace coracle
