#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::add_position_encoding_op {

void InferEncoding(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const int rank = x.shape.rank();
  ctx.Require("C1", rank == 2 || rank == 3, x.shape);
  ctx.Require("C2", x.shape[rank - 1] % 2 == 0 || x.shape[rank - 1] < 0, x.shape);
  ctx.SetOutput("Out", x);
}

// Adds the encoding of position j to `count` rows of 2 half elements, `stride` elements apart. Its
// sines and cosines are computed once for all rows.
template <class T>
void EncodeRows(int64_t j, int64_t count, int64_t stride, int64_t half, double alpha, double beta,
                const T* x, T* out) {
  constexpr int64_t kBlock = 32;
  double sine[kBlock], cosine[kBlock];
  for (int64_t begin = 0; begin < half; begin += kBlock) {
    const int64_t size = std::min(kBlock, half - begin);
    for (int64_t k = 0; k < size; ++k) {
      const double part =
          half > 1 ? static_cast<double>(begin + k) / static_cast<double>(half - 1) : 1;
      const double v = static_cast<double>(j) / std::pow(10000.0, part);
      sine[k] = beta * std::sin(v);
      cosine[k] = beta * std::cos(v);
    }
    for (int64_t n = 0; n < count; ++n) {
      const T* in = x + n * stride + begin;
      T* o = out + n * stride + begin;
      for (int64_t k = 0; k < size; ++k) {
        o[k] = static_cast<T>(alpha * static_cast<double>(in[k]) + sine[k]);
        o[half + k] = static_cast<T>(alpha * static_cast<double>(in[half + k]) + cosine[k]);
      }
    }
  }
}

template <class T>
KernelOf<T> Encoding(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const double alpha = static_cast<double>(ctx.Attr<float>("alpha"));
  const double beta = static_cast<double>(ctx.Attr<float>("beta"));
  const int rank = x.shape.rank();
  const int64_t width = x.shape[rank - 1], half = width / 2;
  const SequencesArg sequences(ctx, "X", "C3");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    if (rank == 3) {
      if (x.numel == 0) return;
      const int64_t samples = x.shape[0], length = x.shape[1];
      ParallelFor(length, 1 + 16384 / (samples * width), [=](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j)
          EncodeRows(j, samples, length * width, half, alpha, beta, in + j * width, o + j * width);
      });
      return;
    }
    const Sequences batch = sequences(ws);
    for (int64_t i = 0; i < batch.count(); ++i) {
      for (int64_t r = batch.begin(i); r < batch.end(i); ++r)
        EncodeRows(r - batch.begin(i), 1, 0, half, alpha, beta, in + r * width, o + r * width);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("add_position_encoding")
              .Doc("Out = alpha X + beta times the encoding of the position j of each row in its "
                   "sequence: with h half of the width and v = j / 10000^(k / (h - 1)) (j / 10000 "
                   "for h = 1), sin(v) for element k < h and cos(v) for element h + k.")
              .Constraint("C1", "X must have rank 2 or 3")
              .Constraint("C2", "the width of X must be even")
              .Constraint("C3", "an X of rank 2 must have a LoD of one level")
              .Input("X", "[N, T, E], or sequences of rows of E elements")
              .Output("Out", "tensor of X's shape and LoD")
              .Attr<float>("alpha", 1.f, "factor of X")
              .Attr<float>("beta", 1.f, "factor of the encoding")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferEncoding)
              .Gradient([](GradientContext& g) {
                g.Set("X", g.Grad("Out") * static_cast<double>(g.Attr<float>("alpha")));
              })
              .Reference(Encoding<float>, Encoding<double>));
}

}  // namespace coracle::add_position_encoding_op
