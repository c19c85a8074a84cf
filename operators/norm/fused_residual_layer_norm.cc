// layer_norm in training, fused with the preceding sum and with the dropout of one of its terms.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/norm/norm_def.h>
#include <coracle/operators/random/drop.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace coracle::fused_residual_layer_norm_op {

constexpr const char* kType = "fused_residual_layer_norm";

// --- shape rules ---

// Checks the axis and the vectors with an element for each element of a row; returns the number
// of rows.
int64_t CheckRows(const InferContext& ctx, const Shape& sum) {
  const int axis = ctx.Attr<int32_t>("begin_norm_axis");
  ctx.Require("C1", axis > 0 && axis < sum.rank(), "begin_norm_axis", axis, "rank", sum.rank());
  for (const char* slot : {"Scale", "Bias"})
    RequireNormVector(ctx, "C2", slot, ProductOfDims(sum, axis, sum.rank()));
  return ProductOfDims(sum, 0, axis);
}

void InferForward(InferContext& ctx) {
  RequireSameDType(ctx, "C3", "Y", "X");
  VarMeta sum = ctx.Input("X");
  sum.shape = NormSumShape(ctx, "C4", "Y", ctx.InputShape("Y"));
  const int64_t rows = CheckRows(ctx, sum.shape);
  for (const char* slot : {"Out", "Sum"}) ctx.SetOutput(slot, sum);
  for (const char* slot : {"Mean", "Variance"}) ctx.SetOutput(slot, StatisticsDType(ctx), {rows});
  ctx.SetOutput("Mask", DType::kUInt8,
                ctx.InputShape(ctx.Attr<std::string>("dropped") == "Y" ? "Y" : "X"));
}

// The input with the shape of term A or B.
template <class Context>
const char* ShapeSlot(const Context& ctx, const char* term, bool dropped) {
  return ctx.HasInput(term) ? term : dropped ? "Mask" : "X";
}

void InferGrad(InferContext& ctx) {
  const Shape& sum = ctx.InputShape("X");
  const int64_t rows = CheckRows(ctx, sum);
  for (const char* slot : {"Mean", "Variance"}) RequireNormVector(ctx, "C5", slot, rows);
  for (const char* slot : {"Out@GRAD", "Sum@GRAD"}) RequireLikeX(ctx, "C6", slot);
  const auto dropped = ctx.Attr<std::string>("dropped");
  for (const char* slot : {"A", "B"}) {
    const bool masked = dropped == slot;
    if (masked)
      ctx.Require("C7", ctx.HasInput("Mask") && ctx.InputDType("Mask") == DType::kUInt8, slot);
    VarMeta term = ctx.Input(ctx.HasInput(slot) ? slot : "X");
    term.shape = ctx.InputShape(ShapeSlot(ctx, slot, masked));
    const auto aligned = AlignShapes(sum, term.shape, -1);
    bool fits = term.dtype == ctx.InputDType("X") && term.shape.rank() <= sum.rank() && aligned;
    for (int i = 0; fits && i < sum.rank(); ++i)
      fits = aligned->y[i] == 1 || InferContext::Matches(aligned->x[i], aligned->y[i]);
    ctx.Require("C4", fits, slot, term, "X", ctx.Input("X"));
    ctx.SetOutput(GradName(slot), term);
    if (masked)
      ctx.Require("C7", ctx.InputShape("Mask").CompatibleWith(term.shape), slot, term, "Mask",
                  ctx.InputShape("Mask"));
  }
  for (const char* slot : {"Scale", "Bias"}) {
    const int axis = ctx.Attr<int32_t>("begin_norm_axis");
    ctx.SetOutput(GradName(slot), ctx.InputDType(ctx.HasInput("Scale") ? "Scale" : "X"),
                  {ProductOfDims(sum, axis, sum.rank())});
  }
}

// --- kernels ---

// The dropout of one term.
struct Dropping {
  double p;
  double factor;  // of kept elements
  bool x = false, y = false;

  explicit Dropping(const PrepareContext& ctx, const char* first)
      : p(std::clamp(static_cast<double>(ctx.Attr<float>("dropout_prob")), 0.0, 1.0)) {
    const auto dropped = ctx.Attr<std::string>("dropped");
    x = dropped == first;
    y = !dropped.empty() && !x;
    const bool upscale = ctx.Attr<std::string>("dropout_implementation") == "upscale_in_train";
    factor = upscale && p < 1 ? 1 / (1 - p) : 1;
  }
  explicit operator bool() const { return x || y; }
};

uint64_t StreamOf(const PrepareContext& ctx) {
  const auto name = ctx.Attr<std::string>("random_name");
  return name.empty() ? ctx.RandomStream("Out") : HashName(name);
}

// The source of the draws, as in dropout.
struct Source {
  bool fixed;
  uint64_t seed, stream;
  explicit Source(const PrepareContext& ctx)
      : fixed(ctx.Attr<bool>("fix_seed")),
        seed(static_cast<uint64_t>(ctx.Attr<int32_t>("seed"))),
        stream(StreamOf(ctx)) {}
  Philox For(const Workspace& ws) const {
    return fixed ? Philox(seed, 0, 0) : Philox(ws.seed(), stream, ws.step());
  }
};

struct ForwardArgs {
  TensorArg x, y, scale, bias, out, sum, mean, variance, mask;
  Dropping drop;
  Source source;
  NormView view;
  float epsilon;

  explicit ForwardArgs(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        y(ctx.Input("Y")),
        scale(ctx.Input("Scale")),
        bias(ctx.Input("Bias")),
        out(ctx.Output("Out")),
        sum(ctx.Output("Sum")),
        mean(ctx.Output("Mean")),
        variance(ctx.Output("Variance")),
        mask(ctx.Output("Mask")),
        drop(ctx, "X"),
        source(ctx),
        epsilon(ctx.Attr<float>("epsilon")) {
    const int axis = ctx.Attr<int32_t>("begin_norm_axis");
    view = RowView(out.shape.Product(0, axis), out.shape.Product(axis, out.shape.rank()));
    if (!sum) sum = out;
  }
};

// The sum of terms of any broadcastable shapes, element by element.
template <class T>
class PlainSum {
 public:
  PlainSum(const PrepareContext& ctx, const ForwardArgs& a)
      : a_(a), nest_(MakeBroadcastNest(a.x.shape, a.y.shape, -1)), term_(a.drop.y ? a.y : a.x) {
    if (a.drop) kept_ = ctx.Scratch(DTypeOf<T>(), term_.shape);
  }
  void operator()(Workspace& ws) const {
    const T *x = ws.Data<const T>(a_.x), *y = ws.Data<const T>(a_.y);
    if (a_.drop) {
      T* kept = ws.Data<T>(kept_);
      Drop(a_.source.For(ws), a_.drop.p, static_cast<T>(a_.drop.factor), ws.Data<const T>(term_),
           kept, DataOrNull<uint8_t>(ws, a_.mask), term_.numel);
      (a_.drop.y ? y : x) = kept;
    } else if (a_.mask) {
      std::fill_n(ws.Data<uint8_t>(a_.mask), a_.mask.numel, uint8_t{1});
    }
    BroadcastLoop(nest_, x, y, ws.Data<T>(a_.sum), [](T v, T w) { return v + w; });
  }

 private:
  ForwardArgs a_;
  BroadcastNest nest_;
  TensorArg term_, kept_;  // the term before and after dropout
};

template <class T>
KernelOf<T> ForwardReference(const PrepareContext& ctx) {
  const ForwardArgs a(ctx);
  const PlainSum<T> add(ctx, a);
  const TensorArg stats = ctx.Scratch(DType::kFloat64, {3, a.view.groups});
  return [=](Workspace& ws) {
    add(ws);
    const T* sum = ws.Data<const T>(a.sum);
    const int64_t n = a.view.groups;
    double *mean = ws.Data<double>(stats), *inv = mean + n, *variance = inv + n;
    NormMoments(a.view, sum, mean, variance);
    for (int64_t r = 0; r < n; ++r) {
      inv[r] = 1 / std::sqrt(variance[r] + static_cast<double>(a.epsilon));
      if (a.mean) ws.Data<T>(a.mean)[r] = static_cast<T>(mean[r]);
      if (a.variance) ws.Data<T>(a.variance)[r] = static_cast<T>(variance[r]);
    }
    NormApply(a.view, sum, mean, inv, DataOrNull<const T>(ws, a.scale),
              DataOrNull<const T>(ws, a.bias), ws.Data<T>(a.out));
  };
}

Kernel ForwardFast(const PrepareContext& ctx) {
  ForwardArgs a(ctx);
  if (a.x.dtype != DType::kFloat32 || a.out.numel == 0) return {};
  for (TensorArg* statistic : {&a.mean, &a.variance})
    if (!*statistic) *statistic = ctx.Scratch(DType::kFloat32, {a.view.groups});
  const bool draws = static_cast<bool>(a.drop);
  const bool one_sweep = a.x.shape == a.y.shape && draws == (a.drop || a.mask);
  if (!one_sweep) {
    const PlainSum<float> add(ctx, a);
    return [=](Workspace& ws) {
      add(ws);
      RowNorm(a.view.groups, a.view.size, ws.Data<const float>(a.sum),
              DataOrNull<const float>(ws, a.scale), DataOrNull<const float>(ws, a.bias), a.epsilon,
              ws.Data<float>(a.out), ws.Data<float>(a.mean), ws.Data<float>(a.variance));
    };
  }
  return [=](Workspace& ws) {
    RowTerms terms{ws.Data<const float>(a.x), ws.Data<const float>(a.y)};
    const Philox random = a.source.For(ws);
    if (draws) {
      if (a.drop.y) std::swap(terms.x, terms.y);
      terms.random = &random;
      terms.p = a.drop.p;
      terms.factor = static_cast<float>(a.drop.factor);
      terms.mask = DataOrNull<uint8_t>(ws, a.mask);
    }
    RowSumNorm(a.view.groups, a.view.size, terms, ws.Data<float>(a.sum),
               DataOrNull<const float>(ws, a.scale), DataOrNull<const float>(ws, a.bias), a.epsilon,
               ws.Data<float>(a.out), ws.Data<float>(a.mean), ws.Data<float>(a.variance));
  };
}

struct GradArgs {
  TensorArg sum, scale, mean, variance, mask, dout, dsum, da, db, dscale, dbias;
  Dropping drop;
  Shape a, b;  // of the terms
  NormView view;
  double epsilon;
  TensorArg stats;

  explicit GradArgs(const PrepareContext& ctx)
      : sum(ctx.Input("X")),
        scale(ctx.Input("Scale")),
        mean(ctx.Input("Mean")),
        variance(ctx.Input("Variance")),
        mask(ctx.Input("Mask")),
        dout(ctx.Input("Out@GRAD")),
        dsum(ctx.Input("Sum@GRAD")),
        da(ctx.Output("A@GRAD")),
        db(ctx.Output("B@GRAD")),
        dscale(ctx.Output("Scale@GRAD")),
        dbias(ctx.Output("Bias@GRAD")),
        drop(ctx, "A"),
        a(ctx.Input(ShapeSlot(ctx, "A", drop.x)).shape),
        b(ctx.Input(ShapeSlot(ctx, "B", drop.y)).shape),
        epsilon(static_cast<double>(ctx.Attr<float>("epsilon"))) {
    const int axis = ctx.Attr<int32_t>("begin_norm_axis");
    view = RowView(sum.shape.Product(0, axis), sum.shape.Product(axis, sum.shape.rank()));
    stats = ctx.Scratch(DType::kFloat64, {2, view.groups});
  }

  // Returns mean, then 1 / sqrt(variance + epsilon).
  template <class T>
  const double* Statistics(Workspace& ws) const {
    double* s = ws.Data<double>(stats);
    for (int64_t r = 0; r < view.groups; ++r) {
      const T stored = ws.Data<const T>(variance)[r];
      const double held = HeldVariance(view, ws.Data<const T>(sum), r, stored, epsilon);
      s[r] = static_cast<double>(ws.Data<const T>(mean)[r]);
      s[view.groups + r] = 1 / std::sqrt(held + epsilon);
    }
    return s;
  }
};

// The gradient of a term: the sum's gradient, summed over broadcast dims, with dropout.
template <class T>
void ToTerm(const Shape& sum, const Shape& term, const T* d, const uint8_t* mask, T factor,
            double* sums, T* out) {
  const BroadcastNest nest = MakeBroadcastNest(sum, term, -1);
  const int64_t step = nest.y_repeats() ? 0 : 1, count = term.numel();
  std::fill_n(sums, count, 0.0);
  ForEachRow(nest, 0, nest.numel, [&](int64_t, int64_t to, int64_t at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sums[to + i * step] += static_cast<double>(d[at + i]);
  });
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(sums[i]);
  if (mask) DropGrad(mask, factor, out, out, count);
}

template <class T>
KernelOf<T> GradReference(const PrepareContext& ctx) {
  const GradArgs a(ctx);
  const bool terms = a.da || a.db;
  const TensorArg whole = ctx.Scratch(DTypeOf<T>(), terms ? a.sum.shape : Shape{0});
  const TensorArg sums = ctx.Scratch(DType::kFloat64, terms ? a.sum.shape : Shape{0});
  return [=](Workspace& ws) {
    NormGradArgs<T> g;
    g.x = ws.Data<const T>(a.sum);
    g.scale = DataOrNull<const T>(ws, a.scale);
    g.dy = ws.Data<const T>(a.dout);
    g.mean = a.Statistics<T>(ws);
    g.inv = g.mean + a.view.groups;
    g.dx = terms ? ws.Data<T>(whole) : nullptr;
    g.dscale = DataOrNull<T>(ws, a.dscale);
    g.dbias = DataOrNull<T>(ws, a.dbias);
    NormGrad(a.view, g);
    for (int64_t i = 0; terms && a.dsum && i < a.sum.numel; ++i)
      g.dx[i] += ws.Data<const T>(a.dsum)[i];
    const auto to = [&](const TensorArg& grad, const Shape& shape, bool dropped) {
      if (!grad) return;
      ToTerm(a.sum.shape, shape, g.dx, dropped ? ws.Data<const uint8_t>(a.mask) : nullptr,
             static_cast<T>(a.drop.factor), ws.Data<double>(sums), ws.Data<T>(grad));
    };
    to(a.da, a.a, a.drop.x);
    to(a.db, a.b, a.drop.y);
  };
}

Kernel GradFast(const PrepareContext& ctx) {
  GradArgs a(ctx);
  if (a.sum.dtype != DType::kFloat32 || a.sum.numel == 0 || a.a != a.sum.shape ||
      a.b != a.sum.shape)
    return {};
  const auto& [n, columns] = std::pair(a.view.groups, a.view.size);
  const bool sums = a.dscale || a.dbias;
  if (sums && !a.dscale) a.dscale = ctx.Scratch(DType::kFloat32, {columns});
  if (sums && !a.dbias) a.dbias = ctx.Scratch(DType::kFloat32, {columns});
  const TensorArg scratch = ctx.Scratch(DType::kFloat32, {sums ? RowScratch(n, columns) : 0});
  // The gradient of the term without dropout is computed in place; the other one is a copy.
  const TensorArg whole = a.drop.x ? a.db : a.da, other = a.drop.x ? a.da : a.db;
  return [=](Workspace& ws) {
    RowGradEnd end;
    end.add = DataOrNull<const float>(ws, a.dsum);
    end.copy = DataOrNull<float>(ws, other);
    if (a.drop) end.mask = ws.Data<const uint8_t>(a.mask);
    end.factor = static_cast<float>(a.drop.factor);
    if (!end.copy) end.mask = nullptr;
    const double* stats = a.Statistics<float>(ws);
    RowNormGrad(a.view.groups, a.view.size, ws.Data<const float>(a.sum),
                DataOrNull<const float>(ws, a.scale), ws.Data<const float>(a.dout), stats,
                stats + a.view.groups, ws.Data<float>(scratch),
                whole ? ws.Data<float>(whole) : end.copy, DataOrNull<float>(ws, a.dscale),
                DataOrNull<float>(ws, a.dbias), end);
  };
}

// --- registration ---

void DeclareNorm(OpDef& def) {
  def.OptionalInput("Scale", "[elements of a row]; 1 when absent")
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0.0, std::nullopt)
      .Attr<int32_t>("begin_norm_axis", 1, "first of the dims that make up a row")
      .WorksAlong("begin_norm_axis", AxesAttr::kFrom)
      .Attr<float>("dropout_prob", 0.0f, "probability that an element of that term becomes 0")
      .Range(0, 1)
      .Attr<std::string>("dropout_implementation", "upscale_in_train",
                         "upscale_in_train: kept elements are divided by 1 - dropout_prob")
      .OneOf({"downgrade_in_infer", "upscale_in_train"});
}

OpDef ForwardDef() {
  return OpDef(kType)
      .Doc(
          "Sum = X + Y, with dropout applied to one of them first in training, and Out = "
          "layer_norm(Sum) over the dimensions from begin_norm_axis on, in one sweep.")
      .Constraint("C1", "begin_norm_axis must lie in (0, rank of the sum)")
      .Constraint("C2", "Scale and Bias must have shape [elements of a row]")
      .Constraint("C3",
                  "all inputs must have one dtype; scale, bias and statistics may be float32 with "
                  "16-bit inputs")
      .Constraint("C4", "X and Y must broadcast as in elementwise_add with axis -1")
      .Input("X", "floating-point tensor of rank 2 or more")
      .Input("Y", "tensor like X, or broadcast to it along dims of 1")
      .Apply(DeclareNorm)
      .OptionalInput("Bias", "[elements of a row]; 0 when absent")
      .Output("Out", "of the sum's shape")
      .OptionalOutput("Sum", "of the sum's shape")
      .IntermediateOutput("Mean", "[number of rows]")
      .IntermediateOutput("Variance", "[number of rows], biased")
      .OptionalOutput("Mask",
                      "uint8 tensor of the shape of the term with dropout: 1 for kept elements")
      .Attr<std::string>("dropped", "", "the term that dropout applies to, if any")
      .OneOf({"", "X", "Y"})
      .Attr<bool>("fix_seed", false, "the attr seed alone decides what is dropped")
      .Attr<int32_t>("seed", 0, "used with fix_seed")
      .Attr<std::string>("random_name", "", "name that seeds the random draws; \"\": Out's name")
      .Float32Slots({"Scale", "Bias", "Mean", "Variance"})
      .NoGradient("made from a program that has its gradients")
      .Random()
      .Inplace("X", "Sum")
      .Inplace("Y", "Sum")
      .Rows(RowRule::kEach)
      .Tables({"Bias"})
      .Infer(InferForward)
      .Reference(ForwardReference<float>, ForwardReference<double>)
      .Fast(ForwardFast);
}

OpDef GradDef() {
  return OpDef(std::string(kType) + "_gradients")
      .Doc(
          "The gradients of fused_residual_layer_norm for its terms A and B and their sum X. With "
          "d = the gradient of layer_norm for X + Sum@GRAD: A@GRAD = B@GRAD = d, summed over the "
          "broadcast dims; for the term with dropout, it is multiplied by the same factors as the "
          "term.")
      .ConstraintsOf(kType, {"C1", "C2", "C3"})
      .Constraint("C4",
                  "A and B must have X's dtype, and X's shape or a shape that broadcasts to it")
      .Constraint("C5", "Mean and Variance must have shape [number of rows]")
      .Constraint("C6", "Out@GRAD and Sum@GRAD must have X's shape")
      .Constraint("C7", "Mask must be uint8 and have the shape of the term with dropout")
      .Input("X", "Sum of the forward op")
      .OptionalInput("A",
                     "X of the forward op; only its shape is used. If absent, it has Mask's shape "
                     "if dropout applied to it, else the sum's")
      .OptionalInput("B", "Y of the forward op, likewise")
      .Apply(DeclareNorm)
      .OptionalInput("Bias", "the forward op's Bias; only its shape is used")
      .Input("Mean", "Mean of the forward op")
      .Input("Variance", "Variance of the forward op")
      .OptionalInput("Mask", "Mask of the forward op")
      .Input("Out@GRAD", "gradient of Out")
      .OptionalInput("Sum@GRAD", "gradient of Sum from its other readers")
      .OptionalOutput("A@GRAD", "gradient of A")
      .OptionalOutput("B@GRAD", "gradient of B")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Bias@GRAD", "gradient of Bias")
      .Attr<std::string>("dropped", "", "the term that dropout applied to, if any")
      .OneOf({"", "A", "B"})
      .Float32Slots({"Scale", "Bias", "Mean", "Variance"})
      .NoGradient("made from a program that has its gradients")
      .Inplace("Out@GRAD", "A@GRAD")
      .Inplace("Out@GRAD", "B@GRAD")
      .Inplace("X", "A@GRAD")
      .Inplace("X", "B@GRAD")
      .Rows(RowRule::kEach)
      .Tables({"Bias"})
      .Infer(InferGrad)
      .Reference(GradReference<float>, GradReference<double>)
      .Fast(GradFast);
}

void Register(OpRegistry& ops) {
  ops.Add(ForwardDef());
  ops.Add(GradDef());
}

}  // namespace coracle::fused_residual_layer_norm_op
