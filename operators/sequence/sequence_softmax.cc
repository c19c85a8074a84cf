// sequence_softmax: softmax inside each sequence.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::sequence_softmax_op {

constexpr size_t kAnyLevels = std::numeric_limits<size_t>::max();

void RequireColumn(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 1 || (x.rank() == 2 && InferContext::Matches(x[1], 1)), x);
}

template <class T>
KernelOf<T> Softmax(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const SequencesArg sequences(ctx, "X", "C2", kAnyLevels);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < s.count(); ++i) {
      if (s.length(i) == 0) continue;
      const T largest = *std::max_element(in + s.begin(i), in + s.end(i));
      T sum = 0;
      for (int64_t r = s.begin(i); r < s.end(i); ++r) sum += o[r] = std::exp(in[r] - largest);
      for (int64_t r = s.begin(i); r < s.end(i); ++r) o[r] /= sum;
    }
  };
}

// Calls row(sequence's first element, its length) for each sequence with rows, on several threads.
template <class Row>
void ForEachSequence(const Sequences& s, int64_t numel, const Row& row) {
  ParallelFor(s.count(), 1 + 16384 * s.count() / (1 + numel), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (s.length(i) > 0) row(s.begin(i), s.length(i));
    }
  });
}

Kernel FastSoftmax(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32) return {};
  const SequencesArg sequences(ctx, "X", "C2", kAnyLevels);
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    float* o = ws.Data<float>(out);
    ForEachSequence(sequences(ws), x.numel,
                    [&](int64_t at, int64_t n) { SoftmaxRow(in + at, o + at, n); });
  };
}

Kernel FastSoftmaxGrad(const PrepareContext& ctx) {
  const TensorArg out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  if (out.dtype != DType::kFloat32) return {};
  const SequencesArg sequences(ctx, "X", "C2", kAnyLevels);
  return [=](Workspace& ws) {
    const float *y = ws.Data<const float>(out), *g = ws.Data<const float>(dout);
    float* to = ws.Data<float>(dx);
    ForEachSequence(sequences(ws), out.numel,
                    [&](int64_t at, int64_t n) { SoftmaxGradRow(y + at, g + at, to + at, n); });
  };
}

template <class T>
KernelOf<T> SoftmaxGrad(const PrepareContext& ctx) {
  const TensorArg out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const SequencesArg sequences(ctx, "X", "C2", kAnyLevels);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const T *y = ws.Data<const T>(out), *g = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    for (int64_t i = 0; i < s.count(); ++i) {
      T sum = 0;
      for (int64_t r = s.begin(i); r < s.end(i); ++r) sum += g[r] * y[r];
      for (int64_t r = s.begin(i); r < s.end(i); ++r) to[r] = (g[r] - sum) * y[r];
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_softmax")
              .Doc("Out = exp(X - m) / the sum of these, over each sequence of the last level, "
                   "where m is the sequence's largest element.")
              .Constraint("C1", "X must be [rows] or [rows, 1]")
              .Constraint("C2", "X must have LoD")
              .Input("X", "floating-point tensor with LoD")
              .Output("Out", "tensor of X's shape")
              .Inplace("X", "Out")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) {
                RequireColumn(ctx);
                ctx.SetOutput("Out", ctx.Input("X"));
              })
              .GradientOp({"X", "Out"})
              .Reference(Softmax<float>, Softmax<double>)
              .Fast(FastSoftmax));
  ops.Add(OpDef("sequence_softmax_grad")
              .Doc("Gradient of sequence_softmax: X@GRAD = (Out@GRAD - the sum of Out@GRAD * Out "
                   "over the sequence) * Out.")
              .ConstraintsOf("sequence_softmax", {"C1", "C2"})
              .Constraint("C3", "Out and Out@GRAD must have X's shape and dtype")
              .Input("X", "the value in the forward op; only its LoD is used")
              .Input("Out", "the value in the forward op")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer([](InferContext& ctx) {
                RequireColumn(ctx);
                RequireSameType(ctx, "C3", "Out", "X");
                RequireSameType(ctx, "C3", "Out@GRAD", "X");
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Reference(SoftmaxGrad<float>, SoftmaxGrad<double>)
              .Fast(FastSoftmaxGrad));
}

}  // namespace coracle::sequence_softmax_op
