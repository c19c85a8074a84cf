#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

namespace coracle::feed_op {

// The fed tensor has the type that the program declares of its variable.
void InferFeed(InferContext& ctx) {
  if (const VarMeta* declared = ctx.DeclaredOutput("Out")) ctx.SetOutput("Out", *declared);
}

// The caller of the run binds the fed and fetched values, so there is nothing to do.
Kernel Nothing(const PrepareContext&) {
  return [](Workspace&) {};
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("feed")
              .Doc("Out = the tensor that the caller feeds at index col.")
              .Input("X", "the list of fed tensors, a variable of type FEED_MINIBATCH")
              .Output("Out", "tensor of the declared shape and dtype")
              .Attr<int32_t>("col", "index in the list")
              .Range(0, {})
              .Kind(OpKind::kFeed)
              .NotDifferentiable("its input comes from outside of the program")
              .Infer(InferFeed)
              .Reference(Nothing));
  ops.Add(OpDef("fetch")
              .Doc("Passes X to the caller as the result at index col.")
              .Input("X", "variable of any type")
              .Output("Out", "the list of fetched values, a variable of type FETCH_LIST")
              .Attr<int32_t>("col", "index in the list")
              .Range(0, {})
              .Kind(OpKind::kFetch)
              .SideEffect()
              .NotDifferentiable("its output leaves the program")
              .Reference(Nothing));
}

}  // namespace coracle::feed_op
