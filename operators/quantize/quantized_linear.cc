// The declaration of quantized_linear, and its reference kernel.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/quantize/quantized_linear.h>
#include <coracle/operators/rules/dims.h>

#include <type_traits>
#include <vector>

namespace coracle::quantized_linear_op {

// Whether there is one step, or one for each row of Weight and, with blocks, for each block of it.
bool AreSteps(const Shape& shape, int64_t rows, int64_t columns, int64_t block) {
  if (InferContext::Matches(NumelOf(shape), 1)) return true;
  if (block == 0) return shape.CompatibleWith({rows});
  const int64_t blocks = columns < 0 ? -1 : columns / block + (columns % block != 0);
  return shape.CompatibleWith({rows, blocks});
}

void InferQuantizedLinear(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const VarMeta &weight = ctx.Input("Weight"), &scale = ctx.Input("Scale");
  ctx.Require("C1", out.shape.rank() >= 1, "X", out);
  const auto bits = ctx.Attr<int32_t>("bits");
  ctx.Require("C2", bits == 4 || bits == 8, "bits", bits);
  const int last = out.shape.rank() - 1;
  const int64_t columns = out.shape[last];
  ctx.Require(
      "C3",
      IsByte(weight.dtype) && weight.shape.rank() == 2 &&
          (columns < 0 || InferContext::Matches(weight.shape[1], PackedBytes(columns, bits))),
      "Weight", weight, "X", out, "bits", bits);
  const int64_t rows = weight.shape[0], block = ctx.Attr<int64_t>("block_size");
  ctx.Require("C4", scale.dtype == DType::kFloat32 && AreSteps(scale.shape, rows, columns, block),
              "Scale", scale, "Weight", weight);
  if (ctx.HasInput("ZeroPoint")) {
    const VarMeta& zero = ctx.Input("ZeroPoint");
    ctx.Require("C5", zero.dtype == weight.dtype && AreSteps(zero.shape, rows, columns, block),
                "ZeroPoint", zero, "Weight", weight);
  }
  if (ctx.HasInput("Bias")) {
    const VarMeta& bias = ctx.Input("Bias");
    ctx.Require("C6", bias.dtype == out.dtype && bias.shape.CompatibleWith({rows}), "Bias", bias,
                "Weight", weight, "X", out);
  }
  out.shape[last] = rows;
  ctx.SetOutput("Out", out);
}

// --- the reference kernel ---

// Row `row` of Weight, multiplied by its scales.
void Dequantize(const QuantizedLayer& p, const Workspace& ws, int64_t row, double* to) {
  const int64_t bytes = PackedBytes(p.k, p.bits);
  const PackedRow numbers{ws.Data<const uint8_t>(p.weight) + row * bytes, p.bits, p.IsSigned()};
  const auto* scales = ws.Data<const float>(p.scale);
  const void* zeros = p.zero ? ws.Data<const void>(p.zero) : nullptr;
  for (int64_t i = 0; i < p.k; ++i) {
    const int64_t b = i / p.block;
    const int32_t zero = zeros ? IntegerAt(p.zero.dtype, zeros, p.StepAt(p.zero, row, b)) : 0;
    to[i] = (numbers.At(i) - zero) * static_cast<double>(scales[p.StepAt(p.scale, row, b)]);
  }
}

template <class T>
KernelOf<T> QuantizedLinear(const PrepareContext& ctx) {
  return [p = QuantizedLayer(ctx)](Workspace& ws) {
    if (p.out.numel == 0) return;
    ParallelFor(p.n, 1 + 32768 / (1 + p.m * p.k), [&](int64_t begin, int64_t end) {
      std::vector<double> weight(static_cast<size_t>(p.k));
      for (int64_t j = begin; j < end; ++j) {
        if (p.k > 0) Dequantize(p, ws, j, weight.data());
        for (int64_t i = 0; i < p.m; ++i) {
          const T* x = p.k > 0 ? ws.Data<const T>(p.x) + i * p.k : nullptr;
          double sum = p.bias ? static_cast<double>(ws.Data<const T>(p.bias)[j]) : 0;
          for (int64_t r = 0; r < p.k; ++r)
            sum += static_cast<double>(x[r]) * weight[static_cast<size_t>(r)];
          p.activation.Apply(&sum, 1);
          ws.Data<T>(p.out)[i * p.n + j] = static_cast<T>(sum);
        }
      }
    });
  };
}

// --- declaration ---

double LayerMultiplyAdds(const OpShapes& op) {
  const Shape *x = op.In("X"), *weight = op.In("Weight");
  return x && weight && weight->rank() == 2 ? Elements(*x) * Elements(*weight, 0, 1) : 0;
}

void DeclareConstraints(OpDef& def) {
  def.Constraint("C1", "X must have a dimension")
      .Constraint("C2", "bits must be 4 or 8")
      .Constraint("C3",
                  "Weight must be an int8 or uint8 matrix whose rows hold a number for each column "
                  "of X: K bytes, or ceil(K / 2) with 4 bits")
      .Constraint("C4",
                  "Scale must be float32 with one element, or one for each row of Weight [N]; with "
                  "block_size, one for each block of a row [N, ceil(K / block_size)]")
      .Constraint("C5",
                  "ZeroPoint must have Weight's dtype and one element, or one for each row of "
                  "Weight [N]; with block_size, [N, ceil(K / block_size)]")
      .Constraint("C6", "Bias must have X's dtype and an element for each row of Weight");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("quantized_linear")
          .Doc("Out = act(X W^T + Bias) with the weight W = Scale (Weight - ZeroPoint): a layer "
               "whose weight alone is quantised. The weight stays in 4 or 8 bits in memory, so "
               "products of few rows, which wait for the memory, take less time. Numbers of 4 bits "
               "are packed as in unpack_integers. MatMulNBits of ONNX Runtime is the same with "
               "uint8; Paddle's weight_only_linear has other layouts and no zero points.")
          .Apply(DeclareConstraints)
          .Input("X", "floating-point tensor [.., K]")
          .Input("Weight", "the numbers, int8 or uint8 [N, K], or [N, ceil(K / 2)] with 4 bits")
          .Input("Scale", "scales, float32 [1], [N] or [N, ceil(K / block_size)]")
          .OptionalInput("ZeroPoint",
                         "the numbers that represent 0, of Weight's dtype, one in a byte: in one "
                         "of Scale's shapes; 0 if absent")
          .OptionalInput("Bias", "[N], of X's dtype")
          .Output("Out", "tensor [.., N] of X's dtype")
          .Attr<int32_t>("bits", 8, "bits of a number of Weight")
          .Attr<int64_t>("block_size", 0,
                         "numbers of a row that share a scale and a zero point; 0: the whole row")
          .Range(0, {})
          .Apply(DeclareFusedActivation)
          .KernelTypeFrom("X")
          .NoGradient("a weight of integers is not trained")
          .Rows(RowRule::kEach)
          .Tables({"Weight", "Scale", "ZeroPoint", "Bias"})
          .MultiplyAdds({"X", "Weight"}, LayerMultiplyAdds)
          .Infer(InferQuantizedLinear)
          .Reference(QuantizedLinear<float>, QuantizedLinear<double>)
          .Fast(QuantizedLinearFast));
}

}  // namespace coracle::quantized_linear_op
