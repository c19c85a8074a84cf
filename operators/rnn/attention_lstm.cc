// attention_lstm: an LSTM whose input in each step is a weighted mean of all rows of the sequence;
// the weights depend on the rows and the cell.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/rnn/gate_activation.h>
#include <coracle/operators/rnn/rnn_rules.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <string>

namespace coracle::attention_lstm_op {

void InferAttention(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 2, "X", x);
  const Shape& c0 = ctx.InputShape("C0");
  ctx.Require("C3", c0.rank() == 2, "C0", c0);
  const int64_t columns = x.shape[1], hidden = c0[1], sum = AddDims(columns, hidden);
  RequireParameter(ctx, "AttentionWeight", {sum, 1});
  RequireParameter(ctx, "LSTMWeight", {sum, MulDims(4, hidden)});
  RequireParameter(ctx, "LSTMBias", {1, MulDims(4, hidden)});
  for (const char* slot : {"AttentionBias", "AttentionScalar", "AttentionScalarBias"}) {
    if (ctx.HasInput(slot)) RequireParameter(ctx, slot, {1, 1});
  }
  const auto sizes = ctx.LevelSizes("X");
  const Shape state = {sizes && sizes->size() == 1 ? sizes->back() : -1, hidden};
  for (const char* slot : {"C0", "H0"}) {
    if (ctx.HasInput(slot))
      ctx.Require("C3", ctx.InputShape(slot).CompatibleWith(state), slot, ctx.InputShape(slot),
                  "wanted", state);
  }
  for (const SlotDef& slot : ctx.spec().inputs) {
    if (ctx.HasInput(slot.name)) RequireDType(ctx, slot.name.c_str(), x.dtype);
  }
  VarMeta out = x;
  out.shape = {x.shape[0], hidden};
  ctx.SetOutput("Hidden", out);
  ctx.SetOutput("Cell", out);
  for (const char* slot : {"AttentionedX", "AttentionFCOut", "LSTMX", "LSTMOUT"})
    ctx.SetOutput(slot, x.dtype, {0});
}

template <class T>
class Attention {
 public:
  Attention(const PrepareContext& ctx, KernelMode mode)
      : x_(ctx.Input("X")),
        c0_(ctx.Input("C0")),
        h0_(ctx.Input("H0")),
        fit_(ctx.Input("AttentionWeight")),
        fit_bias_(ctx.Input("AttentionBias")),
        scalar_(ctx.Input("AttentionScalar")),
        scalar_bias_(ctx.Input("AttentionScalarBias")),
        weight_(ctx.Input("LSTMWeight")),
        bias_(ctx.Input("LSTMBias")),
        hidden_(ctx.Output("Hidden")),
        cell_(ctx.Output("Cell")),
        mode_(mode),
        gate_(GateActivationOf(ctx.Attr<std::string>("gate_activation")), mode),
        activate_cell_(GateActivationOf(ctx.Attr<std::string>("cell_activation")), mode),
        candidate_(GateActivationOf(ctx.Attr<std::string>("candidate_activation")), mode) {
    const int64_t d = c0_.shape[1];
    fits_ = ctx.Scratch(DTypeOf<T>(), {x_.shape[0]});
    shares_ = ctx.Scratch(DTypeOf<T>(), {x_.shape[0]});
    mean_ = ctx.Scratch(DTypeOf<T>(), {x_.shape[1]});
    gates_ = ctx.Scratch(DTypeOf<T>(), {4 * d});
    zeros_ = ctx.Scratch(DTypeOf<T>(), {d});
  }

  void operator()(Workspace& ws, const Sequences& sequences) const {
    const int64_t m = x_.shape[1], d = c0_.shape[1];
    // The part of the weights that does not depend on the cell.
    RunGemm({.m = x_.shape[0], .n = 1, .k = m}, mode_, ws.Data<const T>(x_), ws.Data<const T>(fit_),
            ws.Data<T>(fits_));
    std::fill_n(ws.Data<T>(zeros_), d, T(0));
    for (int64_t i = 0; i < sequences.count(); ++i) {
      const T* c = ws.Data<const T>(c0_) + i * d;
      const T* h = h0_ ? ws.Data<const T>(h0_) + i * d : ws.Data<const T>(zeros_);
      for (int64_t t = sequences.begin(i); t < sequences.end(i); ++t) {
        CheckTimeLimit("running a recurrent op");
        Attend(ws, sequences.begin(i), sequences.length(i), c);
        T *to_c = ws.Data<T>(cell_) + t * d, *to_h = ws.Data<T>(hidden_) + t * d;
        Step(ws, h, c, to_h, to_c);
        c = to_c;
        h = to_h;
      }
    }
  }

 private:
  T One(Workspace& ws, const TensorArg& arg, T otherwise) const {
    return arg ? ws.Data<const T>(arg)[0] : otherwise;
  }

  // The weighted mean of rows [begin, begin + n).
  void Attend(Workspace& ws, int64_t begin, int64_t n, const T* c) const {
    const int64_t m = x_.shape[1], d = c0_.shape[1];
    const T* fit = ws.Data<const T>(fit_) + m;
    T* share = ws.Data<T>(shares_);
    T base = One(ws, fit_bias_, 0);
    for (int64_t k = 0; k < d; ++k) base += c[k] * fit[k];
    const T scale = One(ws, scalar_, 1), shift = One(ws, scalar_bias_, 0);
    for (int64_t k = 0; k < n; ++k) {
      share[k] = std::max(ws.Data<const T>(fits_)[begin + k] + base, T(0));
      if (scalar_) share[k] = std::max(share[k] * scale + shift, T(0));
    }
    SoftmaxLine<T>(share, share, n, 1);
    RunGemm({.m = 1, .n = m, .k = n}, mode_, static_cast<const T*>(share),
            ws.Data<const T>(x_) + begin * m, ws.Data<T>(mean_));
  }

  // Gates in the order forget, input, output, candidate.
  void Step(Workspace& ws, const T* h, const T* c, T* to_h, T* to_c) const {
    const int64_t m = x_.shape[1], d = c0_.shape[1];
    const T* weight = ws.Data<const T>(weight_);
    T* z = ws.Data<T>(gates_);
    std::copy_n(ws.Data<const T>(bias_), 4 * d, z);
    RunGemm({.m = 1, .n = 4 * d, .k = d, .beta = 1.0f}, mode_, h, weight, z);
    RunGemm({.m = 1, .n = 4 * d, .k = m, .beta = 1.0f}, mode_, ws.Data<const T>(mean_),
            weight + 4 * d * d, z);
    gate_(z, 3 * d);
    candidate_(z + 3 * d, d);
    for (int64_t k = 0; k < d; ++k) to_h[k] = to_c[k] = z[k] * c[k] + z[d + k] * z[3 * d + k];
    activate_cell_(to_h, d);
    for (int64_t k = 0; k < d; ++k) to_h[k] *= z[2 * d + k];
  }

  TensorArg x_, c0_, h0_, fit_, fit_bias_, scalar_, scalar_bias_, weight_, bias_, hidden_, cell_;
  KernelMode mode_;
  GateFunction<T> gate_, activate_cell_, candidate_;
  TensorArg fits_, shares_, mean_, gates_, zeros_;
};

template <class T>
Kernel RunAttention(const PrepareContext& ctx, KernelMode mode) {
  const Attention<T> attention(ctx, mode);
  const SequencesArg sequences(ctx, "X", "C5");
  return [=](Workspace& ws) { attention(ws, sequences(ws)); };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("attention_lstm")
          .Doc("LSTM with attention. In each step every row x_s of the sequence gets the weight e "
               "= relu(x_s a_x + AttentionBias + c a_c), where AttentionWeight is a_x stacked on "
               "a_c, and with AttentionScalar e = relu(e AttentionScalar + AttentionScalarBias). "
               "With x = the sum of softmax(e)_s x_s and z = h U + x V + LSTMBias, where "
               "LSTMWeight is U stacked on V and the columns are f, i, o, g: c' = gate(f) c + "
               "gate(i) act(g), h' = gate(o) cell(c').")
          .Constraint("C1", "X must be a matrix")
          .Constraint("C2",
                      "AttentionWeight must be [M + D, 1], LSTMWeight [D + M, 4 D], LSTMBias [1, 4 "
                      "D], the others [1, 1]")
          .Constraint("C3", "C0 and H0 must be [sequences, D]")
          .Constraint("C4", "all inputs must have one dtype")
          .Constraint("C5", "X must have LoD of one level")
          .Input("X", "floating-point tensor [rows, M] with LoD")
          .Input("C0", "c before the first step, a row for each sequence")
          .OptionalInput("H0", "h before the first step; absent: zeros")
          .Input("AttentionWeight", "tensor [M + D, 1]")
          .OptionalInput("AttentionBias", "tensor [1, 1]; absent: 0")
          .OptionalInput("AttentionScalar", "tensor [1, 1]")
          .OptionalInput("AttentionScalarBias", "tensor [1, 1]; absent: 0")
          .Input("LSTMWeight", "tensor [D + M, 4 D]")
          .Input("LSTMBias", "tensor [1, 4 D]")
          .Output("Hidden", "h of every step [rows, D]")
          .Output("Cell", "c of every step [rows, D]")
          .IntermediateOutput("AttentionedX", "empty")
          .IntermediateOutput("AttentionFCOut", "empty")
          .IntermediateOutput("LSTMX", "empty")
          .IntermediateOutput("LSTMOUT", "empty")
          .Apply(DeclareActivation, "gate_activation", "sigmoid", "activation of the three gates")
          .Apply(DeclareActivation, "cell_activation", "tanh", "activation of the cell")
          .Apply(DeclareActivation, "candidate_activation", "tanh", "activation of the candidate")
          .NoGradient("it is made for inference; train with ops in a loop")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferAttention)
          .Reference<float, double>([]<class T>(const PrepareContext& c) {
            return RunAttention<T>(c, KernelMode::kReference);
          })
          .Fast([](const PrepareContext& c) -> Kernel {
            if (c.Input("X").dtype != DType::kFloat32) return {};
            return RunAttention<float>(c, KernelMode::kAuto);
          }));
}

}  // namespace coracle::attention_lstm_op
