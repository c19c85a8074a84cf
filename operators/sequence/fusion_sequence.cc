// Sequence ops fused with the ops that follow them, as used in inference programs. The pooling ops
// have kernels: no op makes their LoD.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace coracle::fusion_sequence_op {

// Whether the shape is a vector of n elements, possibly as a row.
bool IsRowOf(const Shape& shape, int64_t n) {
  return shape.CompatibleWith(Shape{n}) || shape.CompatibleWith(Shape{1, n});
}

// --- fusion_seqconv_eltadd_relu ---

void InferConv(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const VarMeta &filter = ctx.Input("Filter"), &bias = ctx.Input("Bias");
  ctx.Require("C1", x.shape.rank() == 2, "X", x);
  const int64_t length = ctx.Attr<int32_t>("contextLength");
  ctx.Require("C2", length >= 1 && ctx.Attr<int32_t>("contextStride") == 1, "contextLength", length,
              "contextStride", ctx.Attr<int32_t>("contextStride"));
  const int64_t columns = MulDims(length, x.shape[1]);
  ctx.Require("C3",
              filter.dtype == x.dtype && filter.shape.rank() == 2 &&
                  InferContext::Matches(filter.shape[0], columns) && bias.dtype == x.dtype &&
                  IsRowOf(bias.shape, filter.shape[1]),
              "X", x, "Filter", filter, "Bias", bias);
  const auto sizes = ctx.LevelSizes("X");
  if (sizes) ctx.Require("C4", sizes->size() == 1, "levels", sizes->size());
  ctx.SetOutput("ColMat", x.dtype, {0, columns});
  x.shape[1] = filter.shape[1];
  ctx.SetOutput("Out", x);
}

void ExpandConv(ExpandContext& ctx) {
  const Variable sums =
      ctx.Make("sequence_conv", ctx.Inputs({"X", "Filter"}), ctx.AttrsOf("sequence_conv"));
  const Variable biased =
      ctx.Make("elementwise_add", {{"X", {sums.name()}}, {"Y", {ctx.In("Bias").name()}}});
  ctx.Into("Out", "relu", {{"X", {biased.name()}}});
}

// --- fusion_seqexpand_concat_fc ---

void InferExpand(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const VarMeta& weight = ctx.Input("FCWeight");
  ctx.Require("C1", ctx.NumInputs("X") >= 2, "inputs", ctx.NumInputs("X"));
  int64_t columns = 0;
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& part = ctx.Input("X", i);
    ctx.Require("C2",
                part.dtype == x.dtype && part.shape.rank() == 2 &&
                    (i < 2 || InferContext::Matches(part.shape[0], ctx.InputShape("X", 1)[0])),
                "X", part);
    columns = AddDims(columns, part.shape[1]);
  }
  ctx.Require("C3",
              weight.dtype == x.dtype && weight.shape.rank() == 2 &&
                  InferContext::Matches(weight.shape[0], columns),
              "FCWeight", weight, "columns", columns);
  if (ctx.HasInput("FCBias"))
    ctx.Require(
        "C3",
        ctx.InputDType("FCBias") == x.dtype && IsRowOf(ctx.InputShape("FCBias"), weight.shape[1]),
        "FCBias", ctx.Input("FCBias"));
  const auto sizes = ctx.LevelSizes("X");
  if (sizes) {
    ctx.Require("C4", sizes->size() == 1, "levels", sizes->size());
    const int64_t rows = ctx.InputShape("X", 1)[0];
    ctx.Require("C5", InferContext::Matches(sizes->back(), rows), "sequences", sizes->back(),
                "rows", rows);
  }
  x.shape[1] = weight.shape[1];
  ctx.SetOutput("Out", x);
  ctx.SetOutput("FCOut", x.dtype, {0, weight.shape[1]});
}

// The rows of FCWeight from `begin` on that belong to an input with so many columns.
Variable WeightRows(const ExpandContext& ctx, int64_t begin, int64_t count) {
  if (count < 0) ThrowInvalid("the number of columns of every X must be known");
  if (count > std::numeric_limits<int32_t>::max() - begin)
    ThrowInvalid("all X together must have fewer than 2^31 columns");
  using Ints = std::vector<int32_t>;
  return ctx.Make("slice", {{"Input", {ctx.In("FCWeight").name()}}},
                  {{"axes", Ints{0}},
                   {"starts", Ints{static_cast<int32_t>(begin)}},
                   {"ends", Ints{static_cast<int32_t>(begin + count)}}});
}

// The summand from the other inputs is computed once for each sequence.
void ExpandExpand(ExpandContext& ctx) {
  std::vector<Variable> products;
  int64_t row = 0;
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const int64_t columns = ctx.InShape("X", i)[1];
    const Variable weight = WeightRows(ctx, row, columns);
    products.push_back(ctx.Make("mul", {{"X", {ctx.In("X", i).name()}}, {"Y", {weight.name()}}}));
    row += columns;
  }
  Variable shared = products[1];
  for (size_t i = 2; i < products.size(); ++i) shared = shared + products[i];
  if (ctx.HasInput("FCBias")) shared = shared + ctx.In("FCBias");
  const Variable repeated =
      ctx.Make("sequence_expand_as", {{"X", {shared.name()}}, {"Y", {ctx.In("X").name()}}});
  const auto activation = ctx.Attr<std::string>("fc_activation");
  if (activation == "identity") {
    ctx.Into("Out", "elementwise_add", {{"X", {products[0].name()}}, {"Y", {repeated.name()}}});
  } else {
    ctx.Into("Out", activation, {{"X", {(products[0] + repeated).name()}}});
  }
}

// --- fusion_seqpool_concat, fusion_seqpool_cvm_concat ---

bool HasCvm(const std::string& type) { return type == "fusion_seqpool_cvm_concat"; }

void InferPool(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", ctx.Attr<int32_t>("axis") == 1, "axis", ctx.Attr<int32_t>("axis"));
  const bool cvm = HasCvm(ctx.op().type());
  if (cvm) ctx.Require("C5", ctx.Attr<bool>("use_cvm"), "use_cvm", false);
  int64_t columns = 0, count = -1;
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& x = ctx.Input("X", i);
    const bool wide = !cvm || x.shape.rank() != 2 || x.shape[1] < 0 || x.shape[1] >= 2;
    ctx.Require("C2", x.dtype == out.dtype && x.shape.rank() == 2 && wide, "X", x);
    columns = AddDims(columns, x.shape[1]);
    const auto sizes = ctx.LevelSizes("X", i);
    if (!sizes) continue;
    ctx.Require("C3", sizes->size() == 1, "levels", sizes->size());
    ctx.Require("C4", i == 0 || sizes->back() == count, "sequences", sizes->back(), "of the first",
                count);
    count = sizes->back();
  }
  out.shape = {count, columns};
  out.lod_level = 1;
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Pool(const PrepareContext& ctx) {
  const std::vector<TensorArg> x = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  std::vector<SequencesArg> sequences;
  for (size_t i = 0; i < x.size(); ++i) sequences.emplace_back(ctx, "X", "C3", 1, i);
  const std::string type = ctx.Attr<std::string>("pooltype");
  const bool cvm = HasCvm(ctx.op().type());
  const int64_t count = out.shape[0], columns = out.shape[1];
  return [=](Workspace& ws) {
    LoD& lod = ws.OutputLod(out);
    lod.assign(1, std::vector<uint64_t>(static_cast<size_t>(count) + 1));
    std::iota(lod[0].begin(), lod[0].end(), uint64_t{0});
    T* to = ws.Data<T>(out);
    std::fill_n(to, out.numel, T(0));
    for (size_t j = 0; j < x.size(); ++j) {
      const Sequences s = sequences[j](ws);
      const T* from = ws.Data<const T>(x[j]);
      const int64_t width = x[j].shape[1];
      if (width == 0) continue;
      ParallelFor(count, 1 + 16384 / (1 + width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          T* y = to + i * columns;
          for (int64_t t = s.begin(i); t < s.end(i); ++t) {
            for (int64_t k = 0; k < width; ++k) y[k] += from[t * width + k];
          }
          const T n = static_cast<T>(std::max<int64_t>(1, s.length(i)));
          const T divisor = type == "AVERAGE" ? n : type == "SQRT" ? std::sqrt(n) : T(1);
          for (int64_t k = 0; k < width; ++k) y[k] /= divisor;
          if (cvm) {
            y[0] = std::log(y[0] + 1);
            y[1] = std::log(y[1] + 1) - y[0];
          }
        }
      });
      if (to) to += width;  // null for an empty batch
    }
  };
}

// --- registration ---

void AddPool(OpRegistry& ops, const std::string& type) {
  const bool cvm = HasCvm(type);
  OpDef def(type);
  def.Doc(std::string("Out = for each sequence the sums, averages or sums divided by the square "
                      "root of the length of its rows in every X, side by side; zeros for a "
                      "sequence without rows.") +
          (cvm ? " In the part y of each X, y0 becomes log(y0 + 1) and y1 becomes log(y1 + 1) - "
                 "log(y0 + 1)."
               : ""))
      .Constraint("C1", "axis must be 1")
      .Constraint("C2", cvm ? "X must be matrices of one dtype, of two columns or more"
                            : "X must be matrices of one dtype")
      .Constraint("C3", "every X must have LoD of one level")
      .Constraint("C4", "all X must have the same number of sequences");
  if (cvm) def.Constraint("C5", "use_cvm must be true");
  def.VariadicInput("X", "floating-point tensors [rows, W] with LoD");
  if (cvm) def.Input("CVM", "not read");
  def.Output("Out", "tensor with a row for each sequence; each row is a sequence")
      .Attr<std::string>("pooltype", "SUM", "the function to compute")
      .OneOf({"SUM", "AVERAGE", "SQRT"})
      .Attr<int32_t>("axis", 1, "1");
  if (cvm) def.Attr<bool>("use_cvm", true, "true");
  def.Rows(RowRule::kEach)
      .MakesLod()
      .NoGradient("it is made for inference; train with the ops that it joins")
      .Infer(InferPool)
      .Reference(Pool<float>, Pool<double>);
  ops.Add(std::move(def));
}

void AddConv(OpRegistry& ops) {
  OpDef def("fusion_seqconv_eltadd_relu");
  def.Doc("Out = max(sequence_conv(X, Filter) + Bias, 0), rows outside of a sequence being zero.")
      .Constraint("C1", "X must be a matrix")
      .Constraint("C2", "contextLength must be positive and contextStride 1")
      .Constraint("C3",
                  "Filter must be [contextLength * columns of X, M] and Bias [M] or [1, M], of X's "
                  "dtype")
      .Constraint("C4", "X must have LoD of one level")
      .Input("X", "floating-point tensor [rows, D] with LoD")
      .Input("Filter", "tensor [contextLength * D, M]")
      .Input("Bias", "tensor [M] or [1, M]")
      .Output("Out", "tensor [rows, M]")
      .IntermediateOutput("ColMat", "not written")
      .Attr<int32_t>("contextLength", "number of rows of a context")
      .Attr<int32_t>("contextStart", 0, "first row of a context, relative to t")
      .Attr<int32_t>("contextStride", 1, "1")
      .Rows(RowRule::kEach)
      .Tables({"Filter", "Bias"})
      .Infer(InferConv)
      .Expands({"sequence_conv", "elementwise_add", "relu"}, ExpandConv);
  ops.Add(std::move(def));
}

void AddExpand(OpRegistry& ops) {
  OpDef def("fusion_seqexpand_concat_fc");
  def.Doc(
         "Out = act([X0, X1, ...] FCWeight + FCBias), where each row of X0 is joined with the row "
         "of X1, ... for its sequence.")
      .Constraint("C1", "X must be two or more tensors")
      .Constraint(
          "C2",
          "X must be matrices of one dtype, all except the first with the same number of rows")
      .Constraint("C3", "FCWeight must be [columns of all X, D] and FCBias [D] or [1, D]")
      .Constraint("C4", "the first X must have LoD of one level")
      .Constraint("C5", "the other X must have a row for each sequence of the first")
      .VariadicInput("X",
                     "a floating-point tensor [rows, M] with LoD, then tensors with a row for each "
                     "of its sequences")
      .Input("FCWeight", "tensor [columns of all X, D]")
      .OptionalInput("FCBias", "tensor [D] or [1, D]")
      .Output("Out", "tensor [rows, D]")
      .IntermediateOutput("FCOut", "not written")
      .Attr<std::string>("fc_activation", "identity", "act")
      .OneOf({"identity", "sigmoid", "tanh", "relu"})
      .Rows(RowRule::kEach)
      .Tables({"FCWeight", "FCBias"})
      .Infer(InferExpand)
      .Expands({"slice", "mul", "elementwise_add", "sequence_expand_as", "sigmoid", "tanh", "relu"},
               ExpandExpand);
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddConv(ops);
  AddExpand(ops);
  AddPool(ops, "fusion_seqpool_concat");
  AddPool(ops, "fusion_seqpool_cvm_concat");
}

}  // namespace coracle::fusion_sequence_op
