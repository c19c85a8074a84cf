#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/scatter_add.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

#include <cstring>

namespace coracle::lookup_table_op {

constexpr int64_t kNoPadding = -1;

// lookup_table expects Ids [.., 1]; lookup_table_v2 accepts any shape.
void InferLookup(InferContext& ctx) {
  VarMeta w = ctx.Input("W");
  const Shape& ids = ctx.InputShape("Ids");
  ctx.Require("C1", w.shape.rank() == 2, w.shape.rank());
  RequireIndexType(ctx, "C2", "Ids");
  std::vector<int64_t> dims = ids.ToVector();
  if (ctx.op().type() == "lookup_table") {
    ctx.Require("C4", ids.rank() > 0 && InferContext::Matches(ids[ids.rank() - 1], 1), ids);
    dims.pop_back();
  }
  dims.push_back(w.shape[1]);
  const VarMeta& meta = ctx.Input("Ids");
  w.shape = ToShape(ctx, "C3", dims);
  w.type = VarType::kLoDTensor;
  w.lod_level = meta.lod_level;
  ctx.SetOutput("Out", w);
}

int64_t RowBytes(const TensorArg& w) {
  return static_cast<int64_t>(ByteSize(w.dtype, {w.shape[1]}));
}

Kernel Lookup(const PrepareContext& ctx) {
  const TensorArg w = ctx.Input("W"), ids = ctx.Input("Ids"), out = ctx.Output("Out");
  const int64_t padding = ctx.Attr<int64_t>("padding_idx");
  const int64_t rows = w.shape[0], bytes = RowBytes(w);
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader id(ws, ids);
    const char* from = ws.Data<const char>(w);
    char* to = ws.Data<char>(out);
    const int64_t ahead = PrefetchDistance(bytes);
    const auto exists = [=](int64_t row) { return row >= 0 && row < rows; };
    ParallelFor(ids.numel, 1 + 65536 / (1 + bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = id[i];
        const bool pad = padding != kNoPadding && row == padding;
        if (!pad && !exists(row)) ThrowIndexRange(name, "Ids", i, row, rows);
        if (bytes == 0) continue;
        if (i + ahead < end && exists(id[i + ahead]))
          PrefetchRow<false>(from + id[i + ahead] * bytes, bytes);
        if (pad)
          std::memset(to + i * bytes, 0, static_cast<size_t>(bytes));
        else
          std::memcpy(to + i * bytes, from + row * bytes, static_cast<size_t>(bytes));
      }
    });
  };
}

// The number of ids that are rows; throws for an id that is neither a row nor padding.
int64_t CountRows(const IndexReader& id, int64_t count, int64_t rows, int64_t padding,
                  const std::string& name) {
  int64_t padded = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool pad = padding != kNoPadding && id[i] == padding;
    padded += pad;
    if (!pad && (id[i] < 0 || id[i] >= rows)) ThrowIndexRange(name, "Ids", i, id[i], rows);
  }
  return count - padded;
}

// A row of Out@GRAD for each id except the padding; no memory of W's size is used.
Kernel SparseLookupGrad(const PrepareContext& ctx) {
  const TensorArg w = ctx.Input("W"), ids = ctx.Input("Ids"), dout = ctx.Input("Out@GRAD");
  const RowsOutput dw(ctx, "W@GRAD");
  const int64_t padding = ctx.Attr<int64_t>("padding_idx");
  const int64_t bytes = RowBytes(w);
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader id(ws, ids);
    const int64_t height = w.shape[0];
    const int64_t count = CountRows(id, ids.numel, height, padding, name);
    SelectedRows& out = dw.Make(ws, count, height, Tensor::View(w.dtype, w.shape, nullptr));
    const char* from = ws.Data<const char>(dout);
    char* to = static_cast<char*>(out.value.raw());
    if (count == ids.numel) {
      for (int64_t i = 0; i < count; ++i) out.rows[static_cast<size_t>(i)] = id[i];
      return CopyBytes(from, to, count * bytes);
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < ids.numel; ++i) {
      if (id[i] == padding) continue;
      CopyBytes(from + i * bytes, to + kept * bytes, bytes);
      out.rows[static_cast<size_t>(kept++)] = id[i];
    }
  };
}

template <class T>
KernelOf<T> LookupGrad(const PrepareContext& ctx) {
  if (ctx.Attr<bool>("is_sparse")) return SparseLookupGrad(ctx);
  const TensorArg ids = ctx.Input("Ids"), dout = ctx.Input("Out@GRAD"), dw = ctx.Output("W@GRAD");
  const int64_t padding = ctx.Attr<int64_t>("padding_idx");
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader id(ws, ids);
    const int64_t rows = dw.shape[0];
    CountRows(id, ids.numel, rows, padding, name);
    if (dw.numel == 0) return;
    ScatterAddRows(
        ws.Data<const T>(dout), ids.numel, ws.Data<T>(dw), rows, dw.shape[1],
        [&](int64_t i) { return padding != kNoPadding && id[i] == padding ? int64_t{-1} : id[i]; });
  };
}

void InferLookupGrad(InferContext& ctx) {
  VarMeta w = ctx.Input("W");
  ctx.Require("C1", w.shape.rank() == 2, w.shape.rank());
  RequireIndexType(ctx, "C2", "Ids");
  const Shape& dout = ctx.InputShape("Out@GRAD");
  const int64_t wanted = MulDims(NumelOf(ctx.InputShape("Ids")), w.shape[1]);
  ctx.Require("C3", InferContext::Matches(NumelOf(dout), wanted), NumelOf(dout), wanted);
  ctx.Require("C4", ctx.InputDType("Out@GRAD") == w.dtype, ctx.InputDType("Out@GRAD"), w.dtype);
  if (ctx.Attr<bool>("is_sparse")) w.type = VarType::kSelectedRows;
  ctx.SetOutput("W@GRAD", w);
}

// The look-up is linear in W.
void LookupGradGradient(GradientContext& g) {
  const std::string type =
      g.op().type() == "lookup_table_grad" ? "lookup_table" : "lookup_table_v2";
  g.Set("Out@GRAD", g.Make(type, {{"W", {g.OutputGrad("W@GRAD")}}, {"Ids", {g.Input("Ids")}}},
                           g.ForwardAttrs({"padding_idx", "is_sparse"})));
}

void DeclareAttrs(OpDef& def) {
  def.Attr<bool>("is_sparse", false,
                 "the gradient of W is selected rows: one row for each id, in their order")
      .Attr<bool>("is_distributed", false, "ignored")
      .Attr<int64_t>("padding_idx", kNoPadding, "the id whose row counts as zeros; -1: none");
  if (def.type().rfind("lookup_table_v2", 0) != 0) def.Attr<bool>("is_test", false, "ignored");
}

void AddPair(OpRegistry& ops, const std::string& type, const char* id, const char* constraint) {
  ops.Add(OpDef(type)
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = for every id, the row of W with that number; for padding_idx, zeros "
                   "without a gradient. Another id outside of [0, rows) is an error.")
              .Constraint("C1", "W must be a matrix")
              .Constraint("C2", "Ids must be int32 or int64")
              .Constraint(id, constraint)
              .Input("W", "matrix of any dtype, a row for each id")
              .Input("Ids", "int32 or int64 tensor of ids")
              .Output("Out", "the rows")
              .Apply(DeclareAttrs)
              .NoGradientTo({"Ids"})
              .LodFrom("Ids")
              .Rows(RowRule::kEach)
              .Tables({"W"})
              .Infer(InferLookup)
              .GradientOp({"W", "Ids"})
              .Strings()
              .Reference(Lookup));
  ops.Add(OpDef(type + "_grad")
              .Doc("Gradient of " + type +
                   ": W@GRAD = sum of the rows of Out@GRAD of each id; with is_sparse, selected "
                   "rows with the rows of Out@GRAD under their ids (duplicates are not merged, "
                   "rows of padding_idx are left out).")
              .Constraint("C1", "W must be a matrix")
              .Constraint("C2", "Ids must be int32 or int64")
              .Constraint("C3", "Out@GRAD must have a row for each of Ids")
              .Constraint("C4", "Out@GRAD must have W's dtype")
              .Input("W", "only its shape is used")
              .Input("Ids", "int32 or int64 tensor of ids")
              .Input("Out@GRAD", "gradient of Out")
              .Output("W@GRAD", "gradient of W")
              .Apply(DeclareAttrs)
              .NoGradientTo({"W", "Ids"})
              .KernelTypeFrom("Out@GRAD")
              .Infer(InferLookupGrad)
              .Gradient(LookupGradGradient)
              .Reference(LookupGrad<float>, LookupGrad<double>, LookupGrad<float16>,
                         LookupGrad<bfloat16>));
}

void Register(OpRegistry& ops) {
  AddPair(ops, "lookup_table", "C4", "the last dimension of Ids must be 1");
  AddPair(ops, "lookup_table_v2", "C3", "the rank of Out must be at most 9");
}

}  // namespace coracle::lookup_table_op
