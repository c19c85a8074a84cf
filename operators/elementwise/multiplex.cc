#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <cstring>

namespace coracle::multiplex_op {

void InferMultiplex(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const size_t count = ctx.NumInputs("X");
  ctx.Require("C1", count >= 2, count);
  for (size_t k = 1; k < count; ++k) {
    const VarMeta& x = ctx.Input("X", k);
    ctx.Require("C2", x.dtype == out.dtype && x.shape.CompatibleWith(out.shape), out, x);
    for (int i = 0; i < out.shape.rank(); ++i) out.shape[i] = std::max(out.shape[i], x.shape[i]);
  }
  const VarMeta& ids = ctx.Input("Ids");
  const bool fits = ids.shape.rank() == 2 && InferContext::Matches(ids.shape[1], 1) &&
                    out.shape.rank() > 0 && InferContext::Matches(ids.shape[0], out.shape[0]);
  ctx.Require("C3", fits && IsIndexType(ids.dtype), ids, "X", out);
  ctx.SetOutput("Out", out);
}

Kernel Multiplex(const PrepareContext& ctx) {
  const TensorArg ids = ctx.Input("Ids"), out = ctx.Output("Out");
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const int64_t rows = out.shape[0], bytes = rows == 0 ? 0 : out.nbytes() / rows;
  return [=](Workspace& ws) {
    const IndexReader at(ws, ids);
    const auto count = static_cast<int64_t>(xs.size());
    for (int64_t i = 0; i < rows; ++i) {
      if (at[i] < 0 || at[i] >= count) ThrowIndexRange("multiplex", "Ids", i, at[i], count);
      if (bytes == 0) continue;
      const char* from = ws.Data<const char>(xs[static_cast<size_t>(at[i])]);
      std::memcpy(ws.Data<char>(out) + i * bytes, from + i * bytes, static_cast<size_t>(bytes));
    }
  };
}

// X@GRAD[k] = the rows of Out@GRAD whose id is k, else 0: a choice between zeros and Out@GRAD.
void MultiplexGradient(GradientContext& g) {
  const Variable ids = g.In("Ids"), dout = g.Grad("Out"), zeros = ZerosLike(dout);
  for (size_t k = 0; k < g.Inputs("X").size(); ++k) {
    if (!g.NeedsInputGrad("X", k)) continue;
    const Variable chosen = Cast(Equal(ids, FillLike(ids, static_cast<double>(k))), DType::kInt32);
    g.Set("X", g.Make("multiplex", {{"Ids", {chosen.name()}}, {"X", {zeros.name(), dout.name()}}}),
          k);
  }
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("multiplex")
              .Doc("Row i of Out = row i of X[Ids[i]]. An id outside of the inputs is an error.")
              .Constraint("C1", "there must be two inputs or more")
              .Constraint("C2", "the inputs must have one shape and dtype")
              .Constraint("C3", "Ids must be int32 (or int64) [N, 1], N being the rows of X")
              .Input("Ids", "int32 tensor [N, 1] of indices of X")
              .VariadicInput("X", "tensors [N, ...] of any dtype")
              .Output("Out", "tensor of the inputs' shape and dtype")
              .NoGradientTo({"Ids"})
              .NoLod()
              .Rows(RowRule::kEach)
              .Infer(InferMultiplex)
              .Gradient(MultiplexGradient)
              .Reference(Multiplex));
}

}  // namespace coracle::multiplex_op
