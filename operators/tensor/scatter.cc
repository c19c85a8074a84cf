#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>
#include <coracle/operators/tensor/slice_index.h>

#include <algorithm>
#include <utility>

namespace coracle::scatter_op {

template <class T>
void AddRow(const T* from, T* to, int64_t width) {
  if (width == 1) {
    *to = WrapAdd(*to, *from);
  } else {
    for (int64_t j = 0; j < width; ++j) to[j] = WrapAdd(to[j], from[j]);
  }
}

// Adds row i of from[count, width] to row row_of(i) of `to`, for i in order; each row has one
// thread. With `seen`, which has a 0 for each row, the first addition to a row replaces the row.
template <class T, class RowOf>
void AddRows(const T* from, int64_t count, T* to, int64_t width, uint8_t* seen,
             const RowOf& row_of) {
  const int64_t ahead = PrefetchDistance(width * static_cast<int64_t>(sizeof(T)));
  ForEachRowShare(count * width, [&](const RowShare& share) {
    for (int64_t i = 0; i < count; ++i) {
      if (width > 1 && i + ahead < count) {
        const int64_t next = row_of(i + ahead);
        if (share.Has(next)) PrefetchRow<true>(to + next * width, width);
      }
      const int64_t row = row_of(i);
      if (!share.Has(row)) continue;
      if (seen && std::exchange(seen[row], uint8_t{1}) == 0)
        std::copy_n(from + i * width, width, to + row * width);
      else
        AddRow(from + i * width, to + row * width, width);
    }
  });
}

// ---- scatter ----

void InferScatter(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  const Shape &ids = ctx.InputShape("Ids"), &updates = ctx.InputShape("Updates");
  RequireIndexType(ctx, "C1", "Ids");
  ctx.Require("C2", ids.rank() == 1 || (ids.rank() == 2 && InferContext::Matches(ids[1], 1)), ids);
  RequireSameDType(ctx, "C3", "Updates", "X");
  ctx.Require("C4", x.shape.rank() > 0, x.shape);
  Shape wanted = x.shape;
  wanted[0] = ids[0];
  ctx.Require("C4", updates.CompatibleWith(wanted), updates, wanted);
  ctx.SetOutput("Out", x);
}

template <class T>
KernelOf<T> Scatter(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), ids = ctx.Input("Ids"), updates = ctx.Input("Updates");
  const TensorArg out = ctx.Output("Out");
  const bool overwrite = ctx.Attr<bool>("overwrite");
  const int64_t rows = x.shape[0], bytes = x.nbytes();
  const int64_t width = x.numel == 0 ? 0 : x.shape.Product(1, x.shape.rank());
  TensorArg scratch;
  if (!overwrite && width > 0) scratch = ctx.Scratch(DType::kUInt8, {rows});
  return [=](Workspace& ws) {
    const IndexReader at(ws, ids);
    for (int64_t i = 0; i < ids.numel; ++i) {
      if (at[i] < 0 || at[i] >= rows) ThrowIndexRange("scatter", "Ids", i, at[i], rows);
    }
    T* to = ws.Data<T>(out);
    CopyBytes(ws.Data<const void>(x), to, bytes);
    if (width == 0) return;
    const T* from = ws.Data<const T>(updates);
    if (!overwrite) {
      auto* seen = ws.Data<uint8_t>(scratch);
      std::fill_n(seen, rows, uint8_t{0});
      return AddRows(from, ids.numel, to, width, seen, [&](int64_t i) { return at[i]; });
    }
    ForEachRowShare(updates.numel, [&](const RowShare& share) {
      for (int64_t i = 0; i < ids.numel; ++i) {
        if (share.Has(at[i])) std::copy_n(from + i * width, width, to + at[i] * width);
      }
    });
  };
}

// X@GRAD = Out@GRAD, but 0 in the rows Ids; Updates@GRAD = these rows.
void ScatterGradient(GradientContext& g) {
  const Variable dout = g.Grad("Out"), ids = g.In("Ids");
  if (g.NeedsInputGrad("X")) {
    const Variable zeros = ZerosLike(g.In("Updates"));
    g.Set("X", g.Make("scatter",
                      {{"X", {dout.name()}}, {"Ids", {ids.name()}}, {"Updates", {zeros.name()}}}));
  }
  g.Set("Updates", g.Make("gather", {{"X", {dout.name()}}, {"Index", {ids.name()}}}));
}

// ---- scatter_nd_add ----

void InferScatterNdAdd(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  const Shape &index = ctx.InputShape("Index"), &updates = ctx.InputShape("Updates");
  RequireIndexType(ctx, "C1", "Index");
  ctx.Require("C2", index.rank() > 0, index);
  const int64_t depth = index[index.rank() - 1];
  ctx.Require("C3", depth >= 0 && depth <= x.shape.rank(), depth, x.shape.rank());
  RequireSameDType(ctx, "C4", "Updates", "X");
  std::vector<int64_t> dims(index.begin(), index.end() - 1);
  dims.insert(dims.end(), x.shape.begin() + depth, x.shape.end());
  const bool fits = dims.size() <= Shape::kMaxRank && updates.CompatibleWith(Shape(dims));
  ctx.Require("C5", fits, updates, dims);
  ctx.SetOutput("Out", x);
}

template <class T>
KernelOf<T> ScatterNdAdd(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), index = ctx.Input("Index"), updates = ctx.Input("Updates");
  const TensorArg out = ctx.Output("Out");
  const SliceIndex slice("scatter_nd_add", x, index);
  const int64_t bytes = x.nbytes();
  // There may be indices to check even without elements.
  const bool nothing = updates.numel == 0 && index.numel == 0;
  const int64_t entries = nothing ? 0 : index.shape.Product(0, index.shape.rank() - 1);
  const int64_t width = updates.numel == 0 ? 0 : updates.numel / entries;
  return [=](Workspace& ws) {
    const IndexReader at(ws, index);
    T* to = ws.Data<T>(out);
    CopyBytes(ws.Data<const void>(x), to, bytes);
    const T* from = ws.Data<const T>(updates);
    AddRows(from, entries, to, width, nullptr, [&](int64_t i) { return slice(at, i); });
  };
}

void ScatterNdAddGradient(GradientContext& g) {
  const Variable dout = g.Grad("Out");
  g.Set("X", dout);
  g.Set("Updates", g.Make("gather_nd", {{"X", {dout.name()}}, {"Index", {g.Input("Index")}}}));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("scatter")
              .Doc("Out = X with row Ids[i] replaced by row i of Updates. With overwrite, the last "
                   "of several updates of a row wins; otherwise they add up. An id outside of the "
                   "rows of X is an error. The gradient of Updates is the rows Ids of Out's "
                   "gradient, even with overwrite, as if no id occurred twice.")
              .Constraint("C1", "Ids must be int32 or int64")
              .Constraint("C2", "Ids must be [n] or [n, 1]")
              .Constraint("C3", "Updates must have X's dtype")
              .Constraint("C4",
                          "Updates must have X's dimensions, except for the first, which must be n")
              .Input("X", "tensor of rank 1 or more")
              .Input("Ids", "int32 or int64 numbers of rows")
              .Input("Updates", "the new rows")
              .Output("Out", "tensor of X's shape and dtype")
              .Attr<bool>("overwrite", true, "replace rows; otherwise add up their updates")
              .NoGradientTo({"Ids"})
              .Inplace("X", "Out")
              .Rows(RowRule::kMixes)
              .Infer(InferScatter)
              .Gradient(ScatterGradient)
              .Reference(Scatter<float>, Scatter<double>, Scatter<int32_t>, Scatter<int64_t>));
  ops.Add(OpDef("scatter_nd_add")
              .Doc("Out = X; then Out[Index[i.., 0], Index[i.., 1], ..] += Updates[i..]. Several "
                   "updates of one slice add up. An index outside of its dimension is an error.")
              .Constraint("C1", "Index must be int32 or int64")
              .Constraint("C2", "Index must have rank 1 or more")
              .Constraint("C3", "Index's last dimension must be known and at most X's rank")
              .Constraint("C4", "Updates must have X's dtype")
              .Constraint("C5",
                          "Updates must have Index's dimensions without the last, followed by the "
                          "dimensions of X that are not indexed")
              .Input("X", "tensor")
              .Input("Index", "int32 or int64 indices [.., depth]")
              .Input("Updates", "summands")
              .Output("Out", "tensor of X's shape and dtype")
              .NoGradientTo({"Index"})
              .Inplace("X", "Out")
              .Rows(RowRule::kMixes)
              .Infer(InferScatterNdAdd)
              .Gradient(ScatterNdAddGradient)
              .Reference(ScatterNdAdd<float>, ScatterNdAdd<double>, ScatterNdAdd<int32_t>,
                         ScatterNdAdd<int64_t>, ScatterNdAdd<uint8_t>));
}

}  // namespace coracle::scatter_op
