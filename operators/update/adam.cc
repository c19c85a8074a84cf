#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update_loop.h>

#include <optional>

namespace coracle::adam_op {

void InferAdam(InferContext& ctx) {
  InferUpdate(
      ctx, {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}},
      {"LearningRate", "Beta1Pow", "Beta2Pow", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor"});
  if (ctx.HasInput("SkipUpdate")) {
    const VarMeta& skip = ctx.Input("SkipUpdate");
    ctx.Require("C3",
                skip.dtype == DType::kBool && (!skip.shape.IsKnown() || skip.shape.numel() == 1),
                skip);
  }
  ctx.SetOutput("Beta1PowOut", ctx.Input("Beta1Pow"));
  ctx.SetOutput("Beta2PowOut", ctx.Input("Beta2Pow"));
  InferMasterParam(ctx, "C4");
}

template <class T>
struct Args {
  UpdatedParam param;
  TensorArg grad, m, v, m_out, v_out;
  std::optional<RowsInput> rows;  // set if Grad is selected rows
  std::optional<RowGrouper> grouper;
  bool lazy = false;
  explicit Args(const PrepareContext& ctx)
      : param(ctx),
        grad(ctx.Input("Grad")),
        m(ctx.Input("Moment1")),
        v(ctx.Input("Moment2")),
        m_out(ctx.Output("Moment1Out")),
        v_out(ctx.Output("Moment2Out")) {
    if (!IsSparse(grad)) return;
    rows.emplace(ctx, "Grad", 0, param.in.shape);
    grouper.emplace(ctx);
    lazy = ctx.Attr<bool>("lazy_mode");
  }

  // With lazy_mode, only the stored rows and their moments change; otherwise the other rows are
  // updated with gradient 0.
  void RunRows(Workspace& ws, const AdamStep& step, decltype(&AdamUpdate<T>) update) const {
    UpdateRows(ws, step, update);
    param.template CopyOut<T>(ws, 0, param.in.numel);
  }
  void UpdateRows(Workspace& ws, const AdamStep& step, decltype(&AdamUpdate<T>) update) const {
    const RowsView view = (*rows)(ws);
    const RowGroups groups = (*grouper)(ws, view);
    if (lazy) Copy(ws);
    const T *p = ws.Data<const T>(param.in), *m1 = ws.Data<const T>(m), *m2 = ws.Data<const T>(v);
    T *p_to = ws.Data<T>(param.out), *m1_to = ws.Data<T>(m_out), *m2_to = ws.Data<T>(v_out);
    const auto piece = [&](int64_t at, const T* g, int64_t n) {
      update(p + at, g, m1 + at, m2 + at, step, p_to + at, m1_to + at, m2_to + at, n);
    };
    if (!lazy) return ForEachRow<T>(groups, view, piece);
    const int64_t ahead = PrefetchDistance(view.width * static_cast<int64_t>(sizeof(T)));
    ForEachGroup(groups, view.data<T>(), view.width,
                 [&](int64_t k, int64_t at, const T* g, int64_t n) {
                   PrefetchGroup(groups, k + ahead, view.width, p_to, m1_to, m2_to);
                   piece(groups.rows[static_cast<size_t>(k)] * view.width + at, g, n);
                 });
  }
  void RunDense(Workspace& ws, const AdamStep& step, decltype(&AdamUpdate<T>) update, int64_t begin,
                int64_t end) const {
    update(ws.Data<const T>(param.in) + begin, ws.Data<const T>(grad) + begin,
           ws.Data<const T>(m) + begin, ws.Data<const T>(v) + begin, step,
           ws.Data<T>(param.out) + begin, ws.Data<T>(m_out) + begin, ws.Data<T>(v_out) + begin,
           end - begin);
    param.template CopyOut<T>(ws, begin, end);
  }
  void Copy(Workspace& ws) const { Copy(ws, 0, param.in.numel); }
  void Copy(Workspace& ws, int64_t begin, int64_t end) const {
    for (auto [from, to] :
         {std::pair(param.in, param.out), std::pair(m, m_out), std::pair(v, v_out)}) {
      CopyBytes(ws.Data<const T>(from) + begin, ws.Data<T>(to) + begin,
                (end - begin) * static_cast<int64_t>(sizeof(T)));
    }
    param.template CopyOut<T>(ws, begin, end);
  }
};

// The scalars of an update, and the update of the powers of the betas.
class Scalars {
 public:
  explicit Scalars(const PrepareContext& ctx)
      : pow1_(ctx.Input("Beta1Pow"), ctx.Output("Beta1PowOut")),
        pow2_(ctx.Input("Beta2Pow"), ctx.Output("Beta2PowOut")),
        lr_(ctx.Input("LearningRate")),
        beta1_(ctx.Input("Beta1Tensor"), HyperParameter(ctx, "beta1")),
        beta2_(ctx.Input("Beta2Tensor"), HyperParameter(ctx, "beta2")),
        epsilon_(ctx.Input("EpsilonTensor"), HyperParameter(ctx, "epsilon")),
        skip_(ctx.Input("SkipUpdate")),
        keep_powers_(ctx.Attr<bool>("use_global_beta_pow")),
        hat_(ctx.Attr<bool>("use_epsilon_hat")) {}

  bool Skip(Workspace& ws) const { return skip_ && *ws.Data<const bool>(skip_); }
  AdamStep Step(Workspace& ws) const {
    const double root = std::sqrt(1 - pow2_(ws));
    return {.lr = lr_(ws) * root / (1 - pow1_(ws)),
            .beta1 = beta1_(ws),
            .beta2 = beta2_(ws),
            .epsilon = epsilon_(ws) * (hat_ ? 1 : root)};
  }
  void MovePowers(Workspace& ws) const {
    const bool stay = keep_powers_ || Skip(ws);
    pow1_.Multiply(ws, stay ? 1 : beta1_(ws));
    pow2_.Multiply(ws, stay ? 1 : beta2_(ws));
  }

 private:
  DecayPower pow1_, pow2_;
  ScalarInput lr_, beta1_, beta2_, epsilon_;
  TensorArg skip_;
  bool keep_powers_, hat_;
};

template <class T>
Kernel AdamOfRows(const PrepareContext& ctx, decltype(&AdamUpdate<T>) update) {
  return [=, args = Args<T>(ctx), scalars = Scalars(ctx)](Workspace& ws) {
    if (scalars.Skip(ws))
      args.Copy(ws);
    else
      args.RunRows(ws, scalars.Step(ws), update);
    scalars.MovePowers(ws);
  };
}

template <class T>
Kernel Adam(const PrepareContext& ctx, decltype(&AdamUpdate<T>) update) {
  if (IsSparse(ctx.Input("Grad"))) return AdamOfRows<T>(ctx, update);
  return SweepItems(ctx, kUpdateGrain / 2, [=](const PrepareContext& item) -> TensorWork {
    const Args<T> args(item);
    const Scalars scalars(item);
    return {args.param.in.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) {
              if (scalars.Skip(ws))
                args.Copy(ws, begin, end);
              else
                args.RunDense(ws, scalars.Step(ws), update, begin, end);
            },
            [=](Workspace& ws) { scalars.MovePowers(ws); }};
  });
}

OpDef AdamDef() {
  return OpDef("adam")
      .Doc(
          "Moment1Out = beta1 Moment1 + (1 - beta1) Grad; Moment2Out = beta2 Moment2 + (1 - beta2) "
          "Grad^2; r = sqrt(1 - Beta2Pow); ParamOut = Param - LearningRate r / (1 - Beta1Pow) "
          "Moment1Out / (sqrt(Moment2Out) + epsilon r), or / (sqrt(Moment2Out) + epsilon) with "
          "use_epsilon_hat (Paddle before 2.0, Caffe, the paper's epsilon hat); then Beta1PowOut = "
          "beta1 Beta1Pow and Beta2PowOut = beta2 Beta2Pow. Rows that a sparse Grad does not hold "
          "are updated with gradient 0; with lazy_mode they and their moments are unchanged. If "
          "there is a MasterParam, it is updated, and ParamOut is a rounded copy of it.")
      .Constraint("C1", "Grad and the moments must have Param's shape and dtype")
      .Constraint("C2",
                  "LearningRate, Beta1Pow, Beta2Pow and the tensors that replace attrs must hold "
                  "one element")
      .Constraint("C3", "SkipUpdate must be one bool")
      .Constraint("C4", "a MasterParam needs MasterParamOut")
      .Input("Param", "the parameter")
      .Input("Grad", "the parameter's gradient, a tensor or selected rows")
      .Input("LearningRate", "tensor [1], float32 or float64")
      .Input("Moment1", "running mean of gradients")
      .Input("Moment2", "running mean of squared gradients")
      .Input("Beta1Pow", "tensor [1]: beta1 to the power of the step, counted from 1")
      .Input("Beta2Pow", "tensor [1]: beta2 to the power of the step, counted from 1")
      .OptionalInput("Beta1Tensor", "tensor [1]; replaces attr beta1")
      .OptionalInput("Beta2Tensor", "tensor [1]; replaces attr beta2")
      .OptionalInput("EpsilonTensor", "tensor [1]; replaces attr epsilon")
      .OptionalInput("MasterParam", "float32 values of a 16-bit Param")
      .OptionalInput("SkipUpdate", "bool tensor [1]: if true, nothing is updated")
      .Output("ParamOut", "the updated parameter, usually Param itself")
      .Output("Moment1Out", "usually Moment1 itself")
      .Output("Moment2Out", "usually Moment2 itself")
      .OptionalOutput("Beta1PowOut", "usually Beta1Pow itself")
      .OptionalOutput("Beta2PowOut", "usually Beta2Pow itself")
      .OptionalOutput("MasterParamOut", "the updated MasterParam")
      .Attr<float>("beta1", 0.9f, "decay rate of Moment1")
      .Attr<float>("beta2", 0.999f, "decay rate of Moment2")
      .Attr<float>("epsilon", 1e-8f, "avoids division by zero")
      .Attr<bool>("lazy_mode", false, "a sparse Grad updates only its own rows")
      .Attr<int64_t>("min_row_size_to_use_multithread", 1000, "accepted from files, not used")
      .Attr<bool>("multi_precision", false, "accepted from files: for float16 parameters")
      .Attr<bool>("use_global_beta_pow", false, "the powers are updated elsewhere")
      .Attr<bool>("use_epsilon_hat", false, "epsilon is not corrected for the bias of Moment2");
}

void Register(OpRegistry& ops) {
  ops.Add(AdamDef()
              .Takes(VarType::kSelectedRows, {"Grad"})
              .MultiTensor(
                  {"LearningRate", "Beta1Tensor", "Beta2Tensor", "EpsilonTensor", "SkipUpdate"})
              .Inplace("Param", "ParamOut")
              .Inplace("Moment1", "Moment1Out")
              .Inplace("Moment2", "Moment2Out")
              .Inplace("Beta1Pow", "Beta1PowOut")
              .Inplace("Beta2Pow", "Beta2PowOut")
              .Inplace("MasterParam", "MasterParamOut")
              .Rows(RowRule::kEach)
              .Infer(InferAdam)
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference<float, double>(
                  []<class T>(const PrepareContext& c) { return Adam<T>(c, AdamUpdate<T>); })
              .Fast([](const PrepareContext& c) {
                return c.Input("Param").dtype == DType::kFloat32 ? Adam<float>(c, AdamUpdateSimd)
                                                                 : Kernel();
              }));
}

}  // namespace coracle::adam_op
