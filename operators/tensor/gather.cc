#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/gather_rows.h>
#include <coracle/operators/kernels/scatter_add.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>
#include <coracle/operators/tensor/slice_index.h>

#include <algorithm>
#include <optional>

namespace coracle::gather_op {

template <class Context>
int64_t AxisAttr(const Context& ctx) {
  return ctx.template Attr<int32_t>(ctx.op().type() == "index_select" ? "dim" : "axis");
}

std::optional<int> ReadAxis(const InferContext& ctx, int rank) {
  if (ctx.HasInput("Axis")) {
    const auto value = ctx.Value("Axis");
    if (!value) return std::nullopt;
    ctx.Require("C1", value->size() == 1, "Axis", *value);
    return ctx.Axis("C1", value->front(), rank);
  }
  return ctx.Axis("C1", AxisAttr(ctx), rank);
}

VarMeta GatherOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& index = ctx.InputShape("Index");
  RequireIndexType(ctx, "C2", "Index");
  ctx.Require("C3", index.rank() == 1 || (index.rank() == 2 && InferContext::Matches(index[1], 1)),
              index);
  const std::optional<int> axis = ReadAxis(ctx, x.shape.rank());
  if (axis)
    x.shape[*axis] = index[0];
  else
    x.shape = Shape(std::vector<int64_t>(static_cast<size_t>(x.shape.rank()), -1));
  return x;
}

void InferGather(InferContext& ctx) { ctx.SetOutput("Out", GatherOut(ctx)); }

// X as [outer, n, inner], where n is the dimension that Index indexes.
struct Split {
  int64_t outer, n, inner;
};

class Splitter {
 public:
  Splitter(const PrepareContext& ctx, const TensorArg& x)
      : x_(x), axis_(ctx.Input("Axis")), attr_(axis_ ? 0 : AxisAttr(ctx)) {
    if (axis_ && (axis_.numel != 1 || !IsIndexType(axis_.dtype)))
      ctx.Unsupported("Axis must hold one int32 or int64");
  }
  // REQUIRES: x has elements. Throws if the parts do not have `part_numel` elements in total.
  Split operator()(const Workspace& ws, int64_t count, int64_t part_numel) const {
    int axis = 0;
    const bool fits = x_.shape.NormalizeAxis(axis_ ? IndexReader(ws, axis_)[0] : attr_, &axis);
    const Split split{x_.shape.Product(0, axis), x_.shape[axis],
                      x_.shape.Product(axis + 1, x_.shape.rank())};
    if (!fits || split.outer * count * split.inner != part_numel)
      ThrowInvalid("gather: Axis does not match the inferred shape");
    return split;
  }

 private:
  TensorArg x_, axis_;
  int64_t attr_;
};

// Any index into an empty dimension is an error.
void CheckEmpty(const std::string& name, Workspace& ws, const TensorArg& index) {
  if (index.numel > 0) ThrowIndexRange(name, "Index", 0, IndexReader(ws, index)[0], 0);
}

Kernel Gather(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), index = ctx.Input("Index"), out = ctx.Output("Out");
  const Splitter splitter(ctx, x);
  const int64_t size = static_cast<int64_t>(SizeOf(x.dtype));
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    if (out.numel == 0) return;
    if (x.numel == 0) return CheckEmpty(name, ws, index);
    const Split s = splitter(ws, index.numel, out.numel);
    const IndexReader at(ws, index);
    const char* from = ws.Data<const char>(x);
    char* to = ws.Data<char>(out);
    const int64_t bytes = s.inner * size;
    const auto row_of = [&](int64_t k) {
      const int64_t row = at[k];
      if (row < 0 || row >= s.n) ThrowIndexRange(name, "Index", k, row, s.n);
      return row;
    };
    const int64_t count = index.numel;
    ParallelFor(s.outer * count, 1 + 65536 / bytes, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin / count; o * count < end; ++o) {
        GatherRows(from + o * s.n * bytes, to + o * count * bytes,
                   std::max<int64_t>(0, begin - o * count), std::min(count, end - o * count), bytes,
                   row_of);
      }
    });
  };
}

template <class T>
KernelOf<T> GatherGrad(const PrepareContext& ctx) {
  const TensorArg index = ctx.Input("Index"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const Splitter splitter(ctx, dx);
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    if (dx.numel == 0) return;
    if (dout.numel == 0) return FillZeroBytes(ws.Data<void>(dx), dx.nbytes());
    const Split s = splitter(ws, index.numel, dout.numel);
    const IndexReader at(ws, index);
    for (int64_t k = 0; k < index.numel; ++k) {
      if (at[k] < 0 || at[k] >= s.n) ThrowIndexRange(name, "Index", k, at[k], s.n);
    }
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    ParallelFor(s.outer, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        ScatterAddRows(from + o * index.numel * s.inner, index.numel, to + o * s.n * s.inner, s.n,
                       s.inner, [&](int64_t k) { return at[k]; });
      }
    });
  };
}

// Gather is linear in X.
void GatherGradGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"Index", "Axis"});
  inputs.push_back({"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD", g.Make("gather", std::move(inputs), g.ForwardAttrs({"axis"})));
}

void IndexSelectGradient(GradientContext& g) {
  g.Append(
      "gather_grad",
      {{"X", {g.Input("X")}}, {"Index", {g.Input("Index")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
      {{"X@GRAD", {g.InputGrad("X")}}}, {{"axis", g.Attr<int32_t>("dim")}});
}

// ---- gather_nd ----

VarMeta GatherNdOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& index = ctx.InputShape("Index");
  RequireIndexType(ctx, "C1", "Index");
  ctx.Require("C2", index.rank() > 0, index);
  const int64_t depth = index[index.rank() - 1];
  ctx.Require("C3", depth >= 0 && depth <= x.shape.rank(), depth, x.shape.rank());
  std::vector<int64_t> dims(index.begin(), index.end() - 1);
  dims.insert(dims.end(), x.shape.begin() + depth, x.shape.end());
  x.shape = ToShape(ctx, "C4", dims);
  return x;
}

void InferGatherNd(InferContext& ctx) { ctx.SetOutput("Out", GatherNdOut(ctx)); }

Kernel GatherNd(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), index = ctx.Input("Index"), out = ctx.Output("Out");
  const std::string name = ctx.op().type();
  if (out.numel == 0) return [](Workspace&) {};
  if (x.numel == 0) return [=](Workspace& ws) { CheckEmpty(name, ws, index); };
  const SliceIndex slice(name, x, index);
  const int64_t width = x.shape.Product(slice.depth(), x.shape.rank());
  const int64_t bytes = static_cast<int64_t>(ByteSize(x.dtype, {width}));
  const int64_t count = out.numel / width;
  return [=](Workspace& ws) {
    const IndexReader at(ws, index);
    const char* from = ws.Data<const char>(x);
    char* to = ws.Data<char>(out);
    ParallelFor(count, 1 + 65536 / bytes, [&](int64_t begin, int64_t end) {
      GatherRows(from, to, begin, end, bytes, [&](int64_t i) { return slice(at, i); });
    });
  };
}

template <class T>
KernelOf<T> GatherNdGrad(const PrepareContext& ctx) {
  const TensorArg index = ctx.Input("Index"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  if (dx.numel == 0) return [](Workspace&) {};
  const int64_t zero_bytes = dx.nbytes();
  if (dout.numel == 0) return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), zero_bytes); };
  const SliceIndex slice(ctx.op().type(), dx, index);
  const int64_t width = dx.shape.Product(slice.depth(), dx.shape.rank());
  const int64_t count = dout.numel / width, rows = dx.numel / width;
  return [=](Workspace& ws) {
    const IndexReader at(ws, index);
    ScatterAddRows(ws.Data<const T>(dout), count, ws.Data<T>(dx), rows, width,
                   [&](int64_t i) { return slice(at, i); });
  };
}

void GatherNdGradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make("gather_nd", {{"X", {g.OutputGrad("X@GRAD")}}, {"Index", {g.Input("Index")}}}));
}

OpDef GradDef(const std::string& type, std::vector<std::string> constraints) {
  OpDef def(type + "_grad");
  def.Doc("Gradient of " + type +
          ": each row of X@GRAD = the sum of the rows of Out@GRAD that Index took from that row of "
          "X.")
      .ConstraintsOf(type, std::move(constraints))
      .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
      .Input("X", "only its shape is used")
      .Input("Index", "int32 or int64 indices")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .NoGradientTo({"X", "Index"})
      .KernelTypeFrom("Out@GRAD")
      .Infer([](InferContext& ctx) {
        const bool nd = ctx.op().type() == "gather_nd_grad";
        RequireOutGrad(ctx, "C5", nd ? GatherNdOut(ctx) : GatherOut(ctx));
        ctx.SetOutput("X@GRAD", ctx.Input("X"));
      });
  return def;
}

void DeclareAxis(OpDef& def) {
  def.OptionalInput("Axis", "int32 or int64 tensor [1]; replaces attr axis")
      .Attr<int32_t>("axis", 0, "the dimension of X that Index indexes")
      .Attr<bool>("overwrite", true, "ignored: gradients of equal indices always add up")
      .NoGradientTo({"Axis"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("gather")
              .Doc("Out[.., i, ..] = X[.., Index[i], ..] along axis. An index outside of the "
                   "dimension is an error.")
              .Constraint("C1", "axis must lie in [-rank, rank)")
              .Constraint("C2", "Index must be int32 or int64")
              .Constraint("C3", "Index must be [n] or [n, 1]")
              .Input("X", "tensor of any dtype, rank 1 or more")
              .Input("Index", "int32 or int64 indices")
              .Output("Out", "the gathered slices")
              .Apply(DeclareAxis)
              .NoGradientTo({"Index"})
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Tables({"X"})
              .Infer(InferGather)
              .GradientOp({"X", "Index", "Axis"})
              .Strings()
              .Reference(Gather));
  ops.Add(GradDef("gather", {"C1", "C2", "C3"})
              .Apply(DeclareAxis)
              .Gradient(GatherGradGradient)
              .Reference(GatherGrad<float>, GatherGrad<double>, GatherGrad<float16>,
                         GatherGrad<bfloat16>, GatherGrad<complex64>, GatherGrad<complex128>));
  ops.Add(OpDef("index_select")
              .Doc("Out[.., i, ..] = X[.., Index[i], ..] along dim. An index outside of the "
                   "dimension is an error.")
              .Constraint("C1", "dim must lie in [-rank, rank)")
              .Constraint("C2", "Index must be int32 or int64")
              .Constraint("C3", "Index must be [n] or [n, 1]")
              .Input("X", "tensor of any dtype, rank 1 or more")
              .Input("Index", "int32 or int64 indices")
              .Output("Out", "the selected slices")
              .Attr<int32_t>("dim", 0, "the dimension of X that Index indexes")
              .NoGradientTo({"Index"})
              .Rows(RowRule::kEach)
              .WorksAlong("dim")
              .Infer(InferGather)
              .Gradient(IndexSelectGradient)
              .Strings()
              .Reference(Gather));
  ops.Add(OpDef("gather_nd")
              .Doc("Out[i.., :] = X[Index[i.., 0], Index[i.., 1], .., :]. An index outside of its "
                   "dimension is an error.")
              .Constraint("C1", "Index must be int32 or int64")
              .Constraint("C2", "Index must have rank 1 or more")
              .Constraint("C3", "Index's last dimension must be known and at most X's rank")
              .Constraint("C4", "the rank of Out must be at most 9")
              .Input("X", "tensor of any dtype")
              .Input("Index", "int32 or int64 indices [.., depth]")
              .Output("Out", "the gathered slices")
              .NoGradientTo({"Index"})
              .Rows(RowRule::kEach)
              .Tables({"X"})
              .Infer(InferGatherNd)
              .GradientOp({"X", "Index"})
              .Strings()
              .Reference(GatherNd));
  ops.Add(GradDef("gather_nd", {"C1", "C2", "C3", "C4"})
              .Gradient(GatherNdGradGradient)
              .Reference(GatherNdGrad<float>, GatherNdGrad<double>, GatherNdGrad<float16>,
                         GatherNdGrad<bfloat16>, GatherNdGrad<complex64>,
                         GatherNdGrad<complex128>));
}

}  // namespace coracle::gather_op
