// lstm_unit: the cell of an LSTM, given its gates.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::lstm_unit_op {

using activation::SigmoidOf;

VarMeta CheckUnit(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &c = ctx.Input("C_prev");
  ctx.Require("C1",
              x.shape.rank() == 2 && c.shape.rank() == 2 &&
                  InferContext::Matches(x.shape[0], c.shape[0]) &&
                  InferContext::Matches(x.shape[1], MulDims(4, c.shape[1])) && x.dtype == c.dtype,
              "X", x, "C_prev", c);
  return c;
}

void InferUnit(InferContext& ctx) {
  const VarMeta c = CheckUnit(ctx);
  ctx.SetOutput("C", c);
  ctx.SetOutput("H", c);
}

void InferUnitGrad(InferContext& ctx) {
  const VarMeta c = CheckUnit(ctx);
  for (const char* slot : {"C", "C@GRAD", "H@GRAD"}) {
    if (!ctx.HasInput(slot)) continue;
    const VarMeta& got = ctx.Input(slot);
    ctx.Require("C2", got.dtype == c.dtype && got.shape.CompatibleWith(c.shape), slot, got,
                "C_prev", c);
  }
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("C_prev@GRAD", c);
}

// Calls cell(row, at) for each row of gates, i, f, o and candidate of D elements each; `at` is the
// index of the row's cell.
template <class T, class Cell>
void ForRows(const TensorArg& c, const T* x, const Cell& cell) {
  const int64_t d = c.shape[1];
  if (c.numel == 0) return;  // the number of empty rows may be huge
  ParallelFor(c.shape[0], 1 + 4096 / (1 + d), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) cell(x + row * 4 * d, row * d);
  });
}

template <class T>
KernelOf<T> Unit(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), before = ctx.Input("C_prev");
  const TensorArg cell = ctx.Output("C"), hidden = ctx.Output("H");
  const T forget_bias = static_cast<T>(ctx.Attr<float>("forget_bias"));
  return [=](Workspace& ws) {
    const T* was = ws.Data<const T>(before);
    T* c = cell ? ws.Data<T>(cell) : nullptr;
    T* h = hidden ? ws.Data<T>(hidden) : nullptr;
    const int64_t d = before.shape[1];
    ForRows(before, ws.Data<const T>(x), [&](const T* z, int64_t at) {
      for (int64_t k = 0; k < d; ++k) {
        const T i = SigmoidOf(z[k]), f = SigmoidOf(z[d + k] + forget_bias);
        const T o = SigmoidOf(z[2 * d + k]), g = std::tanh(z[3 * d + k]);
        const T now = f * was[at + k] + i * g;
        if (c) c[at + k] = now;
        if (h) h[at + k] = o * std::tanh(now);
      }
    });
  };
}

template <class T>
KernelOf<T> UnitGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), before = ctx.Input("C_prev");
  const TensorArg dcell = ctx.Input("C@GRAD"), dhidden = ctx.Input("H@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dbefore = ctx.Output("C_prev@GRAD");
  const T forget_bias = static_cast<T>(ctx.Attr<float>("forget_bias"));
  return [=](Workspace& ws) {
    const T* was = ws.Data<const T>(before);
    const T* dc_given = dcell ? ws.Data<const T>(dcell) : nullptr;
    const T* dh_given = dhidden ? ws.Data<const T>(dhidden) : nullptr;
    T* to_x = dx ? ws.Data<T>(dx) : nullptr;
    T* to_c = dbefore ? ws.Data<T>(dbefore) : nullptr;
    const int64_t d = before.shape[1];
    ForRows(before, ws.Data<const T>(x), [&](const T* z, int64_t at) {
      for (int64_t k = 0; k < d; ++k) {
        const T i = SigmoidOf(z[k]), f = SigmoidOf(z[d + k] + forget_bias);
        const T o = SigmoidOf(z[2 * d + k]), g = std::tanh(z[3 * d + k]);
        const T t = std::tanh(f * was[at + k] + i * g);
        const T dh = dh_given ? dh_given[at + k] : T(0);
        const T dc = (dc_given ? dc_given[at + k] : T(0)) + dh * o * (1 - t * t);
        if (to_c) to_c[at + k] = dc * f;
        if (!to_x) continue;
        T* dz = to_x + 4 * at + k;
        dz[0] = dc * g * i * (1 - i);
        dz[d] = dc * was[at + k] * f * (1 - f);
        dz[2 * d] = dh * t * o * (1 - o);
        dz[3 * d] = dc * i * (1 - g * g);
      }
    });
  };
}

void DeclareInputs(OpDef& def) {
  def.Input("X", "floating-point tensor [B, 4 D]: input gate, forget gate, output gate, candidate")
      .Input("C_prev", "the previous cell [B, D]");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("lstm_unit")
              .Doc("The cell of an LSTM for gates i, f, o, g = X and s the sigmoid: C = s(f + "
                   "forget_bias) C_prev + s(i) tanh(g), H = s(o) tanh(C).")
              .Constraint("C1", "X must be [B, 4 D] and C_prev [B, D], of one dtype")
              .Apply(DeclareInputs)
              .Output("C", "the cell [B, D]")
              .Output("H", "the hidden state [B, D]")
              .Attr<float>("forget_bias", 0.f, "added to the forget gate")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferUnit)
              .GradientOp({"X", "C_prev", "C"})
              .Reference(Unit<float>, Unit<double>));
  ops.Add(OpDef("lstm_unit_grad")
              .Doc("Gradient of lstm_unit, from both of its outputs.")
              .ConstraintsOf("lstm_unit", {"C1"})
              .Constraint("C2", "C and the gradients of C and H must have C_prev's shape and dtype")
              .Apply(DeclareInputs)
              .OptionalInput("C", "not read: it is recomputed")
              .OptionalInput("C@GRAD", "gradient of C; absent: zeros")
              .OptionalInput("H@GRAD", "gradient of H; absent: zeros")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("C_prev@GRAD", "gradient of C_prev")
              .AttrsOf("lstm_unit")
              .NoGradientTo({"C"})
              .NoGradient("second derivatives of recurrent ops are not in use: write the cell as "
                          "ops in a loop")
              .Infer(InferUnitGrad)
              .Reference(UnitGrad<float>, UnitGrad<double>));
}

}  // namespace coracle::lstm_unit_op
