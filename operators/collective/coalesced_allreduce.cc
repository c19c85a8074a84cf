// c_coalesced_allreduce_sum: c_allreduce_sum of several tensors in one exchange.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/kernels/copy.h>

namespace coracle::coalesced_allreduce_op {

void Infer(InferContext& ctx) {
  const size_t count = ctx.NumInputs("X");
  ctx.Require("C1", ctx.NumOutputs("Out") == count, ctx.NumOutputs("Out"), count);
  for (size_t i = 0; i < count; ++i) {
    const bool same = ctx.Input("X", i).dtype == ctx.Input("X").dtype;
    ctx.Require("C2", same, ctx.Input("X", i), ctx.Input("X"));
    ctx.SetOutput("Out", ctx.Input("X", i), i);
  }
}

Kernel Sum(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X"), outs = ctx.Outputs("Out");
  return [=, exchange = Exchanger(ctx)](Workspace& ws) {
    Exchange all{Exchange::Kind::kAllReduce, xs[0].dtype, {}};
    for (size_t i = 0; i < xs.size(); ++i) {
      const void* in = ws.Data<const void>(xs[i]);
      void* out = ws.Data<void>(outs[i]);
      if (!ws.comm()) {
        CopyBytes(in, out, xs[i].nbytes());
        continue;
      }
      all.counts.push_back(xs[i].numel);
      if (i > 0) {
        all.more.push_back({in, out});
      } else {
        all.in = in;
        all.out = out;
      }
    }
    if (ws.comm()) exchange(ws, std::move(all));
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("c_coalesced_allreduce_sum")
              .ForRanks()
              .Doc("Out[i] = the sum of all ranks' X[i], exchanged together. With one rank, Out[i] "
                   "= X[i].")
              .Constraint("C1", "Out must have as many variables as X")
              .Constraint("C2", "all X must have one dtype")
              .VariadicInput("X", "tensors")
              .VariadicOutput("Out", "tensors of the shapes of X")
              .Takes(VarType::kLoDTensor, {"X"})
              .Attr<int32_t>("ring_id", 0, "which ranks take part: all, whatever the number")
              .Attr<bool>(kOverlapAttr, false,
                          "the exchange runs in the background until a c_sync_comm_stream or "
                          "c_wait_comm names one of Out; no op may use Out before")
              .Inplace("X", "Out")
              .SideEffect()
              .NoGradient("it exchanges gradients after backward")
              .Rows(RowRule::kSame)
              .Infer(Infer)
              .Reference(Sum));
}

}  // namespace coracle::coalesced_allreduce_op
