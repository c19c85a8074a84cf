#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/sweep.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update.h>

namespace coracle::momentum_op {

void InferMomentum(InferContext& ctx) {
  InferUpdate(ctx, {{"Velocity", "VelocityOut"}}, {"LearningRate"});
  InferMasterParam(ctx, "C3");
}

MomentumStep StepOf(const PrepareContext& ctx) {
  const bool decays = ctx.Attr<std::string>("regularization_method") == "l2_decay";
  return {.lr = 0,
          .mu = HyperParameter(ctx, "mu"),
          .rescale = HyperParameter(ctx, "rescale_grad"),
          .decay = decays ? HyperParameter(ctx, "regularization_coeff") : 0.0,
          .nesterov = ctx.Attr<bool>("use_nesterov")};
}

// The step with the rate of a run. If the velocity holds the rate, the gradient is multiplied
// by it.
MomentumStep WithRate(MomentumStep step, double lr, bool velocity_holds_rate) {
  step.lr = velocity_holds_rate ? 1 : lr;
  if (!velocity_holds_rate) return step;
  step.rescale *= lr;
  step.decay *= lr;
  return step;
}

// Updates every row by its velocity; a row that is not stored has no gradient.
template <class T>
Kernel MomentumOfRows(const PrepareContext& ctx, decltype(&MomentumUpdate<T>) update) {
  const UpdatedParam param(ctx);
  const TensorArg velocity = ctx.Input("Velocity"), velocity_out = ctx.Output("VelocityOut");
  const RowsInput grad(ctx, "Grad", 0, param.in.shape);
  const RowGrouper grouper(ctx);
  const ScalarInput lr(ctx.Input("LearningRate"));
  const bool holds_rate = ctx.Attr<bool>("velocity_holds_rate");
  return [=, fixed = StepOf(ctx)](Workspace& ws) {
    const RowsView rows = grad(ws);
    const T *p = ws.Data<const T>(param.in), *v = ws.Data<const T>(velocity);
    T *p_out = ws.Data<T>(param.out), *v_out = ws.Data<T>(velocity_out);
    const MomentumStep step = WithRate(fixed, lr(ws), holds_rate);
    ForEachRow<T>(grouper(ws, rows), rows, [&](int64_t at, const T* g, int64_t n) {
      update(p + at, g, v + at, step, p_out + at, v_out + at, n);
    });
    param.CopyOut<T>(ws, 0, param.in.numel);
  };
}

template <class T>
Kernel Momentum(const PrepareContext& ctx, decltype(&MomentumUpdate<T>) update) {
  if (IsSparse(ctx.Input("Grad"))) return MomentumOfRows<T>(ctx, update);
  const ScalarInput lr(ctx.Input("LearningRate"));
  const MomentumStep fixed = StepOf(ctx);
  const bool holds_rate = ctx.Attr<bool>("velocity_holds_rate");
  return SweepItems(ctx, kUpdateGrain, [=](const PrepareContext& item) -> TensorWork {
    const UpdatedParam p(item);
    const TensorArg g = item.Input("Grad"), v = item.Input("Velocity");
    const TensorArg v_out = item.Output("VelocityOut");
    return {p.in.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) {
              const MomentumStep step = WithRate(fixed, lr(ws), holds_rate);
              update(ws.Data<const T>(p.in) + begin, ws.Data<const T>(g) + begin,
                     ws.Data<const T>(v) + begin, step, ws.Data<T>(p.out) + begin,
                     ws.Data<T>(v_out) + begin, end - begin);
              p.CopyOut<T>(ws, begin, end);
            },
            nullptr};
  });
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("momentum")
          .Doc("g = rescale_grad Grad (+ regularization_coeff Param with l2_decay); VelocityOut = "
               "mu Velocity + g; ParamOut = Param - LearningRate VelocityOut, or Param - "
               "LearningRate (g + mu VelocityOut) with use_nesterov. With velocity_holds_rate "
               "(Caffe), LearningRate multiplies g instead of the velocity: after a change of the "
               "rate, the old velocity still has the old rate. Rows that a sparse Grad does not "
               "hold are updated with gradient 0, so the time is that of a dense update. If there "
               "is a MasterParam, it is updated, and ParamOut is a rounded copy of it.")
          .Constraint("C1", "Grad and Velocity must have Param's shape and dtype")
          .Constraint("C2", "LearningRate must hold one element")
          .Constraint("C3", "a MasterParam needs MasterParamOut")
          .Input("Param", "the parameter")
          .Input("Grad", "the parameter's gradient, a tensor or selected rows")
          .Input("Velocity", "the running sum of gradients")
          .Input("LearningRate", "tensor [1], float32 or float64")
          .OptionalInput("MasterParam", "float32 values of a 16-bit Param")
          .Output("ParamOut", "the updated parameter, usually Param itself")
          .Output("VelocityOut", "the updated velocity, usually Velocity itself")
          .OptionalOutput("MasterParamOut", "the updated MasterParam")
          .Attr<float>("mu", "decay rate of the velocity")
          .Attr<bool>("use_nesterov", false, "use Nesterov momentum")
          .Attr<std::string>("regularization_method", "", "l2_decay: L2 weight decay; empty: none")
          .OneOf({"", "l2_decay"})
          .Attr<float>("regularization_coeff", 0.0f, "coefficient of the weight decay")
          .Attr<bool>("multi_precision", false, "accepted from files: for float16 parameters")
          .Attr<float>("rescale_grad", 1.0f, "factor applied to the gradient first")
          .Attr<bool>("velocity_holds_rate", false, "the velocity accumulates LearningRate g")
          .Takes(VarType::kSelectedRows, {"Grad"})
          .MultiTensor({"LearningRate"})
          .Inplace("Param", "ParamOut")
          .Inplace("Velocity", "VelocityOut")
          .Inplace("MasterParam", "MasterParamOut")
          .Rows(RowRule::kEach)
          .Infer(InferMomentum)
          .NoGradient("an update of a parameter is not part of the loss")
          .Reference<float, double>(
              []<class T>(const PrepareContext& c) { return Momentum<T>(c, MomentumUpdate<T>); })
          .Fast([](const PrepareContext& c) {
            return c.Input("Param").dtype == DType::kFloat32
                       ? Momentum<float>(c, MomentumUpdateSimd)
                       : Kernel();
          }));
}

}  // namespace coracle::momentum_op
