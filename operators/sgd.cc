#include <coracle/framework/base/parallel.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/common/update.h>

namespace coracle {
namespace {

template <class T>
Kernel Sgd(const PrepareContext& ctx, decltype(&SgdUpdate<T>) update) {
  const TensorArg param = ctx.Input("Param"), grad = ctx.Input("Grad");
  const TensorArg param_out = ctx.Output("ParamOut");
  const ScalarInput lr(ctx.Input("LearningRate"));
  return [=](Workspace& ws) {
    const T *p = ws.Data<const T>(param), *g = ws.Data<const T>(grad);
    T* out = ws.Data<T>(param_out);
    const double rate = lr(ws);
    ParallelFor(param.numel, kUpdateGrain, [&](int64_t begin, int64_t end) {
      update(p + begin, g + begin, rate, out + begin, end - begin);
    });
  };
}

}  // namespace

void RegisterSgd(OpRegistry& ops) {
  ops.Add(OpDef("sgd")
              .Doc("ParamOut = Param - LearningRate Grad. C1: Grad is a dense tensor of Param's "
                   "shape and dtype. C2: LearningRate holds one element.")
              .Input("Param", "the parameter")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Input("Grad", "the parameter's gradient")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Inplace("Param", "ParamOut")
              .Infer([](InferContext& ctx) { InferUpdate(ctx, {}, {"LearningRate"}); })
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference<float, double>(
                  []<class T>(const PrepareContext& c) { return Sgd<T>(c, SgdUpdate<T>); })
              .Fast([](const PrepareContext& c) {
                return c.Input("Param").dtype == DType::kFloat32 ? Sgd<float>(c, SgdUpdateSimd)
                                                                 : Kernel();
              }));
}

}  // namespace coracle
