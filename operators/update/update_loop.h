#pragma once
// Loops of optimizer ops: one sweep over the parameter and its state. Outputs may share memory with
// their inputs.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/sweep.h>
#include <coracle/operators/update/update.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

namespace coracle::inline internal {

// A piece of optimizer state: its input and output slot.
using StateSlots = std::pair<const char*, const char*>;

// The parameter, its gradient and N pieces of state, updated element by element, in double, so that
// only results leave the range of T: step(param, grad, state), where `state` are N doubles that
// step reads and changes, returns the new parameter.
template <class T, size_t N>
class ElementwiseArgs {
 public:
  ElementwiseArgs(const PrepareContext& ctx, const std::array<StateSlots, N>& slots)
      : param_(ctx), grad_(ctx.Input("Grad")) {
    for (size_t k = 0; k < N; ++k) {
      in_[k] = ctx.Input(slots[k].first);
      out_[k] = ctx.Output(slots[k].second);
    }
  }
  int64_t numel() const { return param_.in.numel; }

  template <class Step>
  void Run(Workspace& ws, int64_t begin, int64_t end, const Step& step) const {
    const T *p = ws.Data<const T>(param_.in), *g = ws.Data<const T>(grad_);
    T* p_out = ws.Data<T>(param_.out);
    std::array<const T*, N> in;
    std::array<T*, N> out;
    for (size_t k = 0; k < N; ++k) {
      in[k] = ws.Data<const T>(in_[k]);
      out[k] = ws.Data<T>(out_[k]);
    }
    for (int64_t i = begin; i < end; ++i) {
      double state[N + 1];  // one more, so that N may be 0
      for (size_t k = 0; k < N; ++k) state[k] = static_cast<double>(in[k][i]);
      const double param = step(static_cast<double>(p[i]), static_cast<double>(g[i]), state);
      p_out[i] = static_cast<T>(param);
      for (size_t k = 0; k < N; ++k) out[k][i] = static_cast<T>(state[k]);
    }
    param_.CopyOut<T>(ws, begin, end);
  }

 private:
  UpdatedParam param_;
  TensorArg grad_;
  std::array<TensorArg, N> in_, out_;
};

// An op of one parameter. make(ws) is called once per run and returns the step.
template <class T, size_t N, class Make>
Kernel ElementwiseUpdate(const PrepareContext& ctx, const std::array<StateSlots, N>& slots,
                         Make make) {
  return [args = ElementwiseArgs<T, N>(ctx, slots), make](Workspace& ws) {
    const auto step = make(ws);
    ParallelFor(args.numel(), kUpdateGrain / 2,
                [&](int64_t begin, int64_t end) { args.Run(ws, begin, end, step); });
  };
}

// An op of several parameters (OpDef::MultiTensor). make_item(item) is called when the op is
// prepared and returns make(ws) of the item. make(ws) is called for each range, so it should read
// only scalars.
template <class T, size_t N, class MakeItem>
Kernel ElementwiseSweep(const PrepareContext& ctx, const std::array<StateSlots, N>& slots,
                        MakeItem make_item) {
  return SweepItems(ctx, kUpdateGrain / 2, [&](const PrepareContext& item) -> TensorWork {
    const ElementwiseArgs<T, N> args(item, slots);
    return {args.numel(),
            [args, make = make_item(item)](Workspace& ws, int64_t begin, int64_t end) {
              args.Run(ws, begin, end, make(ws));
            },
            nullptr};
  });
}

// Sums over all elements of a tensor, in parallel and in double. Fixed blocks are summed one by
// one, then their sums, so that the bits do not depend on the number of threads.
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

  // The L2 norm of value(i), correct for all finite numbers.
  template <class Value>
  double Norm(Workspace& ws, Value value) const {
    const double squares = (*this)(ws, [&](int64_t i) {
      const auto v = static_cast<double>(value(i));
      return v * v;
    });
    if (IsSafeSum(squares) || std::isnan(squares)) return std::sqrt(squares);
    const auto is_nonzero = [&](int64_t i) { return value(i) != 0 ? 1 : 0; };
    if (squares == 0 && (*this)(ws, is_nonzero) == 0) return 0;
    return NormOf(2, [&](const auto& f) {
      for (int64_t i = 0; i < numel_; ++i) f(static_cast<double>(value(i)));
    });
  }

 private:
  static constexpr int64_t kBlock = 4096;
  int64_t numel_, blocks_;
  TensorArg partial_;
};

// The power of a decay rate that an optimizer keeps: a tensor [1], float32 or float64, which the
// update multiplies by the rate (in place or not; not at all if `out` is absent).
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

}  // namespace coracle::inline internal
