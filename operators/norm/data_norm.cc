#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/same_type.h>

#include <cmath>
#include <utility>

namespace coracle::data_norm_op {

// Means and Scales may also hold a row for each row of X.
bool OfEachRow(std::string_view slot, const Shape& given, const Shape& x) {
  return (slot == "Means" || slot == "Scales") && given.rank() == 2 &&
         InferContext::Matches(given[0], x[0]);
}

// Returns the number of columns; -1 if unknown.
int64_t CheckInputs(const InferContext& ctx, std::initializer_list<const char*> vectors) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 2, x);
  int64_t columns = x[1];
  for (const char* slot : vectors) {
    if (!ctx.HasInput(slot)) continue;
    const VarMeta& given = ctx.Input(slot);
    const int rank = given.shape.rank();
    const bool vector = rank == 1 || OfEachRow(slot, given.shape, x);
    ctx.Require("C2",
                vector && InferContext::Matches(given.shape[rank - 1], columns) &&
                    given.dtype == ctx.InputDType("X"),
                slot, given, "columns", columns);
    if (columns < 0) columns = given.shape[rank - 1];
  }
  const int64_t slot_dim = ctx.Attr<int32_t>("slot_dim");
  ctx.Require("C3", slot_dim <= 0 || columns < 0 || columns % slot_dim == 0, "slot_dim", slot_dim,
              "columns", columns);
  const bool scaled = ctx.HasInput("scale_w") && ctx.HasInput("bias");
  ctx.Require("C4", scaled || !ctx.Attr<bool>("enable_scale_and_shift"), "both", scaled);
  return columns;
}

void InferDataNorm(InferContext& ctx) {
  const int64_t columns =
      CheckInputs(ctx, {"BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias"});
  ctx.SetOutput("Y", ctx.Input("X"));
  for (const char* slot : {"Means", "Scales"}) ctx.SetOutput(slot, ctx.InputDType("X"), {columns});
}

// Whether the block of column j in a row is absent: its first element is 0.
struct Slots {
  int64_t dim;

  template <class T>
  bool Skips(const T* row, int64_t j) const {
    return dim > 0 && std::abs(static_cast<double>(row[j / dim * dim])) < 1e-7;
  }
};

template <class T>
KernelOf<T> DataNorm(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), size = ctx.Input("BatchSize"), sum = ctx.Input("BatchSum");
  const TensorArg square = ctx.Input("BatchSquareSum"), y = ctx.Output("Y");
  const TensorArg means = ctx.Output("Means"), scales = ctx.Output("Scales");
  const bool scaled = ctx.Attr<bool>("enable_scale_and_shift");
  const TensorArg scale_w = scaled ? ctx.Input("scale_w") : TensorArg();
  const TensorArg bias = scaled ? ctx.Input("bias") : TensorArg();
  const Slots slots{ctx.Attr<int32_t>("slot_dim")};
  const int64_t rows = x.shape[0], columns = x.shape[1];
  return [=](Workspace& ws) {
    const T *n = ws.Data<const T>(size), *s = ws.Data<const T>(sum);
    const T* ss = ws.Data<const T>(square);
    const T* w = scaled ? ws.Data<const T>(scale_w) : nullptr;
    const T* b = scaled ? ws.Data<const T>(bias) : nullptr;
    T *mean = ws.Data<T>(means), *scale = ws.Data<T>(scales);
    for (int64_t j = 0; j < columns; ++j) {
      mean[j] = s[j] / n[j];
      scale[j] = static_cast<T>(std::sqrt(static_cast<double>(n[j]) / static_cast<double>(ss[j])));
    }
    for (int64_t i = 0; i < rows; ++i) {
      const T* in = ws.Data<const T>(x) + i * columns;
      T* out = ws.Data<T>(y) + i * columns;
      for (int64_t j = 0; j < columns; ++j) {
        double value = static_cast<double>(in[j]) - static_cast<double>(mean[j]);
        value *= static_cast<double>(scale[j]);
        if (scaled) value = value * static_cast<double>(w[j]) + static_cast<double>(b[j]);
        out[j] = slots.Skips(in, j) ? T(0) : static_cast<T>(value);
      }
    }
  };
}

void InferDataNormGrad(InferContext& ctx) {
  const int64_t columns = CheckInputs(ctx, {"Means", "Scales", "scale_w", "bias"});
  RequireSameElements(ctx, "C5", "Y@GRAD", "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  for (const char* slot : {"BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias"})
    ctx.SetOutput(GradName(slot), ctx.InputDType("X"), {columns});
}

// Sums over one column of the batch, over the rows in which the slot is present.
struct Column {
  double count = 0, sum = 0, squares = 0, along = 0, dy = 0;
};

template <class T>
KernelOf<T> DataNormGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dy = ctx.Input("Y@GRAD"), dx = ctx.Output("X@GRAD");
  const TensorArg means = ctx.Input("Means"), scales = ctx.Input("Scales");
  const bool scaled = ctx.Attr<bool>("enable_scale_and_shift");
  const TensorArg scale_w = scaled ? ctx.Input("scale_w") : TensorArg();
  const TensorArg outs[] = {ctx.Output("BatchSize@GRAD"), ctx.Output("BatchSum@GRAD"),
                            ctx.Output("BatchSquareSum@GRAD"), ctx.Output("scale_w@GRAD"),
                            ctx.Output("bias@GRAD")};
  const Slots slots{ctx.Attr<int32_t>("slot_dim")};
  const double epsilon = static_cast<double>(ctx.Attr<float>("epsilon"));
  const int64_t rows = x.shape[0], columns = x.shape[1];
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *g = ws.Data<const T>(dy);
    const T *mean = ws.Data<const T>(means), *scale = ws.Data<const T>(scales);
    const T* w = scaled ? ws.Data<const T>(scale_w) : nullptr;
    T* to = dx ? ws.Data<T>(dx) : nullptr;
    const int64_t mean_step = means.shape.rank() == 2 ? columns : 0;
    const int64_t scale_step = scales.shape.rank() == 2 ? columns : 0;
    for (int64_t j = 0; j < columns; ++j) {
      Column c;
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = i * columns + j;
        const bool skipped = slots.Skips(in + i * columns, j);
        const T m = mean[i * mean_step + j], s = scale[i * scale_step + j];
        const double factor = static_cast<double>(s) * (scaled ? static_cast<double>(w[j]) : 1);
        if (to) to[at] = skipped ? T(0) : static_cast<T>(static_cast<double>(g[at]) * factor);
        if (skipped) continue;
        const double off = static_cast<double>(in[at]) - static_cast<double>(m);
        const double d = static_cast<double>(g[at]);
        c.count += 1;
        c.sum += static_cast<double>(in[at]);
        c.squares += off * off;
        c.along += d * off * static_cast<double>(s);
        c.dy += d;
      }
      const bool means_of_slots = slots.dim > 0 && c.count > 0;
      const double part = means_of_slots ? 1 / c.count : 1;
      const double results[] = {means_of_slots ? 1 : c.count, c.sum * part,
                                c.squares * part + c.count * epsilon, c.along, c.dy};
      for (int k = 0; k < 5; ++k) {
        if (outs[k]) ws.Data<T>(outs[k])[j] = static_cast<T>(results[k]);
      }
    }
  };
}

void DataNormGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "scale_w", "bias"});
  for (const char* slot : {"Means", "Scales"}) inputs.push_back({slot, {g.Output(slot)}});
  inputs.push_back({"Y@GRAD", {g.OutputGrad("Y")}});
  SlotList outputs;
  for (const char* slot : {"X", "BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias"}) {
    if (g.HasInput(slot)) outputs.push_back({GradName(slot), {g.InputGrad(slot)}});
  }
  g.Append("data_norm_grad", std::move(inputs), std::move(outputs), g.ForwardAttrs("data_norm"));
}

void DeclareDataNorm(OpDef& def) {
  def.Input("X", "[n, c]")
      .OptionalInput("scale_w", "[c], a factor for each column under enable_scale_and_shift")
      .OptionalInput("bias", "[c], a summand for each column under enable_scale_and_shift")
      .Attr<float>("epsilon", 1e-4f, "added to the sum of squares for every row")
      .Attr<int32_t>("slot_dim", -1,
                     "if positive, the size of blocks of columns; a block whose first element is 0 "
                     "counts as absent")
      .Attr<float>("summary_decay_rate", 0.9999999f, "accepted for parameter servers, no effect")
      .Attr<bool>("enable_scale_and_shift", false, "apply scale_w and bias")
      .Attr<std::string>("data_layout", "NCHW", "accepted, no effect")
      .Attr<bool>("sync_stats", false, "accepted, no effect: there is one device");
}

// The gradients of the statistics do not depend on the gradient of Y.
RowEffect StatisticRows(const RowQuery& query) {
  if (!query.output.starts_with("Batch")) return RowRule::kEach;
  return query.spec.AttrOf<int32_t>(query.op, "slot_dim") > 0 ? RowRule::kMixes : RowRule::kSum;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("data_norm")
              .Doc("Y = (X - Means) Scales, with Means = BatchSum / BatchSize and Scales = "
                   "sqrt(BatchSize / BatchSquareSum) of each column, then times scale_w plus bias; "
                   "0 in an absent slot. The gradients of the three statistics are defined as the "
                   "statistics of the batch, to be added to them.")
              .Constraint("C1", "X must be a matrix")
              .Constraint("C2",
                          "statistics, scale_w and bias must be vectors with an element for "
                          "each column, of X's dtype")
              .Constraint("C3", "slot_dim must divide the number of columns")
              .Constraint("C4", "enable_scale_and_shift needs scale_w and bias")
              .Apply(DeclareDataNorm)
              .Input("BatchSize", "[c], number of rows so far")
              .Input("BatchSum", "[c], the sum of the rows")
              .Input("BatchSquareSum", "[c], the sum of squared distances from the mean")
              .Output("Y", "tensor of X's shape")
              .Output("Means", "[c]")
              .Output("Scales", "[c]")
              .Rows(RowRule::kEach)
              .Infer(InferDataNorm)
              .Gradient(DataNormGradient)
              .Reference(DataNorm<float>, DataNorm<double>));
  ops.Add(OpDef("data_norm_grad")
              .Doc("X@GRAD = Y@GRAD Scales (times scale_w), 0 in absent slots; scale_w@GRAD and "
                   "bias@GRAD are derivatives. For n rows BatchSize@GRAD = n, BatchSum@GRAD = the "
                   "sum of X, BatchSquareSum@GRAD = the sum of (X - Means)^2 + n epsilon; with "
                   "slots, n counts the rows in which the slot is present; BatchSize@GRAD is 1, "
                   "and the sums are divided by n (unless n is 0).")
              .ConstraintsOf("data_norm", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Y@GRAD must have X's shape and dtype")
              .Apply(DeclareDataNorm)
              .Input("Means", "Means of data_norm, [c], or a row for each row of X")
              .Input("Scales", "Scales of data_norm, [c], or a row for each row of X")
              .Input("Y@GRAD", "gradient of Y")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("BatchSize@GRAD", "[c]")
              .OptionalOutput("BatchSum@GRAD", "[c]")
              .OptionalOutput("BatchSquareSum@GRAD", "[c]")
              .OptionalOutput("scale_w@GRAD", "[c]")
              .OptionalOutput("bias@GRAD", "[c]")
              .NoGradient("the gradients of the statistics are not derivatives")
              .Rows(StatisticRows,
                    "each by itself; gradients of statistics are sums over the rows, "
                    "but with slot_dim means")
              .Infer(InferDataNormGrad)
              .Reference(DataNormGrad<float>, DataNormGrad<double>));
}

}  // namespace coracle::data_norm_op
