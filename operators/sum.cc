#include <coracle/framework/base/parallel.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/common/arithmetic.h>
#include <coracle/operators/common/simd.h>

#include <algorithm>

namespace coracle {
namespace {

void InferSum(InferContext& ctx) {
  VarMeta meta = ctx.Input("X", 0);
  for (size_t i = 1; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& other = ctx.Input("X", i);
    if (!meta.shape.CompatibleWith(other.shape)) {
      ctx.FailText("C1", "all X must have one shape",
                   meta.shape.ToString() + " and " + other.shape.ToString());
    }
    ctx.Require("C2", meta.dtype == other.dtype, "all X must have one dtype");
    for (int d = 0; d < meta.shape.rank(); ++d) {
      meta.shape[d] = std::max(meta.shape[d], other.shape[d]);
    }
  }
  ctx.SetOutput("Out", meta);
}

// Out may be X[0]; a block of it is read before it is written.
template <class T>
Kernel SumReference(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < out.numel; ++i) {
      T sum = ws.Data<const T>(xs[0])[i];
      for (size_t k = 1; k < xs.size(); ++k) sum = WrapAdd(sum, ws.Data<const T>(xs[k])[i]);
      o[i] = sum;
    }
  };
}

Kernel SumFast(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  if (out.dtype != DType::kFloat32) return {};
  const auto add = simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  return [=](Workspace& ws) {
    float* o = ws.Data<float>(out);
    const float* first = ws.Data<const float>(xs[0]);
    if (xs.size() == 1 && o == first) return;
    ParallelFor(out.numel, 32768, [&](int64_t begin, int64_t end) {
      // Blocks that stay in the first-level cache while the inputs are added to them.
      for (int64_t at = begin; at < end; at += 2048) {
        const int64_t n = std::min<int64_t>(2048, end - at);
        if (xs.size() == 1) {
          std::copy_n(first + at, n, o + at);
          continue;
        }
        add(first + at, ws.Data<const float>(xs[1]) + at, o + at, n);
        for (size_t k = 2; k < xs.size(); ++k)
          add(o + at, ws.Data<const float>(xs[k]) + at, o + at, n);
      }
    });
  };
}

// Each dX[i] = dOut, by scale.
void SumGradient(GradientContext& g) {
  const std::vector<std::string> grads = g.InputGrads("X");
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!g.NeedsInputGrad("X", i)) continue;
    g.Append("scale", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {grads[i]}}}, {{"scale", 1.0f}});
  }
}

}  // namespace

void RegisterSum(OpRegistry& ops) {
  ops.Add(
      OpDef("sum")
          .Doc("Out = X[0] + X[1] + ..., element by element. C1: all X have one shape. "
               "C2: all X have one dtype.")
          .VariadicInput("X", "one or more tensors")
          .Output("Out", "tensor of their shape and dtype")
          .Inplace("X", "Out")
          .Elementwise()
          .Infer(InferSum)
          .Gradient(SumGradient)
          .Reference<float, double, int32_t, int64_t, int16_t, int8_t, uint8_t, float16, bfloat16>(
              []<class T>(const PrepareContext& c) { return SumReference<T>(c); })
          .Fast(SumFast));
}

}  // namespace coracle
