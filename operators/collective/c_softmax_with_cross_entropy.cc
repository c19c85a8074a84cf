// softmax_with_cross_entropy whose classes may be divided among processes. One process has them
// all, so that the gradient is that of softmax_with_cross_entropy.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/loss/class_loss.h>
#include <coracle/operators/operators.h>

namespace coracle {
namespace {

void Infer(InferContext& ctx) {
  const VarMeta& logits = ctx.Input("Logits");
  const int rank = logits.shape.rank();
  ctx.Require("C1", rank >= 1, logits);
  const Shape loss = InferClassLoss(ctx, "C2", "Logits", "Label", rank - 1, false);
  const int32_t ranks = ctx.Attr<int32_t>("nranks");
  ctx.Require("C4", ranks <= 1, ranks);
  ctx.SetOutput("Softmax", logits);
  ctx.SetOutput("Loss", logits.dtype, loss);
}

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx) {
  const TensorArg logits = ctx.Input("Logits"), label = ctx.Input("Label");
  const TensorArg softmax = ctx.Output("Softmax"), loss = ctx.Output("Loss");
  const AxisView view = ViewAxis(logits.shape, -1);
  return [=, failure = ctx.Failure("C3")](Workspace& ws) {
    const T* x = ws.Data<const T>(logits);
    T* y = ws.Data<T>(softmax);
    T* out = ws.Data<T>(loss);
    const IndexReader labels(ws, label);
    if (view.n == 0) std::fill_n(out, loss.numel, T(0));
    ForEachLine(view, [&](int64_t line, int64_t at) {
      const int64_t k = labels[line];
      if (k < 0 || k >= view.n) ThrowInvalid(failure + ", got " + std::to_string(k));
      const T picked = x[at + k];  // Softmax may be the memory of Logits
      const LineStats<T> stats = SoftmaxLine(x + at, y + at, view.n, 1);
      out[line] = std::log(stats.sum) - (picked - stats.max);
    });
  };
}

// A gradient may arrive at Softmax too, which the gradient of the loss reads.
void Gradient(GradientContext& g) {
  const Variable softmax = g.Out("Softmax");
  std::vector<Variable> terms;
  if (g.HasOutputGrad("Loss") || !g.HasOutputGrad("Softmax")) {
    terms.push_back(g.Make("softmax_with_cross_entropy_grad",
                           {{"Softmax", {softmax.name()}},
                            {"Label", {g.Input("Label")}},
                            {"Loss@GRAD", {g.OutputGrad("Loss")}}},
                           {}, "Logits@GRAD"));
  }
  if (g.HasOutputGrad("Softmax")) {
    terms.push_back(g.Make("softmax_grad",
                           {{"Out", {softmax.name()}}, {"Out@GRAD", {g.OutputGrad("Softmax")}}}, {},
                           "X@GRAD"));
  }
  g.Set("Logits", terms.size() > 1 ? AddAll(terms) : terms.front());
}

}  // namespace

void RegisterCSoftmaxWithCrossEntropy(OpRegistry& ops) {
  ops.Add(OpDef("c_softmax_with_cross_entropy")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Softmax = softmax(Logits) along the last axis; Loss = -log(Softmax at the "
                   "label's class).")
              .Constraint("C1", "Logits must have rank 1 or more")
              .Constraint("C2",
                          "Label must have Logits' shape with a last dimension of 1, and "
                          "dtype int32 or int64")
              .Constraint("C3", "every label must be a class")
              .Constraint("C4", "nranks must be 1, since one process runs the program")
              .Input("Logits", "unnormalised log probabilities")
              .Input("Label", "classes")
              .Output("Softmax", "tensor of Logits' shape")
              .Output("Loss", "tensor of Label's shape")
              .Attr<int32_t>("ring_id", 0, "ignored: which processes take part")
              .Attr<int32_t>("rank", 0, "ignored: the number of this process")
              .Attr<int32_t>("nranks", 0, "number of processes; 0 and 1 are one")
              .NoGradientTo({"Label"})
              .Inplace("Logits", "Softmax")
              .Infer(Infer)
              .Gradient(Gradient)
              .Reference(Forward<float>, Forward<double>));
}

}  // namespace coracle
