#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::label_smooth_op {

void InferLabelSmooth(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x.shape);
  const int64_t classes = x.shape[x.shape.rank() - 1];
  if (ctx.HasInput("PriorDist")) {
    ctx.Require("C2",
                ctx.InputDType("PriorDist") == x.dtype &&
                    InferContext::Matches(NumelOf(ctx.InputShape("PriorDist")), classes),
                "PriorDist", ctx.Input("PriorDist"), "X", x);
  }
  const float epsilon = ctx.Attr<float>("epsilon");
  ctx.Require("C3", epsilon >= 0 && epsilon <= 1, epsilon);
  ctx.SetOutput("Out", x);
}

template <class T>
KernelOf<T> LabelSmooth(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), prior = ctx.Input("PriorDist"), out = ctx.Output("Out");
  const T epsilon = static_cast<T>(ctx.Attr<float>("epsilon"));
  const int64_t classes = x.shape[x.shape.rank() - 1];
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T* p = prior ? ws.Data<const T>(prior) : nullptr;
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel, 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T share = p ? p[i % classes] : T(1) / static_cast<T>(classes);
        o[i] = (1 - epsilon) * in[i] + epsilon * share;
      }
    });
  };
}

void LabelSmoothGradient(GradientContext& g) {
  g.Set("X", (1.f - g.Attr<float>("epsilon")) * g.Grad("Out"));
}

RowEffect SmoothRows(const RowQuery& query) {
  return query.axis == query.rank - 1 ? RowRule::kMixes : RowRule::kEach;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("label_smooth")
              .Doc("Out = (1 - epsilon) X + epsilon PriorDist. Without PriorDist it is 1 / K for "
                   "each of K classes.")
              .Constraint("C1", "X must have a last dimension of classes")
              .Constraint("C2", "PriorDist must have X's dtype and K elements")
              .Constraint("C3", "epsilon must lie in [0, 1]")
              .ComputesIn(OpPrecision::kFloat32)
              .Input("X", "labels as one-hot rows [.., K]")
              .OptionalInput("PriorDist", "distribution over the classes")
              .Output("Out", "smoothed labels")
              .Attr<float>("epsilon", 0.f, "weight of the prior distribution")
              .NoGradientTo({"PriorDist"})
              .Inplace("X", "Out")
              .Rows(SmoothRows, "each by itself, unless they are the classes")
              .Infer(InferLabelSmooth)
              .Gradient(LabelSmoothGradient)
              .Reference(LabelSmooth<float>, LabelSmooth<double>));
}

}  // namespace coracle::label_smooth_op
