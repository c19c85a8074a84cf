#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/norm/norm_def.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace coracle::layer_norm_op {

// --- shape rules ---

// Product of dims [begin, end); -1 if one is unknown or the product exceeds 2^63.
int64_t Collapse(const Shape& shape, int begin, int end) {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) {
    if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i], &product)) return -1;
  }
  return product;
}

struct RowCounts {
  int64_t rows = -1, columns = -1;
};

RowCounts CheckRows(const InferContext& ctx, std::initializer_list<const char*> column_slots,
                    std::initializer_list<const char*> row_slots) {
  const Shape& x = ctx.InputShape("X");
  const int axis = ctx.Attr<int32_t>("begin_norm_axis");
  ctx.Require("C1", axis > 0 && axis < x.rank(), axis, x.rank());
  const RowCounts counts{Collapse(x, 0, axis), Collapse(x, axis, x.rank())};
  for (const char* slot : column_slots) RequireNormVector(ctx, "C2", slot, counts.columns);
  for (const char* slot : row_slots) RequireNormVector(ctx, "C5", slot, counts.rows);
  for (const char* slot : {"Y@GRAD", "X@GRAD@GRAD"}) RequireLikeX(ctx, "C4", slot);
  return counts;
}

DType ScaleDType(const InferContext& ctx, const char* slot) {
  return ctx.InputDType(ctx.HasInput(slot) ? slot : "X");
}

void InferLayerNorm(InferContext& ctx) {
  const RowCounts counts = CheckRows(ctx, {"Scale", "Bias"}, {});
  ctx.SetOutput("Y", ctx.Input("X"));
  ctx.SetOutput("Mean", StatisticsDType(ctx), {counts.rows});
  ctx.SetOutput("Variance", StatisticsDType(ctx), {counts.rows});
}

void InferLayerNormGrad(InferContext& ctx) {
  const RowCounts counts = CheckRows(ctx, {"Scale", "Bias"}, {"Mean", "Variance"});
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Scale@GRAD", ScaleDType(ctx, "Scale"), {counts.columns});
  ctx.SetOutput("Bias@GRAD", ScaleDType(ctx, "Bias"), {counts.columns});
}

void InferLayerNormGradGrad(InferContext& ctx) {
  const RowCounts counts =
      CheckRows(ctx, {"Scale", "Scale@GRAD@GRAD", "Bias@GRAD@GRAD"}, {"Mean", "Variance"});
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Scale@GRAD", ScaleDType(ctx, "Scale"), {counts.columns});
  ctx.SetOutput("Y@GRAD@GRAD", ctx.Input("X"));
}

// --- kernels ---

NormView ViewOf(const PrepareContext& ctx, const Shape& x) {
  const int axis = ctx.Attr<int32_t>("begin_norm_axis");
  return RowView(x.Product(0, axis), x.Product(axis, x.rank()));
}

// Mean and 1 / sqrt(variance + epsilon) of every row, in doubles, from the slots Mean and Variance
// of a gradient op if present, else computed.
template <class T>
struct Statistics {
  TensorArg x, mean, variance, stats;
  NormView view;
  double epsilon;

  explicit Statistics(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        mean(ctx.Input("Mean")),
        variance(ctx.Input("Variance")),
        view(ViewOf(ctx, x.shape)),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))) {
    stats = ctx.Scratch(DType::kFloat64, {3 * view.groups});
  }

  // Returns mean, inv, variance.
  double* Read(Workspace& ws) const {
    double* s = ws.Data<double>(stats);
    const int64_t n = view.groups;
    if (mean && variance) {
      for (int64_t r = 0; r < n; ++r) {
        s[r] = static_cast<double>(ws.Data<const T>(mean)[r]);
        s[2 * n + r] =
            HeldVariance(view, ws.Data<const T>(x), r, ws.Data<const T>(variance)[r], epsilon);
      }
    } else {
      NormMoments(view, ws.Data<const T>(x), s, s + 2 * n);
    }
    for (int64_t r = 0; r < n; ++r) s[n + r] = 1 / std::sqrt(s[2 * n + r] + epsilon);
    return s;
  }
};

template <class T>
KernelOf<T> LayerNormReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const TensorArg scale = ctx.Input("Scale"), bias = ctx.Input("Bias"), y = ctx.Output("Y");
  const TensorArg mean = ctx.Output("Mean"), variance = ctx.Output("Variance");
  return [=](Workspace& ws) {
    const int64_t n = stats.view.groups;
    const double* s = stats.Read(ws);
    NormApply(stats.view, ws.Data<const T>(stats.x), s, s + n, DataOrNull<const T>(ws, scale),
              DataOrNull<const T>(ws, bias), ws.Data<T>(y));
    for (int64_t r = 0; r < n; ++r) {
      if (mean) ws.Data<T>(mean)[r] = static_cast<T>(s[r]);
      if (variance) ws.Data<T>(variance)[r] = static_cast<T>(s[2 * n + r]);
    }
  };
}

Kernel LayerNormFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  if (x.dtype != DType::kFloat32 || x.numel == 0) return {};
  const NormView v = ViewOf(ctx, x.shape);
  const TensorArg scale = ctx.Input("Scale"), bias = ctx.Input("Bias"), y = ctx.Output("Y");
  TensorArg mean = ctx.Output("Mean"), variance = ctx.Output("Variance");
  if (!mean) mean = ctx.Scratch(DType::kFloat32, {v.groups});
  if (!variance) variance = ctx.Scratch(DType::kFloat32, {v.groups});
  const float epsilon = ctx.Attr<float>("epsilon");
  return [=](Workspace& ws) {
    RowNorm(v.groups, v.size, ws.Data<const float>(x), DataOrNull<const float>(ws, scale),
            DataOrNull<const float>(ws, bias), epsilon, ws.Data<float>(y), ws.Data<float>(mean),
            ws.Data<float>(variance));
  };
}

template <class T>
KernelOf<T> LayerNormGradReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const NormGradSlots slots(ctx);
  return [=](Workspace& ws) {
    const double* s = stats.Read(ws);
    NormGrad(stats.view, slots.Args<T>(ws, s, s + stats.view.groups));
  };
}

Kernel LayerNormGradFast(const PrepareContext& ctx) {
  const Statistics<float> stats(ctx);
  const NormView v = stats.view;
  if (stats.x.dtype != DType::kFloat32 || stats.x.numel == 0) return {};
  // The terms of X@GRAD cancel: the reference adds doubles.
  if (v.size <= 2) return {};
  const TensorArg scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  TensorArg dscale = ctx.Output("Scale@GRAD"), dbias = ctx.Output("Bias@GRAD");
  const bool sums = dscale || dbias;
  if (sums && !dscale) dscale = ctx.Scratch(DType::kFloat32, {v.size});
  if (sums && !dbias) dbias = ctx.Scratch(DType::kFloat32, {v.size});
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {sums ? RowScratch(v.groups, v.size) : 0});
  return [=](Workspace& ws) {
    const double* s = stats.Read(ws);
    RowNormGrad(v.groups, v.size, ws.Data<const float>(stats.x), DataOrNull<const float>(ws, scale),
                ws.Data<const float>(dy), s, s + v.groups, ws.Data<float>(scratch),
                DataOrNull<float>(ws, dx), DataOrNull<float>(ws, dscale),
                DataOrNull<float>(ws, dbias));
  };
}

template <class T>
KernelOf<T> LayerNormGradGradReference(const PrepareContext& ctx) {
  const Statistics<T> stats(ctx);
  const TensorArg scale = ctx.Input("Scale"), dy = ctx.Input("Y@GRAD");
  const TensorArg ddx = ctx.Input("X@GRAD@GRAD"), ddscale = ctx.Input("Scale@GRAD@GRAD");
  const TensorArg ddbias = ctx.Input("Bias@GRAD@GRAD");
  const TensorArg x_out = ctx.Output("X@GRAD"), scale_out = ctx.Output("Scale@GRAD");
  const TensorArg dy_out = ctx.Output("Y@GRAD@GRAD");
  return [=](Workspace& ws) {
    const double* s = stats.Read(ws);
    NormGradGradArgs<T> a;
    a.x = ws.Data<const T>(stats.x);
    a.scale = DataOrNull<const T>(ws, scale);
    a.dy = ws.Data<const T>(dy);
    a.ddx = DataOrNull<const T>(ws, ddx);
    a.ddscale = DataOrNull<const T>(ws, ddscale);
    a.ddbias = DataOrNull<const T>(ws, ddbias);
    a.mean = s;
    a.inv = s + stats.view.groups;
    a.x_out = DataOrNull<T>(ws, x_out);
    a.scale_out = DataOrNull<T>(ws, scale_out);
    a.dy_out = DataOrNull<T>(ws, dy_out);
    NormGradGrad(stats.view, a);
  };
}

// --- gradient rules ---

AttrList NormAttrs(const GradientContext& g) {
  return g.ForwardAttrs({"epsilon", "begin_norm_axis"});
}

void LayerNormGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "Scale", "Bias"}), outputs;
  for (const Slot& slot : inputs)
    outputs.push_back({GradName(slot.name), {g.InputGrad(slot.name)}});
  if (g.HasOutput("Mean") && g.HasOutput("Variance")) {
    inputs.push_back({"Mean", {g.Output("Mean")}});
    inputs.push_back({"Variance", {g.Output("Variance")}});
  }
  inputs.push_back({"Y@GRAD", {g.OutputGrad("Y")}});
  g.Append("layer_norm_grad", inputs, outputs, NormAttrs(g));
}

void LayerNormGradGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "Scale", "Mean", "Variance", "Y@GRAD"});
  for (const char* slot : {"X@GRAD", "Scale@GRAD", "Bias@GRAD"}) {
    if (g.HasOutputGrad(slot)) inputs.push_back({GradName(slot), {g.OutputGrad(slot)}});
  }
  SlotList outputs = {{"X@GRAD", {g.InputGrad("X")}}, {"Y@GRAD@GRAD", {g.InputGrad("Y@GRAD")}}};
  if (g.HasInput("Scale")) outputs.push_back({"Scale@GRAD", {g.InputGrad("Scale")}});
  g.Append("layer_norm_grad_grad", inputs, outputs, NormAttrs(g));
}

// --- registration ---

void DeclareNormAttrs(OpDef& def) {
  def.Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0.0, std::nullopt)
      .Attr<int32_t>("begin_norm_axis", 1, "first of the dims that make up a row")
      .Attr<bool>("is_test", false, "accepted, no effect");
}

OpDef ForwardDef() {
  return OpDef("layer_norm")
      .Doc(
          "Y = Scale (X - mean) / sqrt(variance + epsilon) + Bias for each row, mean and biased "
          "variance over the dims from begin_norm_axis on.")
      .Constraint("C1", "begin_norm_axis must lie in (0, rank of X)")
      .Constraint("C2", "Scale and Bias must have shape [elements of a row]")
      .Constraint("C3",
                  "all inputs must have X's dtype; scale, bias and statistics may be float32 with "
                  "a 16-bit X")
      .Input("X", "floating-point tensor of rank 2 or more")
      .OptionalInput("Scale", "[elements of a row]; 1 when absent")
      .OptionalInput("Bias", "[elements of a row]; 0 when absent")
      .Output("Y", "of X's shape")
      .IntermediateOutput("Mean", "[number of rows]")
      .IntermediateOutput("Variance", "[number of rows], biased")
      .Apply(DeclareNormAttrs)
      .Float32Slots({"Scale", "Bias", "Mean", "Variance"})
      .Inplace("X", "Y")
      .Rows(RowRule::kEach)
      .WorksAlong("begin_norm_axis", AxesAttr::kFrom)
      .Tables({"Bias"})
      .Infer(InferLayerNorm)
      .Gradient(LayerNormGradient)
      .Reference(LayerNormReference<float>, LayerNormReference<double>)
      .Fast(LayerNormFast);
}

void DeclareGradInputs(OpDef& def) {
  def.Input("X", "layer_norm's X")
      .OptionalInput("Scale", "layer_norm's Scale")
      .OptionalInput("Mean", "Mean of layer_norm; recomputed if absent")
      .OptionalInput("Variance", "layer_norm's Variance")
      .Input("Y@GRAD", "gradient of Y");
}

OpDef GradDef() {
  return OpDef("layer_norm_grad")
      .Doc(
          "Gradient of layer_norm. With xh the normalised X, g = Scale Y@GRAD and means over the "
          "row: X@GRAD = inv (g - mean(g) - xh mean(g xh)), Scale@GRAD = sum of Y@GRAD xh over "
          "rows, Bias@GRAD = sum of Y@GRAD.")
      .ConstraintsOf("layer_norm", {"C1", "C2", "C3"})
      .Constraint("C4", "Y@GRAD must have X's shape")
      .Constraint("C5", "Mean and Variance must have shape [number of rows]")
      .Apply(DeclareGradInputs)
      .OptionalInput("Bias", "Bias of layer_norm; only its shape is used")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .Apply(DeclareNormAttrs)
      .NoGradientTo({"Mean", "Variance", "Bias"})
      .Inplace("Y@GRAD", "X@GRAD")
      .Inplace("X", "X@GRAD")
      .Infer(InferLayerNormGrad)
      .Gradient(LayerNormGradGradient)
      .Reference(LayerNormGradReference<float>, LayerNormGradReference<double>)
      .Fast(LayerNormGradFast);
}

OpDef GradGradDef() {
  return OpDef("layer_norm_grad_grad")
      .Doc("Gradient of layer_norm_grad with respect to X, Scale and Y@GRAD.")
      .ConstraintsOf("layer_norm", {"C1", "C2", "C3"})
      .Constraint("C4", "Y@GRAD and X@GRAD@GRAD must have X's shape")
      .ConstraintsOf("layer_norm_grad", {"C5"})
      .Apply(DeclareGradInputs)
      .Apply(DeclareGradGradSlots, "layer_norm")
      .Apply(DeclareNormAttrs)
      .Infer(InferLayerNormGradGrad)
      .Reference(LayerNormGradGradReference<float>, LayerNormGradGradReference<double>);
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef());
  ops.Add(GradDef());
  ops.Add(GradGradDef());
}

}  // namespace coracle::layer_norm_op
