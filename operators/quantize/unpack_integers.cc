// Integers of 2 or 4 bits as bytes: the form in which programs and files store them.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/quantized_linear.h>

namespace coracle::unpack_integers_op {

void InferUnpack(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", IsByte(out.dtype) && out.shape.rank() >= 1, "X", out);
  const auto bits = ctx.Attr<int32_t>("bits");
  ctx.Require("C2", bits == 2 || bits == 4, "bits", bits);
  const auto length = ctx.Attr<int64_t>("last_dim");
  const int last = out.shape.rank() - 1;
  ctx.Require("C3",
              length >= 0 && InferContext::Matches(out.shape[last], PackedBytes(length, bits)),
              "last_dim", length, "X", out);
  out.shape[last] = length;
  ctx.SetOutput("Out", out);
}

template <class T>
Kernel Unpack(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const auto bits = ctx.Attr<int32_t>("bits");
  const auto length = ctx.Attr<int64_t>("last_dim");
  return [=](Workspace& ws) {
    if (out.numel == 0) return;
    const PackedRow row{nullptr, bits, x.dtype == DType::kInt8};
    const auto* from = ws.Data<const uint8_t>(x);
    T* to = ws.Data<T>(out);
    const int64_t bytes = PackedBytes(length, bits);
    for (int64_t r = 0; r < out.numel / length; ++r)
      for (int64_t i = 0; i < length; ++i)
        *to++ = static_cast<T>(PackedRow{from + r * bytes, bits, row.is_signed}.At(i));
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("unpack_integers")
          .Doc(
              "Numbers of 2 or 4 bits as bytes, before affine_dequantize. A row, that is, the last "
              "axis, begins in a new byte of X. The first number of a byte is in its lowest bits. "
              "An X of int8 holds signed numbers (-8 .. 7 of 4 bits) and one of uint8 unsigned "
              "numbers (0 .. 15). Bits after the last number of a row have no meaning.")
          .Constraint("C1", "X must be int8 or uint8, with a dimension")
          .Constraint("C2", "bits must be 2 or 4")
          .Constraint("C3",
                      "last_dim must not be negative, and its numbers must fill the bytes of X's "
                      "last dim")
          .Input("X", "packed numbers, int8 or uint8 [.., ceil(last_dim bits / 8)]")
          .Output("Out", "the numbers, of X's dtype [.., last_dim]")
          .Attr<int32_t>("bits", 4, "bits of a number")
          .Attr<int64_t>("last_dim", "numbers of a row")
          .KernelTypeFrom("X")
          .NotDifferentiable("integers have no gradient")
          .Rows(RowRule::kEach)
          .Infer(InferUnpack)
          .Reference<int8_t, uint8_t>(
              []<class T>(const PrepareContext& ctx) { return Unpack<T>(ctx); }));
}

}  // namespace coracle::unpack_integers_op
