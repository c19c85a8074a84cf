// multihead_matmul: the attention of a transformer, with its projections.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/softmax.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>

namespace coracle::multihead_matmul_op {

void InferAttention(InferContext& ctx) {
  VarMeta x = ctx.Input("Input");
  const VarMeta &w = ctx.Input("W"), &bias = ctx.Input("Bias"), &mask = ctx.Input("BiasQK");
  ctx.Require("C1", x.shape.rank() == 3, "Input", x);
  const bool usual = !ctx.Attr<bool>("transpose_Q") && ctx.Attr<bool>("transpose_K") &&
                     !ctx.Attr<bool>("transpose_V");
  ctx.Require("C2", usual, "transpose_Q", ctx.Attr<bool>("transpose_Q"), "transpose_K",
              ctx.Attr<bool>("transpose_K"), "transpose_V", ctx.Attr<bool>("transpose_V"));
  ctx.Require("C3",
              w.dtype == x.dtype && w.shape.rank() == 3 && InferContext::Matches(w.shape[1], 3) &&
                  InferContext::Matches(w.shape[0], x.shape[2]),
              "W", w, "Input", x);
  const int64_t heads = ctx.Attr<int32_t>("head_number"), hidden = w.shape[2];
  ctx.Require("C4", hidden < 0 || hidden % heads == 0, "head_number", heads, "H", hidden);
  ctx.Require("C5", bias.dtype == x.dtype && bias.shape.CompatibleWith(Shape{3, hidden}), "Bias",
              bias);
  ctx.Require("C6",
              mask.dtype == x.dtype &&
                  mask.shape.CompatibleWith(Shape{x.shape[0], heads, x.shape[1], x.shape[1]}),
              "BiasQK", mask);
  x.shape[2] = hidden;
  ctx.SetOutput("Out", x);
}

template <class T>
void SoftmaxOf(T* row, int64_t n, KernelMode mode) {
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto) return static_cast<void>(SoftmaxRow(row, row, n));
  }
  SoftmaxLine<T>(row, row, n, 1);
}

template <class T>
Kernel Attention(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("Input"), w = ctx.Input("W"), bias = ctx.Input("Bias");
  const TensorArg mask = ctx.Input("BiasQK"), out = ctx.Output("Out");
  const int64_t batch = x.shape[0], steps = x.shape[1], columns = x.shape[2];
  const int64_t hidden = w.shape[2], heads = ctx.Attr<int32_t>("head_number");
  const int64_t size = hidden / heads, rows = batch * steps;
  const auto scratch = [&](const Shape& shape) { return ctx.Scratch(x.dtype, shape); };
  const TensorArg joined = scratch({rows, 3, hidden});
  // q, k and v of every head [batch, heads, steps, size].
  const TensorArg split = scratch({3, batch, heads, steps, size});
  const TensorArg scores = scratch({batch, heads, steps, steps});
  const TensorArg mixed = scratch({batch, heads, steps, size});
  const Gemm<T> project = MakeGemm<T>({.m = rows, .n = 3 * hidden, .k = columns}, mode);
  const GemmBatch each{1, {batch * heads}, {1}, {1}, {1}};
  const Gemm<T> compare = MakeBatchGemm<T>(
      {.m = steps, .n = steps, .k = size, .transpose_b = true, .alpha = ctx.Attr<float>("alpha")},
      each, mode);
  const Gemm<T> mix = MakeBatchGemm<T>({.m = steps, .n = size, .k = steps}, each, mode);
  return [=](Workspace& ws) {
    T *qkv = ws.Data<T>(joined), *parts = ws.Data<T>(split), *score = ws.Data<T>(scores);
    const T *b = ws.Data<const T>(bias), *added = ws.Data<const T>(mask);
    project(ws.Data<const T>(x), ws.Data<const T>(w), qkv);
    // Calls move(index in a row of a [rows, heads, size] tensor, row of the heads' tensor, head).
    const auto for_heads = [&](const auto& move) {
      ParallelFor(rows, 1 + 16384 / (1 + hidden), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t n = r / steps, t = r % steps;
          for (int64_t h = 0; h < heads; ++h) move(r, ((n * heads + h) * steps + t) * size, h);
        }
      });
    };
    for_heads([&](int64_t r, int64_t to, int64_t h) {
      for (int64_t p = 0; p < 3; ++p) {
        const T *from = qkv + (r * 3 + p) * hidden + h * size, *add = b + p * hidden + h * size;
        for (int64_t k = 0; k < size; ++k) parts[p * rows * hidden + to + k] = from[k] + add[k];
      }
    });
    compare(parts, parts + rows * hidden, score);
    ParallelFor(rows * heads, 1 + 4096 / (1 + steps), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t k = 0; k < steps; ++k) score[r * steps + k] += added[r * steps + k];
        SoftmaxOf(score + r * steps, steps, mode);
      }
    });
    T *result = ws.Data<T>(mixed), *o = ws.Data<T>(out);
    mix(score, parts + 2 * rows * hidden, result);
    for_heads([&](int64_t r, int64_t from, int64_t h) {
      std::copy_n(result + from, size, o + r * hidden + h * size);
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("multihead_matmul")
              .Doc("Attention of several heads: q, k, v = Input W + Bias, cut into heads of H / "
                   "head_number columns; Out = softmax(alpha q k^T + BiasQK) v, the heads side by "
                   "side.")
              .Constraint("C1", "Input must be [B, S, columns]")
              .Constraint("C2", "transpose_K must be true, transpose_Q and transpose_V false")
              .Constraint("C3", "W must be [columns of Input, 3, H], of Input's dtype")
              .Constraint("C4", "head_number must divide H")
              .Constraint("C5", "Bias must be [3, H], of Input's dtype")
              .Constraint("C6", "BiasQK must be [B, head_number, S, S], of Input's dtype")
              .Input("Input", "floating-point tensor [B, S, columns]")
              .Input("W", "tensor [columns, 3, H]: the weights of q, k and v")
              .Input("Bias", "tensor [3, H]")
              .Input("BiasQK", "tensor [B, head_number, S, S], added to the scores")
              .Output("Out", "tensor [B, S, H]")
              .Attr<int32_t>("head_number", 1, "heads")
              .Range(1, std::nullopt)
              .Attr<float>("alpha", 1.f, "factor of the scores")
              .Attr<bool>("transpose_Q", false, "false")
              .Attr<bool>("transpose_K", true, "true")
              .Attr<bool>("transpose_V", false, "false")
              .NoGradient("it is made for inference; train with the separate ops")
              .Infer(InferAttention)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return Attention<T>(c, KernelMode::kReference);
              })
              .Fast([](const PrepareContext& c) -> Kernel {
                if (c.Input("Input").dtype != DType::kFloat32) return {};
                return Attention<float>(c, KernelMode::kAuto);
              }));
}

}  // namespace coracle::multihead_matmul_op
