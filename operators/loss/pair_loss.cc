// Element-wise losses of a prediction and its label, or of two predictions. A row of the family is
// a struct with the value and the gradient rule.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

namespace coracle::pair_loss_op {

struct SlotRow {
  const char *name = nullptr, *doc = nullptr;
  bool label = false;  // it gets no gradient
  bool soft = false;   // labels may be mixtures
};
struct AttrRow {
  const char *name, *doc;
  bool required;
  float value;
};
// The attrs, in the order of a row.
template <class T>
using P = std::array<T, 2>;

// Default members of a row: two inputs of one shape, the second of which is a label.
struct Row {
  static constexpr SlotRow kThird = {}, kKept = {};
  static constexpr std::array<AttrRow, 0> kAttrs = {};
  static constexpr bool kColumns = false;  // [N] and [N, 1] may be mixed
};

// x for x > 0, else 0; a nan stays nan.
template <class T>
T Ramp(T x) {
  return x < T(0) ? T(0) : x;
}
// log(x), at least -100.
template <class T>
T BoundedLog(T x) {
  const T log = std::log(x);
  return log < T(-100) ? T(-100) : log;
}

// 1 where the condition is true, else 0, with the dtype of `like`.
Variable Indicator(const Variable& condition, const Variable& like) {
  return Cast(condition, like.dtype());
}
Variable Clip(GradientContext& g, const Variable& x, float min, float max) {
  return g.Make("clip", {{"X", {x.name()}}}, {{"min", min}, {"max", max}});
}

struct BceLoss : Row {
  static constexpr const char* kType = "bce_loss";
  static constexpr const char* kDoc =
      "Out = -Label max(log(X), -100) - (1 - Label) max(log(1 - X), -100), element by element: the "
      "cross entropy of probabilities; nan for an X outside of [0, 1]. As in Paddle its gradient "
      "is Out@GRAD (X - Label) / max(X (1 - X), 1e-12).";
  static constexpr SlotRow kFirst = {"X", "floating-point tensor of probabilities"};
  static constexpr SlotRow kSecond = {"Label", "tensor of X's shape and dtype, in [0, 1]", true,
                                      true};
  static constexpr SlotRow kOut = {"Out", "tensor of X's shape and dtype"};
  template <class T>
  static T Value(T x, T y, T, const P<T>&, T*) {
    return -y * BoundedLog(x) - (1 - y) * BoundedLog(1 - x);
  }
  // dX = dOut (X - Label) / max(X (1 - X), 1e-12), at least in float32: float16 cannot
  // represent 1e-12.
  static void Gradient(GradientContext& g) {
    const DType own = g.In("X").dtype(), wide = IsHalf(own) ? DType::kFloat32 : own;
    const Variable x = Cast(g.In("X"), wide), slope = x * (1.0 - x);
    const Variable error = x - Cast(g.In("Label"), wide), bounded = Max(slope, 1e-12);
    g.Set("X", Cast(Cast(g.Grad("Out"), wide) * (error / bounded), own));
  }
};

struct HingeLoss : Row {
  static constexpr const char* kType = "hinge_loss";
  static constexpr const char* kDoc =
      "Loss = max(0, 1 - Logits (2 Labels - 1)), element by element.";
  static constexpr SlotRow kFirst = {"Logits", "floating-point tensor of predictions"};
  static constexpr SlotRow kSecond = {"Labels", "0 or 1: tensor of Logits' shape and dtype", true};
  static constexpr SlotRow kOut = {"Loss", "tensor of Logits' shape and dtype"};
  template <class T>
  static T Value(T x, T y, T, const P<T>&, T*) {
    return Ramp(1 - x * (2 * y - 1));
  }
  // dLogits = -(2 Labels - 1) dLoss where the loss is positive.
  static void Gradient(GradientContext& g) {
    const Variable x = g.In("Logits"), sign = 2.0 * g.In("Labels") - 1.0;
    const Variable active = Indicator(Less(x * sign, 1.0), x);
    g.Set("Logits", -(g.Grad("Loss") * (sign * active)));
  }
};

struct HuberLoss : Row {
  static constexpr const char* kType = "huber_loss";
  static constexpr const char* kDoc =
      "With r = Y - X: Out = r^2 / 2 where |r| <= delta, else delta (|r| - delta / 2), element by "
      "element.";
  static constexpr SlotRow kFirst = {"X", "floating-point tensor of predictions"};
  static constexpr SlotRow kSecond = {"Y", "tensor of X's shape and dtype"};
  static constexpr SlotRow kKept = {"Residual", "Y - X"};
  static constexpr SlotRow kOut = {"Out", "tensor of X's shape and dtype"};
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"delta", "|r| at which the parabola becomes a line; not negative", true, 0}}};
  template <class T>
  static T Value(T x, T y, T, const P<T>& p, T* residual) {
    const T r = y - x, a = std::abs(r);
    *residual = r;
    return a > p[0] ? p[0] * (a - p[0] / 2) : r * r / 2;
  }
  // dY = dOut min(max(r, -delta), delta), dX = -dY.
  static void Gradient(GradientContext& g) {
    const float delta = g.Attr<float>("delta");
    const Variable slope = Clip(g, g.In("Y") - g.In("X"), -delta, delta);
    const Variable dy = g.Grad("Out") * slope;
    g.Set("Y", dy);
    g.Set("X", -dy);
  }
};

struct LogLoss : Row {
  static constexpr const char* kType = "log_loss";
  static constexpr const char* kDoc =
      "Loss = -Labels log(Predicted + epsilon) - (1 - Labels) log(1 - Predicted + epsilon), "
      "element by element.";
  static constexpr SlotRow kFirst = {"Predicted", "floating-point tensor of probabilities"};
  static constexpr SlotRow kSecond = {"Labels", "0 or 1: tensor of Predicted's shape and dtype",
                                      true, true};
  static constexpr SlotRow kOut = {"Loss", "tensor of Predicted's shape and dtype"};
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"epsilon", "keeps the logarithms finite; not negative", true, 0}}};
  template <class T>
  static T Value(T x, T y, T, const P<T>& p, T*) {
    return -y * std::log(x + p[0]) - (1 - y) * std::log(1 - x + p[0]);
  }
  // dPredicted = dLoss ((1 - y) / (1 - p + epsilon) - y / (p + epsilon)).
  static void Gradient(GradientContext& g) {
    const double epsilon = g.Attr<float>("epsilon");
    const Variable x = g.In("Predicted"), y = g.In("Labels");
    const Variable high = (1.0 - y) / (1.0 - x + epsilon);
    const Variable low = y / (x + epsilon);
    g.Set("Predicted", g.Grad("Loss") * (high - low));
  }
};

struct MarginRankLoss : Row {
  static constexpr const char* kType = "margin_rank_loss";
  static constexpr const char* kDoc = "Out = max(0, margin - Label (X1 - X2)), element by element.";
  static constexpr SlotRow kFirst = {"X1", "floating-point tensor: scores of the first items"};
  static constexpr SlotRow kSecond = {"X2", "scores of the second items, of X1's shape and dtype"};
  static constexpr SlotRow kThird = {
      "Label", "1 where X1 should be larger, -1 where X2 should be larger", true};
  static constexpr SlotRow kKept = {"Activated", "1 where Out is positive, else 0"};
  static constexpr SlotRow kOut = {"Out", "tensor of X1's shape and dtype"};
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"margin", "difference of scores above which the loss is 0", false, 0}}};
  template <class T>
  static T Value(T x1, T x2, T label, const P<T>& p, T* activated) {
    const T loss = Ramp(p[0] - label * (x1 - x2));
    *activated = loss > 0 ? T(1) : T(0);
    return loss;
  }
  // dX2 = Label dOut where the loss is positive, dX1 = -dX2.
  static void Gradient(GradientContext& g) {
    const Variable label = g.In("Label"), active = Indicator(Greater(g.Out("Out"), 0.0), label);
    const Variable d = g.Grad("Out") * (label * active);
    g.Set("X2", d);
    g.Set("X1", -d);
  }
};

struct ModifiedHuberLoss : Row {
  static constexpr const char* kType = "modified_huber_loss";
  static constexpr const char* kDoc =
      "With v = X (2 Y - 1): Out = -4 v where v < -1, else max(0, 1 - v)^2, element by element.";
  static constexpr SlotRow kFirst = {"X", "floating-point tensor of predictions"};
  static constexpr SlotRow kSecond = {"Y", "0 or 1: tensor of X's shape and dtype", true};
  static constexpr SlotRow kKept = {"IntermediateVal", "v"};
  static constexpr SlotRow kOut = {"Out", "tensor of X's shape and dtype"};
  template <class T>
  static T Value(T x, T y, T, const P<T>&, T* v) {
    *v = x * (2 * y - 1);
    const T gap = Ramp(1 - *v);
    return *v < T(-1) ? -4 * *v : gap * gap;
  }
  // dX = -2 min(max(1 - v, 0), 2) (2 Y - 1) dOut.
  static void Gradient(GradientContext& g) {
    const Variable sign = 2.0 * g.In("Y") - 1.0;
    const Variable gap = Clip(g, 1.0 - g.In("X") * sign, 0.f, 2.f);
    g.Set("X", -2.0 * (g.Grad("Out") * (gap * sign)));
  }
};

struct RankLoss : Row {
  static constexpr const char* kType = "rank_loss";
  static constexpr const char* kDoc =
      "With o = Left - Right: Out = log(1 + e^o) - Label o, element by element: the cross entropy "
      "of the sigmoid of the difference of two scores.";
  static constexpr SlotRow kFirst = {
      "Label", "1 where Left should be larger, else 0: [N] or [N, 1]", true, true};
  static constexpr SlotRow kSecond = {"Left", "floating-point tensor [N] or [N, 1]"};
  static constexpr SlotRow kThird = {"Right", "floating-point tensor [N] or [N, 1]"};
  static constexpr SlotRow kOut = {"Out", "tensor of Label's shape"};
  static constexpr bool kColumns = true;
  template <class T>
  static T Value(T label, T left, T right, const P<T>&, T*) {
    const T o = left - right;
    return activation::LogOnePlusExp(o) - label * o;
  }
  // dLeft = dOut (sigmoid(o) - Label), dRight = -dLeft.
  static void Gradient(GradientContext& g) {
    const int rank = g.In("Label").shape().rank();
    const auto like = [](const Variable& v, int wanted) {
      if (v.shape().rank() == wanted) return v;
      return wanted == 1 ? Reshape(v, {0}) : Reshape(v, {0, 1});
    };
    const Variable left = like(g.In("Left"), rank), right = like(g.In("Right"), rank);
    const Variable d = g.Grad("Out") * (Sigmoid(left - right) - g.In("Label"));
    g.Set("Left", like(d, g.In("Left").shape().rank()));
    g.Set("Right", like(-d, g.In("Right").shape().rank()));
  }
};

struct TeacherStudentSigmoidLoss : Row {
  static constexpr const char* kType = "teacher_student_sigmoid_loss";
  static constexpr const char* kDoc =
      "With L(z) = max(X, 0) - X z + log(1 + e^-|X|), the cross entropy of sigmoid(X) and z: Y = "
      "L(0) where Label < -1, L(1) where Label < 0, L(0) + L(Label) where Label < 1, else L(1) + "
      "L(Label - 1), element by element. The gradient is 0 where X is not between the bounds.";
  static constexpr SlotRow kFirst = {"X", "floating-point tensor of logits"};
  static constexpr SlotRow kSecond = {
      "Label",
      "tensor of X's shape and dtype: -2 no click, -1 a click; with a teacher's score s in [0, 1], "
      "s no click, 1 + s a click",
      true};
  static constexpr SlotRow kOut = {"Y", "tensor of X's shape and dtype"};
  static constexpr std::array<AttrRow, 2> kAttrs = {
      {{"soft_max_up_bound", "at and above this X, the gradient is 0", false, 15},
       {"soft_max_lower_bound", "at and below this X, the gradient is 0", false, -15}}};
  template <class T>
  static T Value(T x, T label, T, const P<T>&, T*) {
    const T zero = activation::LogOnePlusExp(x);  // L(0); L(z) = L(0) - X z
    if (label < T(-1)) return zero;
    if (label < T(0)) return zero - x;
    return 2 * zero - x * label;
  }
  // dX = dY (sigmoid(X) - z), for Label >= 0 dY (2 sigmoid(X) - Label).
  static void Gradient(GradientContext& g) {
    const double high = g.Attr<float>("soft_max_up_bound");
    const double low = g.Attr<float>("soft_max_lower_bound");
    const Variable x = g.In("X"), label = g.In("Label");
    const Variable above = Greater(x, low), inside = And(above, Less(x, high));
    const Variable scored = GreaterEqual(label, 0.0);
    const Variable click = Indicator(GreaterEqual(label, -1.0), x);
    const Variable target = Where(scored, label, click);
    const Variable terms = 1.0 + Indicator(scored, x);
    const Variable slope = terms * Sigmoid(x) - target;
    g.Set("X", g.Grad("Y") * (slope * Indicator(inside, x)));
  }
};

// A row without its formulas, so that code that uses it is compiled once for all rows.
struct RowData {
  const char *type, *doc;
  SlotRow first, second, third, kept, out;
  std::span<const AttrRow> attrs;
  bool columns;
  GradientFn gradient;

  std::vector<SlotRow> Inputs() const {
    return third.name ? std::vector{first, second, third} : std::vector{first, second};
  }
};
template <class F>
RowData DataOf() {
  return {F::kType, F::kDoc, F::kFirst, F::kSecond,  F::kThird,
          F::kKept, F::kOut, F::kAttrs, F::kColumns, F::Gradient};
}

bool IsColumn(const Shape& shape) {
  return shape.rank() == 1 || (shape.rank() == 2 && InferContext::Matches(shape[1], 1));
}

void InferPair(InferContext& ctx, const RowData& row) {
  const VarMeta first = ctx.Input(row.first.name);
  for (const SlotRow& slot : row.Inputs()) {
    if (!row.columns) {
      RequireSameType(ctx, "C1", slot.name, row.first.name);
      continue;
    }
    const VarMeta& other = ctx.Input(slot.name);
    const bool fits = other.dtype == first.dtype && IsColumn(other.shape) &&
                      IsColumn(first.shape) &&
                      InferContext::Matches(other.shape[0], first.shape[0]);
    ctx.Require("C1", fits, slot.name, other, row.first.name, first);
  }
  // The rules compare with tensors of shape [1].
  if (!row.columns) ctx.Require("C2", first.shape.rank() >= 1, first);
  ctx.SetOutput(row.out.name, first);
  if (row.kept.name) ctx.SetOutput(row.kept.name, first);
}

// The formulas run in double, so that only results leave the range of T.
template <class T>
struct Loop {
  std::array<const T*, 3> in;
  T *out, *kept;
  P<double> p;

  template <class F>
  static void Run(const Loop& loop, int64_t begin, int64_t end) {
    const auto wide = [&](int k, int64_t i) {
      return static_cast<double>(loop.in[static_cast<size_t>(k)][i]);
    };
    double kept = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double value =
          F::template Value<double>(wide(0, i), wide(1, i), wide(2, i), loop.p, &kept);
      loop.out[i] = static_cast<T>(value);
      if (loop.kept) loop.kept[i] = static_cast<T>(kept);
    }
  }
};

template <class T>
Kernel PairKernel(const PrepareContext& ctx, const RowData& row,
                  void (*run)(const Loop<T>&, int64_t, int64_t)) {
  const TensorArg a = ctx.Input(row.first.name), b = ctx.Input(row.second.name);
  const TensorArg c = row.third.name ? ctx.Input(row.third.name) : a;
  const TensorArg out = ctx.Output(row.out.name);
  const TensorArg kept = row.kept.name ? ctx.Output(row.kept.name) : TensorArg();
  P<double> p = {};
  for (size_t i = 0; i < row.attrs.size(); ++i)
    p[i] = static_cast<double>(ctx.Attr<float>(row.attrs[i].name));
  return [=](Workspace& ws) {
    const Loop<T> loop = {{ws.Data<const T>(a), ws.Data<const T>(b), ws.Data<const T>(c)},
                          ws.Data<T>(out),
                          kept ? ws.Data<T>(kept) : nullptr,
                          p};
    ParallelFor(a.numel, 8192, [&](int64_t begin, int64_t end) { run(loop, begin, end); });
  };
}

OpDef PairDef(const RowData& row) {
  OpDef def(row.type);
  def.ComputesIn(OpPrecision::kFloat32)
      .Doc(row.doc)
      .Constraint("C1", row.columns ? "the inputs must be [N] or [N, 1] of one dtype"
                                    : "the inputs must have one shape and dtype");
  if (!row.columns) def.Constraint("C2", "the inputs must have rank 1 or more");
  for (const SlotRow& slot : row.Inputs()) def.Input(slot.name, slot.doc);
  if (row.kept.name) def.IntermediateOutput(row.kept.name, row.kept.doc);
  def.Output(row.out.name, row.out.doc);
  for (const AttrRow& attr : row.attrs) {
    if (attr.required)
      def.Attr<float>(attr.name, attr.doc).Range(0, std::nullopt);
    else
      def.Attr<float>(attr.name, attr.value, attr.doc);
  }
  for (const SlotRow& slot : row.Inputs()) {
    if (slot.label) def.NoGradientTo({slot.name});
    if (slot.soft) def.SoftLabels({slot.name});
  }
  def.Rows(RowRule::kEach);
  def.Inplace(row.first.name, row.out.name).Infer([row](InferContext& ctx) {
    InferPair(ctx, row);
  });
  return def.Gradient(row.gradient);
}

template <class F, class T>
KernelOf<T> PairReference(const PrepareContext& ctx) {
  return PairKernel<T>(ctx, DataOf<F>(), Loop<T>::template Run<F>);
}

template <class F>
void AddRow(OpRegistry& ops) {
  const RowData row = DataOf<F>();
  ops.Add(PairDef(row).Reference(PairReference<F, float>, PairReference<F, double>));
}

void Register(OpRegistry& ops) {
  AddRow<BceLoss>(ops);
  AddRow<HingeLoss>(ops);
  AddRow<HuberLoss>(ops);
  AddRow<LogLoss>(ops);
  AddRow<MarginRankLoss>(ops);
  AddRow<ModifiedHuberLoss>(ops);
  AddRow<RankLoss>(ops);
  AddRow<TeacherStudentSigmoidLoss>(ops);
}

}  // namespace coracle::pair_loss_op
