#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/update/loss_scale.h>

#include <limits>

namespace coracle::update_loss_scaling_op {

constexpr float kNoCap = std::numeric_limits<float>::max();

void RequireOne(const InferContext& ctx, const char* slot, DType dtype) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  const bool one = !meta.shape.IsKnown() || meta.shape.numel() == 1;
  if (meta.type != VarType::kLoDTensor || meta.dtype != dtype || !one) ctx.Fail("C1", slot, meta);
}

void InferUpdateLossScaling(InferContext& ctx) {
  RequireOne(ctx, "FoundInfinite", DType::kBool);
  RequireOne(ctx, "PrevLossScaling", DType::kFloat32);
  for (const char* slot : {"InGoodSteps", "InBadSteps", "InSkippedSteps"})
    RequireOne(ctx, slot, DType::kInt32);
  ctx.Require("C2", ctx.NumInputs("X") == ctx.NumOutputs("Out"), ctx.NumInputs("X"),
              ctx.NumOutputs("Out"));
  const float incr = ctx.Attr<float>("incr_ratio"), decr = ctx.Attr<float>("decr_ratio");
  ctx.Require("C3", incr > 1 && incr <= kNoCap, incr);
  ctx.Require("C4", decr > 0 && decr < 1, decr);
  const float min = ctx.Attr<float>("min_scale"), max = ctx.Attr<float>("max_scale");
  ctx.Require("C5", min >= 0 && min <= max, "min_scale", min, "max_scale", max);
  ctx.Require("C6", ctx.Attr<int32_t>("max_skipped_steps") == 0 || ctx.HasInput("InSkippedSteps"),
              ctx.Attr<int32_t>("max_skipped_steps"));
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) ctx.SetOutput("Out", ctx.Input("X", i), i);
  ctx.SetOutput("LossScaling", DType::kFloat32, {1});
  for (const char* slot : {"OutGoodSteps", "OutBadSteps", "OutSkippedSteps"})
    ctx.SetOutput(slot, DType::kInt32, {1});
}

// Out = X, or zeros; for a sparse gradient, with the same rows.
void CopyOrZero(Workspace& ws, const TensorArg& x, const TensorArg& out, bool zero) {
  if (!IsSparse(x)) {
    const int64_t bytes = x.nbytes();
    if (zero)
      FillZeroBytes(ws.Data<void>(out), bytes);
    else
      CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    return;
  }
  if (&ws.ValueOf(out) != &ws.ValueOf(x)) CopyValue(ws.ValueOf(x), &ws.ValueOf(out));
  if (auto* rows = std::get_if<SelectedRows>(&ws.ValueOf(out)); rows && zero)
    FillZeroBytes(rows->value.raw(), static_cast<int64_t>(rows->value.nbytes()));
}

LossScaleRule RuleOf(const PrepareContext& ctx) {
  LossScaleRule rule;
  rule.growth_factor = ctx.Attr<float>("incr_ratio");
  rule.backoff_factor = ctx.Attr<float>("decr_ratio");
  rule.growth_interval = ctx.Attr<int32_t>("incr_every_n_steps");
  rule.backoff_interval = ctx.Attr<int32_t>("decr_every_n_nan_or_inf");
  rule.hysteresis = ctx.Attr<int32_t>("hysteresis");
  rule.min_scale = ctx.Attr<float>("min_scale");
  rule.max_scale = ctx.Attr<float>("max_scale");
  rule.max_skipped = ctx.Attr<int32_t>("max_skipped_steps");
  return rule;
}

Kernel UpdateLossScaling(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X"), outs = ctx.Outputs("Out");
  const TensorArg found = ctx.Input("FoundInfinite");
  const TensorArg scale = ctx.Input("PrevLossScaling"), scale_out = ctx.Output("LossScaling");
  const TensorArg good = ctx.Input("InGoodSteps"), good_out = ctx.Output("OutGoodSteps");
  const TensorArg bad = ctx.Input("InBadSteps"), bad_out = ctx.Output("OutBadSteps");
  const TensorArg skip = ctx.Input("InSkippedSteps"), skip_out = ctx.Output("OutSkippedSteps");
  const bool stop = ctx.Attr<bool>("stop_update");
  return [=, rule = RuleOf(ctx)](Workspace& ws) {
    const bool overflow = ReadBool(ws, found, "update_loss_scaling", "FoundInfinite");
    for (size_t i = 0; i < xs.size(); ++i) CopyOrZero(ws, xs[i], outs[i], overflow);
    LossScaleState state{*ws.Data<const float>(scale), *ws.Data<const int32_t>(good),
                         *ws.Data<const int32_t>(bad), skip ? *ws.Data<const int32_t>(skip) : 0};
    if (!stop) state = NextLossScale(rule, state, overflow);
    *ws.Data<float>(scale_out) = state.scale;
    *ws.Data<int32_t>(good_out) = state.good_steps;
    *ws.Data<int32_t>(bad_out) = state.bad_steps;
    if (skip_out) *ws.Data<int32_t>(skip_out) = state.skipped;
    if (!stop) RequireUsableScale(rule, state, "update_loss_scaling");
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("update_loss_scaling")
          .Doc("Updates a dynamic loss scale. With FoundInfinite, good steps are reset to 0 and "
               "bad steps grow by 1; when bad steps reach decr_every_n_nan_or_inf, scale = "
               "max(min_scale, scale decr_ratio), and they are reset to 0. Otherwise, bad steps "
               "are reset to 0 and good steps grow by 1; when good steps reach incr_every_n_steps, "
               "scale = min(max_scale, scale incr_ratio) (unchanged if that is not finite), and "
               "they are reset to 0. With hysteresis > 0, bad steps count all overflows since the "
               "last growth; once they reach hysteresis, each overflow lowers the scale. Out = X, "
               "or zeros with FoundInfinite.")
          .Constraint(
              "C1", "FoundInfinite must be one bool, the scale one float32, counts one int32 each")
          .Constraint("C2", "there must be one Out for each X")
          .Constraint("C3", "incr_ratio must be above 1")
          .Constraint("C4", "decr_ratio must lie between 0 and 1")
          .Constraint("C5", "0 <= min_scale <= max_scale must hold")
          .Constraint("C6", "max_skipped_steps needs InSkippedSteps")
          .OptionalVariadicInput("X", "gradients; set to zero if some are not finite")
          .Input("FoundInfinite", "bool tensor [1]")
          .Input("PrevLossScaling", "float32 tensor [1]")
          .Input("InGoodSteps", "int32 tensor [1], clean steps in a row since the last growth")
          .Input("InBadSteps", "int32 tensor [1], number of steps with overflow")
          .OptionalInput("InSkippedSteps",
                         "int32 tensor [1], number of steps with overflow in a row")
          .OptionalVariadicOutput("Out", "same kind of value as X; may be X")
          .Output("LossScaling", "the new scale")
          .Output("OutGoodSteps", "the new count")
          .Output("OutBadSteps", "the new count")
          .OptionalOutput("OutSkippedSteps", "the new count")
          .Attr<int32_t>("incr_every_n_steps", "clean steps in a row before the scale grows")
          .Range(1, std::nullopt)
          .Attr<int32_t>("decr_every_n_nan_or_inf", "overflows in a row before the scale backs off")
          .Range(1, std::nullopt)
          .Attr<float>("incr_ratio", "factor of a growth")
          .Attr<float>("decr_ratio", "factor of a backoff")
          .Attr<bool>("stop_update", false, "only set X to zero; scale and counts are unchanged")
          .Attr<float>("min_scale", 1.0f, "lower limit of the scale")
          .Attr<float>("max_scale", kNoCap, "upper limit of the scale")
          .Attr<int32_t>("hysteresis", 0, "number of overflows before the first backoff; 0: off")
          .Range(0, std::nullopt)
          .Attr<int32_t>("max_skipped_steps", 0,
                         "number of consecutive overflows, ending at min_scale, after which the "
                         "run fails; 0: never")
          .Range(0, std::nullopt)
          .Takes(VarType::kSelectedRows, {"X"})
          .Inplace("X", "Out")
          .Inplace("PrevLossScaling", "LossScaling")
          .Inplace("InGoodSteps", "OutGoodSteps")
          .Inplace("InBadSteps", "OutBadSteps")
          .Inplace("InSkippedSteps", "OutSkippedSteps")
          .Rows(RowRule::kMixes)
          .Infer(InferUpdateLossScaling)
          .NoGradient("it is applied to gradients, after differentiation")
          .Reference(UpdateLossScaling));
}

}  // namespace coracle::update_loss_scaling_op
