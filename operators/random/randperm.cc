// Random orders: randperm and shuffle_batch.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/random/generator.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace coracle::randperm_op {

// ---- randperm ----

void InferRandperm(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C1", "dtype");
  ctx.SetOutput("Out", dtype, {ctx.Attr<int32_t>("n")});
}

template <class T>
KernelOf<T> Randperm(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const Generator generator(ctx);
  return [=](Workspace& ws) { Shuffle(generator(ws), out.numel, ws.Data<T>(out)); };
}

// ---- shuffle_batch ----

int64_t RowsOf(const Shape& x) { return ProductOfDims(x, 0, x.rank() - 1); }

void InferShuffleBatch(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() > 0, x.shape);
  const VarMeta& seed = ctx.Input("Seed");
  const int64_t numel = NumelOf(seed.shape);
  ctx.Require("C2", seed.dtype == DType::kInt64 && numel <= 1, seed);
  ctx.SetOutput("Out", x);
  ctx.SetOutput("ShuffleIdx", DType::kInt64, {RowsOf(x.shape)});
  ctx.SetOutput("SeedOut", DType::kInt64, {1});
}

// Row i of `in` becomes row order[i] of `out`; with `back`, the other way round.
void MoveRows(const char* in, const int64_t* order, int64_t rows, int64_t bytes, bool back,
              char* out) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t from = back ? order[i] : i, to = back ? i : order[i];
    std::memcpy(out + to * bytes, in + from * bytes, static_cast<size_t>(bytes));
  }
}

Kernel ShuffleBatch(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), seed = ctx.Input("Seed"), out = ctx.Output("Out");
  const TensorArg order = ctx.Output("ShuffleIdx"), next = ctx.Output("SeedOut");
  const auto startup = static_cast<uint64_t>(int64_t{ctx.Attr<int32_t>("startup_seed")});
  const Generator fallback(ctx, startup);
  const int64_t rows = order.numel, bytes = x.numel == 0 ? 0 : x.nbytes() / rows;
  return [=](Workspace& ws) {
    // With a nonempty Seed the order depends only on Seed, so that a run can be repeated.
    const auto given = seed.numel == 0 ? 0 : static_cast<uint64_t>(ws.Data<const int64_t>(seed)[0]);
    const Philox random = seed.numel == 0 ? fallback(ws) : Philox(given, 0, 0);
    Shuffle(random, rows, ws.Data<int64_t>(order));
    constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
    ws.Data<int64_t>(next)[0] = UniformBelow(random, static_cast<uint64_t>(rows), kLimit);
    if (bytes == 0) return;
    MoveRows(ws.Data<const char>(x), ws.Data<const int64_t>(order), rows, bytes, false,
             ws.Data<char>(out));
  };
}

void InferShuffleBatchGrad(InferContext& ctx) {
  const VarMeta &dout = ctx.Input("Out@GRAD"), &order = ctx.Input("ShuffleIdx");
  ctx.Require("C1", dout.shape.rank() > 0, dout.shape);
  const bool fits = order.dtype == DType::kInt64 && order.shape.rank() == 1;
  ctx.Require("C2", fits && InferContext::Matches(order.shape[0], RowsOf(dout.shape)), order, dout);
  ctx.SetOutput("X@GRAD", dout);
}

Kernel ShuffleBatchGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), order = ctx.Input("ShuffleIdx");
  const TensorArg dx = ctx.Output("X@GRAD");
  if (dx.numel == 0) return [](Workspace&) {};
  const int64_t rows = order.numel, bytes = dx.nbytes() / rows;
  return [=](Workspace& ws) {
    const auto* at = ws.Data<const int64_t>(order);
    for (int64_t i = 0; i < rows; ++i) {
      if (at[i] < 0 || at[i] >= rows)
        ThrowIndexRange("shuffle_batch_grad", "ShuffleIdx", i, at[i], rows);
    }
    MoveRows(ws.Data<const char>(dout), at, rows, bytes, true, ws.Data<char>(dx));
  };
}

// ShuffleIdx is a permutation, so its inverse takes the gradient back.
void ShuffleBatchGradGradient(GradientContext& g) {
  const Variable inverse =
      g.Make("argsort", {{"X", {g.Input("ShuffleIdx")}}}, {{"axis", int32_t{0}}}, "Indices");
  g.Set("Out@GRAD",
        g.Make("shuffle_batch_grad",
               {{"ShuffleIdx", {inverse.name()}}, {"Out@GRAD", {g.OutputGrad("X@GRAD")}}}, {},
               "X@GRAD"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("randperm")
              .Doc("Out = 0 .. n - 1 in a random order.")
              .Constraint("C1", "dtype must be the number of a dtype")
              .Output("Out", "vector [n]")
              .Attr<int32_t>("n", "number of elements")
              .Range(0, {})
              .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kInt64), "dtype of Out")
              .Attr<int32_t>("seed", 0, "seed of this op; 0: the program's seed")
              .KernelTypeFrom("Out")
              .Random()
              .NotDifferentiable("the output is drawn at random from attrs")
              .Rows(RowRule::kEach)
              .Infer(InferRandperm)
              .Reference(Randperm<int64_t>, Randperm<int32_t>, Randperm<float>, Randperm<double>));
  ops.Add(OpDef("shuffle_batch")
              .Doc("The rows of X (all dimensions but the last) in a random order: "
                   "Out[ShuffleIdx[i]] = X[i]. The order depends only on Seed; if Seed is empty, "
                   "on startup_seed, or on the program's seed if startup_seed is 0.")
              .Constraint("C1", "X must have a dimension")
              .Constraint("C2", "Seed must be int64 of at most one element")
              .Input("X", "tensor of any dtype")
              .Input("Seed", "int64 tensor [1], or empty")
              .Output("Out", "the shuffled rows")
              .Output("ShuffleIdx", "int64 tensor [rows], the new position of each row")
              .Output("SeedOut", "int64 tensor [1], a seed for the next run")
              .Attr<int32_t>("startup_seed", 0, "seed if Seed is empty; 0: the program's seed")
              .NoGradientTo({"Seed"})
              .Random()
              .Rows(RowRule::kMixes)
              .Infer(InferShuffleBatch)
              .GradientOp({"ShuffleIdx"})
              .Reference(ShuffleBatch));
  ops.Add(OpDef("shuffle_batch_grad")
              .Doc("Gradient of shuffle_batch: X@GRAD[i] = Out@GRAD[ShuffleIdx[i]].")
              .Constraint("C1", "Out@GRAD must have a dimension")
              .Constraint("C2", "ShuffleIdx must hold one int64 for each row")
              .Input("ShuffleIdx", "computed by the forward op")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("shuffle_batch")
              .NoGradientTo({"ShuffleIdx"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferShuffleBatchGrad)
              .Gradient(ShuffleBatchGradGradient)
              .Reference(ShuffleBatchGrad));
}

}  // namespace coracle::randperm_op
