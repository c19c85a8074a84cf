// Ops that annotate a program and compute nothing.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <cstring>

namespace coracle::marker_op {

Kernel Nothing(const PrepareContext&) {
  return [](Workspace&) {};
}

// Out is 0: a program must not see what is in fresh memory.
Kernel NoPlaces(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  return [out](Workspace& ws) {
    if (out.nbytes() > 0) std::memset(ws.Data<void>(out), 0, static_cast<size_t>(out.nbytes()));
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("marker")
              .Doc("Does nothing. Marks where a part of a program begins or ends.")
              .Attr<std::string>("marker_role", "forward", "ignored: which part")
              .Attr<std::string>("marker_pos", "B", "ignored: B where it begins, E where it ends")
              .NotDifferentiable("it computes nothing")
              .Rows(RowRule::kEach)
              .Infer([](InferContext&) {})
              .Reference(Nothing));
  ops.Add(
      OpDef("delete_var")
          .Doc("Does nothing. Marks the end of the use of X, which the plan finds out by itself.")
          .OptionalVariadicInput("X", "values of any kind")
          .TakesAnyValue()
          .NotDifferentiable("it computes nothing")
          .Rows(RowRule::kEach)
          .Infer([](InferContext&) {})
          .Reference(Nothing));
  ops.Add(OpDef("get_places")
              .Doc("Declares the list of devices that a program uses. The only device is the CPU, "
                   "and Out gets no value.")
              .Output("Out", "a list of places")
              .Attr<int32_t>("device_count", 0, "ignored")
              .Attr<std::string>("device_type", "AUTO", "ignored")
              .NotDifferentiable("it computes nothing")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                ctx.SetOutput("Out", VarMeta{VarType::kPlaceList, DType::kFloat32, {}, 0});
              })
              .Reference(NoPlaces));
}

}  // namespace coracle::marker_op
