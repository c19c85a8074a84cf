#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/quantize/lookup_bytes.h>
#include <coracle/operators/quantize/quantized_slots.h>
#include <coracle/operators/rules/dims.h>

#include <array>
#include <bit>
#include <string>
#include <vector>

namespace coracle::quantized_concat_op {

void InferConcat(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const size_t count = ctx.NumInputs("X"), scales = ctx.NumInputs("XScale");
  const size_t zeros = ctx.HasInput("XZeroPoint") ? ctx.NumInputs("XZeroPoint") : count;
  ctx.Require("C3", scales == count && zeros == count, "X", count, "XScale", scales, "XZeroPoint",
              zeros);
  const int rank = out.shape.rank(), axis = ctx.Axis("C1", ctx.Attr<int32_t>("axis"), rank);
  for (size_t i = 0; i < count; ++i) {
    RequireQuantized(ctx, "C4", "X", i);
    if (i == 0) continue;
    const Shape& x = ctx.InputShape("X", i);
    ctx.Require("C2", x.rank() == rank, out.shape, x);
    for (int d = 0; d < rank; ++d) {
      if (d == axis) {
        out.shape[d] = AddDims(out.shape[d], x[d]);
        continue;
      }
      ctx.Require("C2", InferContext::Matches(out.shape[d], x[d]), out.shape[d], x[d]);
      if (out.shape[d] < 0) out.shape[d] = x[d];
    }
  }
  out.dtype = RequireOutQuantization(ctx, "C5");
  ctx.SetOutput("Out", out);
}

// A piece: [outer, width] numbers of the whole [outer, row], from `column` on.
struct Piece {
  TensorArg x;
  Quantization q;
  int64_t width = 0, column = 0;
};

struct ConcatArgs {
  std::vector<Piece> pieces;
  TensorArg out;
  Quantization out_q;
  int64_t outer = 0, row = 0;

  explicit ConcatArgs(const PrepareContext& ctx) : out(ctx.Output("Out")), out_q(ctx, "Out") {
    int axis = 0;
    out.shape.NormalizeAxis(ctx.Attr<int32_t>("axis"), &axis);
    outer = out.shape.Product(0, axis);
    for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
      Piece piece{ctx.Input("X", i), Quantization(ctx, "X", i)};
      piece.width = piece.x.shape.Product(axis, out.shape.rank());
      piece.column = row;
      row += piece.width;
      pieces.push_back(piece);
    }
  }
};

Kernel Concat(const PrepareContext& ctx) {
  return [a = ConcatArgs(ctx)](Workspace& ws) {
    if (a.out.numel == 0) return;
    const RealStore store(ws, a.out, a.out_q);
    for (const Piece& piece : a.pieces) {
      const void* x = ws.Data<const void>(piece.x);
      const auto scale = static_cast<double>(piece.q.Scale(ws));
      const int32_t zero = piece.q.Zero(ws);
      for (int64_t i = 0; i < piece.x.numel; ++i) {
        const double real = scale * (IntegerAt(piece.x.dtype, x, i) - zero);
        store(i / piece.width * a.row + piece.column + i % piece.width, real);
      }
    }
  };
}

// --- the fast kernel: pieces with Out's parameters are copied, others looked up in tables ---

// What each byte of the piece becomes, computed like the reference.
template <class Out>
std::array<Out, 256> Converted(Workspace& ws, const ConcatArgs& a, const Piece& piece) {
  std::array<Out, 256> table;
  const auto scale = static_cast<double>(piece.q.Scale(ws));
  const auto out_scale = static_cast<double>(a.out_q.Scale(ws));
  const int32_t zero = piece.q.Zero(ws), out_zero = a.out_q.Zero(ws);
  for (size_t i = 0; i < table.size(); ++i) {
    const auto byte = static_cast<uint8_t>(i);
    const int32_t q = piece.x.dtype == DType::kInt8 ? static_cast<int8_t>(byte) : byte;
    const double real = scale * (q - zero);
    if constexpr (sizeof(Out) > 1)
      table[i] = static_cast<Out>(real);
    else if (a.out.dtype == DType::kInt8)
      table[i] = static_cast<Out>(QuantizeTo<int8_t>(real / out_scale, out_zero));
    else
      table[i] = static_cast<Out>(QuantizeTo<uint8_t>(real / out_scale, out_zero));
  }
  return table;
}

bool IsCopied(Workspace& ws, const ConcatArgs& a, const Piece& piece) {
  const float scale = piece.q.Scale(ws);
  const bool plain = scale > 0 && scale <= std::numeric_limits<float>::max();
  return plain && piece.x.dtype == a.out.dtype && scale == a.out_q.Scale(ws) &&
         piece.q.Zero(ws) == a.out_q.Zero(ws);
}

void Lookup(const uint8_t* x, const ByteTable& table, uint8_t* out, int64_t n) {
  LookupBytes(x, table, out, n);
}
void Lookup(const uint8_t* x, const std::array<float, 256>& table, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = table[x[i]];
}

template <class Out>
void ConvertPiece(Workspace& ws, const ConcatArgs& a, const Piece& piece) {
  const std::array<Out, 256> table = Converted<Out>(ws, a, piece);
  const auto* x = ws.Data<const uint8_t>(piece.x);
  Out* out = ws.Data<Out>(a.out) + piece.column;
  ParallelFor(a.outer, 1 + 131072 / piece.width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      Lookup(x + i * piece.width, table, out + i * a.row, piece.width);
  });
}

Kernel ConcatFast(const PrepareContext& ctx) {
  const ConcatArgs args(ctx);
  if (args.out.numel == 0) return {};
  std::vector<StridedCopy> copies;
  for (const Piece& piece : args.pieces)
    copies.emplace_back(1, std::vector<int64_t>{args.outer, piece.width},
                        std::vector<int64_t>{piece.width, 1}, std::vector<int64_t>{args.row, 1});
  return [a = args, copies](Workspace& ws) {
    for (size_t i = 0; i < a.pieces.size(); ++i) {
      const Piece& piece = a.pieces[i];
      if (piece.x.numel == 0) continue;
      if (IsCopied(ws, a, piece))
        copies[i](ws.Data<const uint8_t>(piece.x), ws.Data<uint8_t>(a.out) + piece.column);
      else if (a.out.dtype == DType::kFloat32)
        ConvertPiece<float>(ws, a, piece);
      else
        ConvertPiece<uint8_t>(ws, a, piece);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("quantized_concat")
          .Doc("Joins quantised tensors along an axis: Out is the numbers XScale (X - "
               "XZeroPoint) as float32, or divided by OutScale, rounded to the nearest integer "
               "(ties to even), plus OutZeroPoint, limited to the range of Out's dtype; a nan "
               "gives the least integer.")
          .Constraint("C1", "axis must lie in [-rank, rank)")
          .Constraint("C2", "the inputs must have equal dims except along axis")
          .Constraint("C3", "there must be as many XScale, and XZeroPoint if any, as X")
          .Constraint("C4", std::string("each X ") + kQuantizedText)
          .Constraint("C5", kOutText)
          .VariadicInput("X", "int8 or uint8 tensors")
          .VariadicInput("XScale", "their scales, float32 [1]")
          .OptionalVariadicInput("XZeroPoint",
                                 "their zero points, of their dtypes [1]; 0 if absent")
          .Output("Out", "the joined tensor, of the dtype that out_dtype names")
          .Attr<int32_t>("axis", 0, "the axis to join along")
          .Apply(DeclareOutQuantization)
          .KernelTypeFrom("X")
          .NotDifferentiable("integers have no gradient")
          .Rows(RowRule::kEach)
          .Tables({"XScale", "XZeroPoint", "OutScale", "OutZeroPoint"})
          .Axes("axis")
          .Infer(InferConcat)
          .Reference<int8_t, uint8_t>([]<class>(const PrepareContext& ctx) { return Concat(ctx); })
          .Fast(ConcatFast));
}

}  // namespace coracle::quantized_concat_op
