#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>

namespace coracle::ref_by_trainer_id_op {

void InferRefByTrainerId(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  for (size_t k = 1; k < ctx.NumInputs("X"); ++k) {
    const VarMeta& x = ctx.Input("X", k);
    ctx.Require("C1", x.dtype == out.dtype && x.shape.CompatibleWith(out.shape), out, x);
    for (int i = 0; i < out.shape.rank(); ++i) out.shape[i] = std::max(out.shape[i], x.shape[i]);
  }
  const VarMeta& id = ctx.Input("TrainerId");
  ctx.Require("C2", IsIndexType(id.dtype) && InferContext::Matches(NumelOf(id.shape), 1), id);
  ctx.SetOutput("Out", out);
}

Kernel RefByTrainerId(const PrepareContext& ctx) {
  const TensorArg id = ctx.Input("TrainerId"), out = ctx.Output("Out");
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const int64_t k = IndexReader(ws, id)[0], count = static_cast<int64_t>(xs.size());
    if (k < 0 || k >= count) ThrowIndexRange(name, "TrainerId", 0, k, count);
    CopyBytes(ws.Data<const void>(xs[static_cast<size_t>(k)]), ws.Data<void>(out), out.nbytes());
    ws.OutputLod(out) = ws.LodOf(xs[static_cast<size_t>(k)]);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("ref_by_trainer_id")
              .Doc("Out = X[TrainerId]. A TrainerId outside of the inputs is an error.")
              .Constraint("C1", "the inputs must have one shape and dtype")
              .Constraint("C2", "TrainerId must hold one int32 or int64")
              .VariadicInput("X", "tensors of any dtype")
              .Input("TrainerId", "index of X [1]")
              .Output("Out", "tensor of their shape and dtype")
              .MakesLod()
              .NoGradient("it chooses among the values sent by trainers")
              .Rows(RowRule::kEach)
              .Infer(InferRefByTrainerId)
              .Reference(RefByTrainerId));
}

}  // namespace coracle::ref_by_trainer_id_op
