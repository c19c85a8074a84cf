// Ops around collective communication: set-up, which does nothing, and waiting.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/kernels/copy.h>

#include <cstring>

namespace coracle::communicator_op {

// --- waiting: Out = X, and in programs Out names X's variables ---

void InferWait(InferContext& ctx) {
  const size_t outputs = ctx.NumOutputs("Out");
  ctx.Require("C1", outputs <= ctx.NumInputs("X"), outputs, ctx.NumInputs("X"));
  for (size_t i = 0; i < outputs; ++i) ctx.SetOutput("Out", ctx.Input("X", i), i);
}

Kernel Wait(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X"), outs = ctx.Outputs("Out");
  const std::string& type = ctx.op().type();
  const bool waits = type == "c_sync_comm_stream" || type == "c_wait_comm";
  const int ring = ctx.spec().FindAttr("ring_id") ? ctx.Attr<int32_t>("ring_id") : 0;
  return [=, names = ctx.op().Input("X")](Workspace& ws) {
    if (waits && ws.comm()) ws.comm()->WaitFor(ring, names);
    for (size_t i = 0; i < outs.size(); ++i) {
      if (!outs[i]) continue;
      const VarValue& value = ws.ValueOf(xs[i]);
      if (std::holds_alternative<Tensor>(value))
        CopyBytes(ws.Data<const void>(xs[i]), ws.Data<void>(outs[i]), xs[i].nbytes());
      else if (VarValue& target = ws.ValueOf(outs[i]); &target != &value)
        CopyValue(value, &target);
    }
  };
}

void WaitGradient(GradientContext& g) {
  for (size_t i = 0; i < g.Outputs("Out").size(); ++i) {
    if (g.NeedsInputGrad("X", i)) g.Set("X", g.Grad("Out", i), i);
  }
}

OpDef WaitOp(const char* type, const std::string& more) {
  return OpDef(type)
      .Doc("Out = X. " + more)
      .Constraint("C1", "Out must have no more variables than X")
      .OptionalVariadicInput("X", "values of any kind")
      .OptionalVariadicOutput("Out", "the values of X; usually the same variables")
      .TakesAnyValue()
      .Inplace("X", "Out")
      .Rows(RowRule::kEach)
      .Infer(InferWait)
      .Gradient(WaitGradient)
      .Reference(Wait);
}

// --- setting up ---

Kernel Nothing(const PrepareContext&) {
  return [](Workspace&) {};
}

// A handle is 0: a program must not see what is in fresh memory.
Kernel MakeHandle(const PrepareContext& ctx, const char* slot) {
  const TensorArg out = ctx.Output(slot);
  return [out](Workspace& ws) {
    if (out.nbytes() > 0) std::memset(ws.Data<void>(out), 0, static_cast<size_t>(out.nbytes()));
  };
}

// A variable that no op reads and that gets no value.
void InferHandle(InferContext& ctx, const char* slot) {
  ctx.SetOutput(slot, VarMeta{VarType::kRaw, DType::kFloat32, {}, 0});
}

OpDef SetUpOp(const std::string& type) {
  return OpDef(type)
      .ForRanks()
      .Doc("Does nothing: the ranks are connected before a program runs.")
      .Rows(RowRule::kEach)
      .NotDifferentiable("it computes nothing");
}

OpDef MakeId(const char* type) {
  return SetUpOp(type)
      .Output("Out", "a handle, without a value")
      .Attr<int32_t>("rank", 0, "ignored")
      .Attr<int32_t>("trainer_id", 0, "ignored")
      .Attr<int32_t>("ring_id", 0, "ignored")
      .Attr<std::string>("endpoint", "", "ignored")
      .Attr<std::vector<std::string>>("other_endpoints", {}, "ignored")
      .Attr<std::vector<std::string>>("trainers", {}, "ignored")
      .Infer([](InferContext& ctx) { InferHandle(ctx, "Out"); })
      .Reference([](const PrepareContext& ctx) { return MakeHandle(ctx, "Out"); });
}

void Register(OpRegistry& ops) {
  for (const char* type : {"c_sync_comm_stream", "c_wait_comm"}) {
    ops.Add(
        WaitOp(type, "Waits for the exchanges of the variables X; without X, for all exchanges.")
            .SideEffect()
            .Attr<int32_t>("ring_id", 0, "results of the exchanges"));
  }
  for (const char* type : {"c_sync_calc_stream", "c_wait_compute"}) {
    ops.Add(
        WaitOp(
            type,
            "All computation has ended when an exchange begins, so there is nothing to wait for.")
            .Attr<int32_t>("ring_id", 0, "ignored"));
  }
  ops.Add(WaitOp("nop", "It only orders the ops."));
  for (const char* type : {"c_gen_nccl_id", "c_gen_bkcl_id", "c_gen_hccl_id", "gen_nccl_id",
                           "gen_bkcl_id", "gen_hccl_id"})
    ops.Add(MakeId(type));
  ops.Add(SetUpOp("c_comm_init")
              .OptionalInput("X", "ignored")
              .TakesAnyValue()
              .Attr<int32_t>("nranks", 1, "ignored: the number of ranks")
              .Attr<int32_t>("rank", 0, "ignored: a rank knows its number")
              .Attr<int32_t>("device_id", -1, "ignored")
              .Attr<int32_t>("ring_id", 0, "ignored")
              .Infer([](InferContext&) {})
              .Reference(Nothing));
  ops.Add(SetUpOp("c_comm_init_all")
              .Attr<std::vector<int32_t>>("devices", {}, "ignored")
              .Attr<int32_t>("ring_id", 0, "ignored")
              .Infer([](InferContext&) {})
              .Reference(Nothing));
  ops.Add(
      SetUpOp("ncclInit")
          .OptionalInput("parallel_scopes", "ignored")
          .TakesAnyValue()
          .Output("Communicator", "a handle, without a value")
          .Infer([](InferContext& ctx) { InferHandle(ctx, "Communicator"); })
          .Reference([](const PrepareContext& ctx) { return MakeHandle(ctx, "Communicator"); }));
}

}  // namespace coracle::communicator_op
