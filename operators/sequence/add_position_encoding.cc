#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/sequence/sequences.h>

#include <cmath>

namespace coracle {
namespace {

void InferEncoding(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const int rank = x.shape.rank();
  ctx.Require("C1", rank == 2 || rank == 3, x.shape);
  ctx.Require("C2", x.shape[rank - 1] % 2 == 0 || x.shape[rank - 1] < 0, x.shape);
  ctx.SetOutput("Out", x);
}

// Adds the encoding of position j to a row of 2 half elements.
template <class T>
void EncodeRow(int64_t j, int64_t half, double alpha, double beta, const T* x, T* out) {
  for (int64_t k = 0; k < half; ++k) {
    const double part = half > 1 ? static_cast<double>(k) / static_cast<double>(half - 1) : 1;
    const double v = static_cast<double>(j) / std::pow(10000.0, part);
    out[k] = static_cast<T>(alpha * static_cast<double>(x[k]) + beta * std::sin(v));
    out[half + k] = static_cast<T>(alpha * static_cast<double>(x[half + k]) + beta * std::cos(v));
  }
}

template <class T>
KernelOf<T> Encoding(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const double alpha = static_cast<double>(ctx.Attr<float>("alpha"));
  const double beta = static_cast<double>(ctx.Attr<float>("beta"));
  const int rank = x.shape.rank();
  const int64_t width = x.shape[rank - 1];
  const SequencesArg sequences(ctx, "X", "C3");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const auto encode = [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        EncodeRow(r - begin, width / 2, alpha, beta, in + r * width, o + r * width);
    };
    if (rank == 3) {
      for (int64_t n = 0; n < x.shape[0]; ++n) encode(n * x.shape[1], (n + 1) * x.shape[1]);
      return;
    }
    const Sequences batch = sequences(ws);
    for (int64_t i = 0; i < batch.count(); ++i) encode(batch.begin(i), batch.end(i));
  };
}

}  // namespace

void RegisterAddPositionEncoding(OpRegistry& ops) {
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
              .Infer(InferEncoding)
              .Gradient([](GradientContext& g) {
                g.Set("X", g.Grad("Out") * static_cast<double>(g.Attr<float>("alpha")));
              })
              .Reference(Encoding<float>, Encoding<double>));
}

}  // namespace coracle
