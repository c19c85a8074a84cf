// hierarchical_sigmoid: a class is a leaf of a binary tree, and its probability is the product of
// the probabilities of the turns on its path.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/loss/row_gradient.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace coracle::hierarchical_sigmoid_op {

constexpr double kLargestLogit = 40;

bool HasPath(const auto& ctx) { return ctx.HasInput("PathTable"); }

// Number of turns on the longest path.
int64_t PathLength(const InferContext& ctx) {
  if (HasPath(ctx)) return ctx.InputShape("PathTable")[1];
  return std::bit_width(static_cast<uint32_t>(ctx.Attr<int32_t>("num_classes") - 1));
}

VarMeta CheckTree(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &w = ctx.Input("W"), &label = ctx.Input("Label");
  ctx.Require("C1",
              x.shape.rank() == 2 && w.shape.rank() == 2 && x.dtype == w.dtype &&
                  InferContext::Matches(x.shape[1], w.shape[1]),
              "X", x, "W", w);
  ctx.Require("C2",
              IsIndexType(label.dtype) && InferContext::Matches(NumelOf(label.shape), x.shape[0]),
              "Label", label, "X", x);
  const int64_t classes = ctx.Attr<int32_t>("num_classes");
  if (HasPath(ctx)) {
    for (const char* slot : {"PathTable", "PathCode"}) {
      const bool there = ctx.HasInput(slot);
      const VarMeta path = there ? ctx.Input(slot) : VarMeta();
      const bool fits = there && path.dtype == DType::kInt64 && path.shape.rank() == 2 &&
                        InferContext::Matches(path.shape[0], x.shape[0]) &&
                        path.shape.CompatibleWith(ctx.InputShape("PathTable"));
      ctx.Require("C3", fits, slot, path, "X", x);
    }
  } else {
    ctx.Require("C4", classes >= 2 && (w.shape[0] < 0 || w.shape[0] >= classes - 1), "num_classes",
                classes, "W", w);
  }
  if (ctx.HasInput("Bias")) {
    const VarMeta& bias = ctx.Input("Bias");
    ctx.Require("C5",
                bias.dtype == x.dtype && InferContext::Matches(NumelOf(bias.shape), w.shape[0]),
                "Bias", bias, "W", w);
  }
  VarMeta out = x;
  out.shape[1] = 1;
  return out;
}

void InferForward(InferContext& ctx) {
  VarMeta out = CheckTree(ctx);
  ctx.SetOutput("Out", out);
  out.shape[1] = PathLength(ctx);
  ctx.SetOutput("PreOut", out);
  ctx.SetOutput("W_Out", ctx.Input("W"));
}

void InferGrad(InferContext& ctx) {
  const VarMeta out = CheckTree(ctx);
  const VarMeta& dout = ctx.Input("Out@GRAD");
  ctx.Require("C6", dout.dtype == out.dtype && dout.shape.CompatibleWith(out.shape), dout, out);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  VarMeta w = ctx.Input("W");
  if (ctx.Attr<bool>("is_sparse") && HasPath(ctx)) w.type = VarType::kSelectedRows;
  ctx.SetOutput("W@GRAD", w);
  if (ctx.HasInput("Bias")) ctx.SetOutput("Bias@GRAD", ctx.Input("Bias"));
}

// The turns of each sample: a row of W, and whether the path turns right there.
class Paths {
 public:
  explicit Paths(const PrepareContext& ctx)
      : label_(ctx.Input("Label")),
        table_(ctx.Input("PathTable")),
        code_(ctx.Input("PathCode")),
        classes_(ctx.Attr<int32_t>("num_classes")),
        rows_(ctx.Input("W").shape[0]),
        longest_(table_ ? table_.shape[1] : std::bit_width(static_cast<uint32_t>(classes_ - 1))),
        type_(ctx.op().type()) {}
  int64_t longest() const { return longest_; }

  // Calls visit(index, row of W, right) for each turn of sample i.
  template <class Visit>
  void ForEachTurn(const Workspace& ws, int64_t i, const Visit& visit) const {
    if (table_) {
      const auto* table = ws.Data<const int64_t>(table_) + i * longest_;
      const auto* code = ws.Data<const int64_t>(code_) + i * longest_;
      for (int64_t j = 0; j < longest_ && table[j] >= 0; ++j) {
        if (table[j] >= rows_)
          ThrowIndexRange(type_, "PathTable", i * longest_ + j, table[j], rows_);
        visit(j, table[j], code[j] != 0);
      }
      return;
    }
    const int64_t label = IndexReader(ws, label_)[i];
    if (label < 0 || label >= classes_) ThrowIndexRange(type_, "Label", i, label, classes_);
    const auto leaf = static_cast<uint64_t>(label + classes_);
    const int64_t length = std::bit_width(leaf) - 1;
    for (int64_t j = 0; j < length; ++j)
      visit(j, static_cast<int64_t>(leaf >> (j + 1)) - 1, (leaf >> j & 1) != 0);
  }

 private:
  TensorArg label_, table_, code_;
  int64_t classes_, rows_, longest_;
  std::string type_;
};

template <class T>
struct Logits {
  const T *x, *w, *bias;
  int64_t width;
  KernelMode mode;
  double operator()(int64_t i, int64_t row) const {
    double z = bias ? static_cast<double>(bias[row]) : 0;
    z += DotOf(x + i * width, w + row * width, width, mode);
    return z < -kLargestLogit ? -kLargestLogit : z > kLargestLogit ? kLargestLogit : z;
  }
};
template <class T>
Logits<T> LogitsOf(const Workspace& ws, const TensorArg& x, const TensorArg& w,
                   const TensorArg& bias, KernelMode mode) {
  return {ws.Data<const T>(x), ws.Data<const T>(w), bias ? ws.Data<const T>(bias) : nullptr,
          x.shape[1], mode};
}

template <class T>
KernelOf<T> Forward(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), w = ctx.Input("W"), bias = ctx.Input("Bias");
  const TensorArg out = ctx.Output("Out"), pre_out = ctx.Output("PreOut");
  const TensorArg w_out = ctx.Output("W_Out");
  const Paths paths(ctx);
  const int64_t longest = paths.longest();
  return [=](Workspace& ws) {
    const Logits<T> logit = LogitsOf<T>(ws, x, w, bias, mode);
    T* pre = pre_out ? ws.Data<T>(pre_out) : nullptr;
    if (pre) std::fill_n(pre, pre_out.numel, static_cast<T>(std::log(2.0)));
    ParallelFor(x.shape[0], 1 + 1024 / (1 + logit.width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double cost = 0;
        int64_t turns = 0;
        paths.ForEachTurn(ws, i, [&](int64_t j, int64_t row, bool right) {
          const double z = logit(i, row), term = std::log1p(std::exp(z));
          cost += right ? std::log1p(std::exp(-z)) : term;  // term - z, without its rounding error
          if (pre) pre[i * longest + j] = static_cast<T>(term);
          ++turns;
        });
        // Missing turns of shorter paths count as logits of 0.
        ws.Data<T>(out)[i] =
            static_cast<T>(cost + static_cast<double>(longest - turns) * std::log(2.0));
      }
    });
    if (w_out) std::copy_n(ws.Data<const T>(w), w.numel, ws.Data<T>(w_out));
  };
}

// With s = (sigmoid(z) - bit) dOut on the path: dX = sum s W[row], dW[row] += s X, dBias[row] += s.
template <class T>
KernelOf<T> Backward(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), w = ctx.Input("W"), bias = ctx.Input("Bias");
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const TensorArg dbias = ctx.Output("Bias@GRAD");
  const RowGradient<T> dw(ctx, "W@GRAD", w);
  const Paths paths(ctx);
  const int64_t longest = paths.longest();
  const TensorArg slopes = ctx.Scratch(x.dtype, {x.shape[0], longest});
  return [=](Workspace& ws) {
    const Logits<T> logit = LogitsOf<T>(ws, x, w, bias, mode);
    const int64_t samples = x.shape[0], width = x.shape[1];
    T* to_x = dx ? ws.Data<T>(dx) : nullptr;
    T* to_bias = dbias ? ws.Data<T>(dbias) : nullptr;
    if (to_x) std::fill_n(to_x, dx.numel, T(0));
    if (to_bias) std::fill_n(to_bias, dbias.numel, T(0));
    const auto to_w = dw.Start(ws, [&](const auto& tell) {
      for (int64_t i = 0; i < samples; ++i)
        paths.ForEachTurn(ws, i, [&](int64_t, int64_t row, bool) { tell(row); });
    });
    const T* g = ws.Data<const T>(dout);
    T* slope = ws.Data<T>(slopes);
    ParallelFor(samples, 1 + 1024 / (1 + width), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        paths.ForEachTurn(ws, i, [&](int64_t j, int64_t row, bool right) {
          const double p = 1 / (1 + std::exp(-logit(i, row)));
          const T s = static_cast<T>((right ? p - 1 : p) * static_cast<double>(g[i]));
          slope[i * longest + j] = s;
          if (to_x) AddScaled(logit.w + row * width, s, width, to_x + i * width);
        });
      }
    });
    // Threads split the columns, since paths share rows.
    const auto for_each = [&](const auto& turn) {
      for (int64_t i = 0; i < samples; ++i)
        paths.ForEachTurn(
            ws, i, [&](int64_t j, int64_t row, bool) { turn(i, row, slope[i * longest + j]); });
    };
    if (to_bias) for_each([&](int64_t, int64_t row, T s) { to_bias[row] += s; });
    ParallelFor(to_w ? width : 0, 16 + 16384 / (1 + samples), [&](int64_t begin, int64_t end) {
      for_each([&](int64_t i, int64_t row, T s) {
        AddScaled(logit.x + i * width + begin, s, end - begin, to_w.At(row) + begin);
      });
    });
  };
}

void DeclareTree(OpDef& def) {
  def.Input("X", "floating-point tensor [B, D]")
      .Input("W", "weights of the inner nodes [nodes, D]")
      .Input("Label", "int64 tensor [B, 1] of classes; not read if there is PathTable")
      .OptionalInput(
          "PathTable",
          "int64 tensor [B, L]: the nodes of each sample's path, up to the first negative number")
      .OptionalInput("PathCode", "int64 tensor [B, L]: 0 or 1, the turn at each node")
      .OptionalInput("Bias", "an element for each node")
      .NoGradientTo({"Label", "PathTable", "PathCode"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("hierarchical_sigmoid")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = for each sample, the sum of log(1 + e^z) - bit z over the nodes of its path, "
               "with z = X W[node] + Bias[node], clipped to [-40, 40]. A path shorter than the "
               "longest adds log(2) for each missing node. Without PathTable, node j of class c is "
               "((c + num_classes) >> (j + 1)) - 1 and its bit is (c + num_classes) >> j & 1. A "
               "label outside of [0, num_classes), or a node outside of W, is an error.")
          .Constraint("C1", "X and W must be matrices of one dtype and width")
          .Constraint("C2", "Label must hold an int32 or int64 for each row of X")
          .Constraint("C3",
                      "PathTable and PathCode must be int64 matrices of one shape, with a row "
                      "for each row of X")
          .Constraint("C4",
                      "without PathTable num_classes must be 2 or more, and W must have "
                      "num_classes - 1 rows")
          .Constraint("C5", "Bias must have X's dtype and an element for each row of W")
          .Apply(DeclareTree)
          .Output("Out", "tensor [B, 1]")
          .IntermediateOutput("PreOut", "log(1 + e^z) [B, L]")
          .IntermediateOutput("W_Out", "W")
          .Attr<int32_t>("num_classes", 2, "number of classes of the tree without PathTable")
          .Attr<bool>(
              "is_sparse", false,
              "with PathTable, the gradient of W is selected rows, one for each node of the paths")
          .Rows(EachBatchRow, kEachBatchRow)
          .Tables({"W", "Bias"})
          .Infer(InferForward)
          .GradientOp({"X", "W", "Label", "PathTable", "PathCode", "Bias"})
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return Forward<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("X").dtype != DType::kFloat32) return {};
            return Forward<float>(c, KernelMode::kAuto);
          }));
  ops.Add(OpDef("hierarchical_sigmoid_grad")
              .Doc("Gradient of hierarchical_sigmoid, with s = (sigmoid(z) - bit) Out@GRAD at each "
                   "node of a path: X@GRAD = sum s W[node], W@GRAD[node] = sum s X, "
                   "Bias@GRAD[node] = sum s.")
              .ConstraintsOf("hierarchical_sigmoid", {"C1", "C2", "C3", "C4", "C5"})
              .Constraint("C6", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareTree)
              .OptionalInput("PreOut", "not read: the logits are recomputed")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("W@GRAD", "gradient of W")
              .OptionalOutput("Bias@GRAD", "gradient of Bias")
              .AttrsOf("hierarchical_sigmoid")
              .NoGradientTo({"PreOut"})
              .NoGradient("second derivatives of hierarchical_sigmoid are not provided")
              .Infer(InferGrad)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return Backward<T>(c, KernelMode::kReference);
              })
              .Fast([](const PrepareContext& c) -> Kernel {
                if (c.Input("X").dtype != DType::kFloat32) return {};
                return Backward<float>(c, KernelMode::kAuto);
              }));
}

}  // namespace coracle::hierarchical_sigmoid_op
