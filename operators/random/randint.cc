// Random integers: randint and seed.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/random/generator.h>
#include <coracle/operators/rules/dims.h>

#include <limits>

namespace coracle::randint_op {

void InferRandint(InferContext& ctx) {
  const char* list = ctx.HasInput("ShapeTensor") ? "" : "ShapeTensorList";
  const Shape shape = ReadNewShape(ctx, list, "ShapeTensor", "shape");
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  ctx.Require("C3", dtype == DType::kInt32 || dtype == DType::kInt64, dtype);
  const int32_t low = ctx.Attr<int32_t>("low"), high = ctx.Attr<int32_t>("high");
  ctx.Require("C4", low < high, "low", low, "high", high);
  ctx.SetOutput("Out", dtype, shape);
}

template <class T>
KernelOf<T> Randint(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const int64_t low = ctx.Attr<int32_t>("low"), high = ctx.Attr<int32_t>("high");
  const Generator generator(ctx);
  return [=](Workspace& ws) {
    const Philox random = generator(ws);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < out.numel; ++i)
      o[i] = static_cast<T>(low + UniformBelow(random, static_cast<uint64_t>(i), high - low));
  };
}

Kernel Seed(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const int32_t seed = ctx.Attr<int32_t>("seed");
  const Generator generator(ctx);
  return [=](Workspace& ws) {
    constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
    const auto drawn = static_cast<int32_t>(UniformBelow(generator(ws), 0, kLimit));
    ws.Data<int32_t>(out)[0] = seed != 0 ? seed : drawn;
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("randint")
              .Doc("Out = independent integers, uniform in [low, high). The shape comes from "
                   "ShapeTensor, else ShapeTensorList, else attr shape.")
              .Constraint("C1", "no dimension may be negative")
              .Constraint("C2", "the rank must be at most 9")
              .Constraint("C3", "dtype must be int32 or int64")
              .Constraint("C4", "low must be below high")
              .OptionalInput("ShapeTensor", "int32 or int64 tensor with the shape")
              .OptionalVariadicInput("ShapeTensorList", "one-element tensors, one per dimension")
              .Output("Out", "the drawn tensor")
              .Attr<std::vector<int64_t>>("shape", {}, "shape of Out")
              .Attr<int32_t>("low", "lower bound, included")
              .Attr<int32_t>("high", "upper bound, excluded")
              .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kInt64), "dtype of Out")
              .Attr<int32_t>("seed", 0, "seed of this op; 0: the program's seed")
              .KernelTypeFrom("Out")
              .Random()
              .NotDifferentiable("the output is drawn at random from attrs")
              .Rows(RowRule::kEach)
              .Infer(InferRandint)
              .Reference(Randint<int32_t>, Randint<int64_t>));
  ops.Add(OpDef("seed")
              .Doc("Out = attr seed, or a random number that is not negative if seed is 0.")
              .Output("Out", "int32 tensor [1]")
              .Attr<int32_t>("seed", 0, "the number; 0: a random one")
              .Random()
              .NotDifferentiable("the output is a seed")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", DType::kInt32, {1}); })
              .Reference(Seed));
}

}  // namespace coracle::randint_op
