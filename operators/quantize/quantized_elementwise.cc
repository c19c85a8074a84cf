#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/conv_activation.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/quantize/quantized_elementwise.h>
#include <coracle/operators/quantize/quantized_fast.h>
#include <coracle/operators/quantize/quantized_matmul_simd.h>
#include <coracle/operators/quantize/quantized_slots.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::quantized_elementwise {
namespace {

void InferBinary(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  VarMeta out = ctx.Input(x.rank() >= y.rank() ? "X" : "Y");
  out.shape = InferBroadcast(ctx, x, y, ctx.Attr<int32_t>("axis"));
  RequireQuantized(ctx, "C4", "X");
  RequireQuantized(ctx, "C4", "Y");
  out.dtype = RequireOutQuantization(ctx, "C5");
  ctx.SetOutput("Out", out);
}

struct BinaryArgs {
  QuantizedBinary op;
  TensorArg x, y, out;
  Quantization x_q, y_q, out_q;
  ConvActivation activation;
  BroadcastNest nest;

  BinaryArgs(const PrepareContext& ctx, QuantizedBinary operation)
      : op(operation),
        x(ctx.Input("X")),
        y(ctx.Input("Y")),
        out(ctx.Output("Out")),
        x_q(ctx, "X"),
        y_q(ctx, "Y"),
        out_q(ctx, "Out"),
        activation(ctx),
        nest(MakeBroadcastNest(x.shape, y.shape, ctx.Attr<int32_t>("axis"))) {}
};

Kernel Reference(const PrepareContext& ctx, QuantizedBinary op) {
  return [a = BinaryArgs(ctx, op)](Workspace& ws) {
    const RealStore store(ws, a.out, a.out_q);
    const void *x = ws.Data<const void>(a.x), *y = ws.Data<const void>(a.y);
    const auto x_scale = static_cast<double>(a.x_q.Scale(ws));
    const auto y_scale = static_cast<double>(a.y_q.Scale(ws));
    const int64_t x_zero = a.x_q.Zero(ws), y_zero = a.y_q.Zero(ws);
    const int64_t dx = a.nest.x_repeats() ? 0 : 1, dy = a.nest.y_repeats() ? 0 : 1;
    ForEachRow(a.nest, 0, a.nest.numel, [&](int64_t xo, int64_t yo, int64_t oo, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t p = IntegerAt(a.x.dtype, x, xo + i * dx) - x_zero;
        const int64_t q = IntegerAt(a.y.dtype, y, yo + i * dy) - y_zero;
        double value = a.op == QuantizedBinary::kAdd
                           ? x_scale * static_cast<double>(p) + y_scale * static_cast<double>(q)
                           : x_scale * y_scale * static_cast<double>(p * q);
        a.activation.Apply(&value, 1);
        store(oo + i, value);
      }
    });
  };
}

// Rows of the result for the parameters of a run.
class BinaryRows {
 public:
  BinaryRows(const BinaryArgs& args, const ActivationBounds& bounds, Workspace& ws)
      : a_(args), bounds_(bounds) {
    const double inverse = a_.out_q.scale ? 1 / static_cast<double>(a_.out_q.Scale(ws)) : 1;
    const double unit = bounds.given ? inverse : 1;
    const auto x_scale = static_cast<double>(a_.x_q.Scale(ws));
    const auto y_scale = static_cast<double>(a_.y_q.Scale(ws));
    const bool add = a_.op == QuantizedBinary::kAdd;
    const double x_factor = add ? x_scale * unit : x_scale * y_scale * unit;
    const double y_factor = add ? y_scale * unit : 0;
    tame_ = IsTame(inverse) && inverse > 0 && IsTame(x_factor) && IsTame(y_factor);
    how_.op = a_.op;
    how_.x_factor = static_cast<float>(x_factor);
    how_.y_factor = static_cast<float>(y_factor);
    how_.low = bounds.low * static_cast<float>(unit);
    how_.high = bounds.high * static_cast<float>(unit);
    how_.to_reals = !bounds.given || a_.out.dtype == DType::kFloat32;
    how_.flipped = a_.out.dtype == DType::kInt8;
    how_.zero = a_.out_q.Zero(ws) + (how_.flipped ? kFlip : 0);
    rounding_ = {static_cast<float>(inverse), a_.out_q.Zero(ws), a_.out.dtype};
    x_ = OperandOf(ws, a_.x, a_.x_q, a_.nest.x_repeats());
    y_ = OperandOf(ws, a_.y, a_.y_q, a_.nest.y_repeats());
    out_ = ws.Data<uint8_t>(a_.out);
  }

  // Whether float32 serves.
  bool tame() const { return tame_; }

  void operator()(int64_t xo, int64_t yo, int64_t oo, int64_t count) const {
    ByteOperand x = x_, y = y_;
    x.data += xo;
    y.data += yo;
    uint8_t* out = out_ + ByteSize(a_.out.dtype, {oo});
    if (bounds_.given) return ComputeBytes(how_, x, y, out, count);
    constexpr int64_t kPiece = 512;
    float reals[kPiece];
    for (int64_t i = 0; i < count; i += kPiece) {
      const int64_t n = std::min(kPiece, count - i);
      ComputeBytes(how_, x, y, reals, n);
      a_.activation.ApplyFast(reals, n);
      if (a_.out.dtype == DType::kFloat32)
        std::copy_n(reals, n, reinterpret_cast<float*>(out) + i);
      else
        RoundToBytes(reals, n, rounding_, out + i);
      x.data += x.repeats ? 0 : n;
      y.data += y.repeats ? 0 : n;
    }
  }

 private:
  static ByteOperand OperandOf(Workspace& ws, const TensorArg& arg, const Quantization& q,
                               bool repeats) {
    const bool flipped = arg.dtype == DType::kInt8;
    return {ws.Data<const uint8_t>(arg), flipped, repeats, q.Zero(ws) + (flipped ? kFlip : 0)};
  }

  const BinaryArgs& a_;
  const ActivationBounds& bounds_;
  ByteArithmetic how_;
  ByteRounding rounding_;
  ByteOperand x_, y_;
  uint8_t* out_;
  bool tame_;
};

Kernel Fast(const PrepareContext& ctx, QuantizedBinary op) {
  return [a = BinaryArgs(ctx, op), bounds = ActivationBounds(ctx),
          exact = Reference(ctx, op)](Workspace& ws) {
    if (a.out.numel == 0) return;
    const BinaryRows rows(a, bounds, ws);
    if (!rows.tame()) return exact(ws);
    ParallelFor(a.nest.numel, 131072,
                [&](int64_t begin, int64_t end) { ForEachRow(a.nest, begin, end, rows); });
  };
}

}  // namespace
}  // namespace coracle::quantized_elementwise

namespace coracle::inline internal {

OpDef QuantizedBinaryOp(QuantizedBinary op) {
  const bool add = op == QuantizedBinary::kAdd;
  OpDef def(add ? "quantized_add" : "quantized_mul");
  def.Doc(fmt::format("R = act(XScale (X - XZeroPoint) {} YScale (Y - YZeroPoint)). Out is R as "
                      "float32, or round(R / OutScale) + OutZeroPoint, rounded to the nearest "
                      "integer (ties to even) and limited to the range of Out's dtype; a nan gives "
                      "the least integer. {}",
                      add ? "+" : "*", kBroadcastDoc))
      .Apply(DeclareBroadcast)
      .Constraint("C4", std::string("X and Y ") + kQuantizedText)
      .Constraint("C5", kOutText)
      .Apply(DeclareQuantizedInput, "X", "int8 or uint8 tensor")
      .Apply(DeclareQuantizedInput, "Y", "int8 or uint8 tensor")
      .Output("Out", "tensor of the broadcast shape, of the dtype that out_dtype names")
      .Attr<int32_t>("axis", -1, "where the operand of lower rank begins in the other one")
      .Apply(DeclareOutQuantization)
      .Apply(DeclareFusedActivation)
      .KernelTypeFrom("X")
      .Inplace("X", "Out")
      .Elementwise()
      .Tables({"XScale", "XZeroPoint", "YScale", "YZeroPoint", "OutScale", "OutZeroPoint"})
      .NotDifferentiable("integers have no gradient")
      .Infer(quantized_elementwise::InferBinary)
      .Reference<int8_t, uint8_t>([op]<class>(const PrepareContext& ctx) {
        return quantized_elementwise::Reference(ctx, op);
      })
      .Fast([op](const PrepareContext& ctx) { return quantized_elementwise::Fast(ctx, op); });
  return def;
}

}  // namespace coracle::inline internal
