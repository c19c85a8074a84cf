// partial_concat and partial_sum: some columns of each input, joined or summed.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <limits>

namespace coracle::partial_concat_op {

bool Joins(const OpDesc& op) { return op.type() == "partial_concat"; }

// The columns [start, start + count).
struct Columns {
  int64_t start, count;
};

template <class Context>
Columns ColumnsOf(const Context& ctx, int64_t columns) {
  const int64_t start = ctx.template Attr<int32_t>("start_index");
  const int64_t length = ctx.template Attr<int32_t>("length");
  const int64_t first = start < 0 ? start + columns : start;
  return {first, length < 0 ? columns - first : length};
}

void InferPartial(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() == 2, out.shape);
  const auto inputs = static_cast<int64_t>(ctx.NumInputs("X"));
  for (size_t k = 1; k < ctx.NumInputs("X"); ++k) {
    const VarMeta& x = ctx.Input("X", k);
    ctx.Require("C2", x.dtype == out.dtype && x.shape.CompatibleWith(out.shape), x, out);
    for (int i = 0; i < 2; ++i) out.shape[i] = std::max(out.shape[i], x.shape[i]);
  }
  if (out.shape[1] >= 0) {
    const Columns c = ColumnsOf(ctx, out.shape[1]);
    const bool inside = c.start >= 0 && c.count >= 0 && c.start + c.count <= out.shape[1];
    ctx.Require("C3", inside, "first column", c.start, "length", c.count, "columns", out.shape[1]);
    out.shape[1] = Joins(ctx.op()) ? MulDims(c.count, inputs) : c.count;
  }
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Partial(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  const int64_t rows = xs[0].shape[0], columns = xs[0].shape[1], width = out.shape[1];
  const Columns c = ColumnsOf(ctx, columns);
  const bool joins = Joins(ctx.op());
  return [=](Workspace& ws) {
    T* to = ws.Data<T>(out);
    if (out.numel == 0) return;
    if (!joins) std::fill_n(to, out.numel, T(0));
    for (size_t k = 0; k < xs.size(); ++k) {
      const T* from = ws.Data<const T>(xs[k]) + c.start;
      for (int64_t i = 0; i < rows; ++i, from += columns) {
        T* row = to + i * width + (joins ? static_cast<int64_t>(k) * c.count : 0);
        for (int64_t j = 0; j < c.count; ++j) row[j] = joins ? from[j] : WrapAdd(row[j], from[j]);
      }
    }
  };
}

// X@GRAD[k] is zero except for its columns, which are Out@GRAD or its k-th part: the gradient of
// a slice.
void PartialGradient(GradientContext& g) {
  const auto start = g.Attr<int32_t>("start_index"), length = g.Attr<int32_t>("length");
  int64_t end = length < 0 ? std::numeric_limits<int32_t>::max() : int64_t{start} + length;
  if (start < 0 && end == 0) end = std::numeric_limits<int32_t>::max();
  end = std::min<int64_t>(end, std::numeric_limits<int32_t>::max());
  const auto count = static_cast<int32_t>(g.Inputs("X").size());
  std::vector<std::string> parts(g.Inputs("X").size(), g.OutputGrad("Out"));
  if (Joins(g.op()) && count > 1) {
    for (std::string& part : parts) part = g.Temp(g.Input("X") + "@PART");
    g.Append("split", {{"X", {g.OutputGrad("Out")}}}, {{"Out", parts}},
             {{"axis", int32_t{1}}, {"num", count}});
  }
  using Ints = std::vector<int32_t>;
  for (size_t k = 0; k < parts.size(); ++k) {
    g.Append(
        "slice_grad", {{"Input", {g.Input("X", k)}}, {"Out@GRAD", {parts[k]}}},
        {{"Input@GRAD", {g.InputGrad("X", k)}}},
        {{"axes", Ints{1}}, {"starts", Ints{start}}, {"ends", Ints{static_cast<int32_t>(end)}}});
  }
}

void AddPartial(OpRegistry& ops, const std::string& type, const std::string& doc) {
  ops.Add(OpDef(type)
              .Doc("Out = columns start_index .. start_index + length of each input, " + doc)
              .Constraint("C1", "X must be matrices")
              .Constraint("C2", "the inputs must have one shape and dtype")
              .Constraint("C3", "the columns must lie inside of X")
              .VariadicInput("X", "matrices of numbers")
              .Output("Out", "a matrix with X's rows")
              .Attr<int32_t>("start_index", 0, "first column; counted from the end if negative")
              .Attr<int32_t>("length", -1, "number of columns; negative: all from there")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferPartial)
              .Gradient(PartialGradient)
              .Reference(Partial<float>, Partial<double>, Partial<int32_t>, Partial<int64_t>));
}

void Register(OpRegistry& ops) {
  AddPartial(ops, "partial_concat", "side by side.");
  AddPartial(ops, "partial_sum", "added up.");
}

}  // namespace coracle::partial_concat_op
