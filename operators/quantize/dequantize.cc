// Dequantization of tensors of integers, or of floats with integer values.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantize.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>

namespace coracle::dequantize_op {

constexpr const char* kNoGradient = "it dequantizes values of an inference program";

bool IsOne(const VarMeta& meta, DType dtype) {
  return meta.dtype == dtype && InferContext::Matches(NumelOf(meta.shape), 1);
}

// Out = X Scale / max_range.
template <class T, class Out>
Kernel ScaleBack(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), scale = ctx.Input("Scale"), out = ctx.Output("Out");
  const auto range = static_cast<double>(ctx.Attr<float>("max_range"));
  return [=](Workspace& ws) {
    const double factor = static_cast<double>(*ws.Data<const Out>(scale)) / range;
    const T* in = ws.Data<const T>(x);
    Out* o = ws.Data<Out>(out);
    for (int64_t i = 0; i < x.numel; ++i)
      o[i] = static_cast<Out>(static_cast<double>(in[i]) * factor);
  };
}
template <class T>
KernelOf<T> FakeDequantize(const PrepareContext& ctx) {
  return ScaleBack<T, T>(ctx);
}
template <class T>
KernelOf<T> Dequantize(const PrepareContext& ctx) {
  return ScaleBack<T, float>(ctx);
}

void AddMaxAbs(OpRegistry& ops, const char* type, bool integers) {
  OpDef def(type);
  def.Doc(std::string("Out = X Scale / max_range") + (integers ? ", in float32." : "."))
      .Constraint("C1", integers ? "Scale must hold one float32"
                                 : "Scale must hold one element of X's dtype")
      .Input("X", integers ? "int8 or int16 tensor" : "floating-point tensor of integer values")
      .Input("Scale", "the number that max_range represents [1]")
      .Output("Out", "tensor of X's shape")
      .Attr<float>("max_range", "largest integer")
      .Rows(RowRule::kEach)
      .Infer([integers](InferContext& ctx) {
        VarMeta out = ctx.Input("X");
        if (integers) out.dtype = DType::kFloat32;
        ctx.Require("C1", IsOne(ctx.Input("Scale"), out.dtype), ctx.Input("Scale"));
        ctx.SetOutput("Out", out);
      });
  if (integers)
    ops.Add(def.NotDifferentiable("integers have no gradient")
                .Reference(Dequantize<int8_t>, Dequantize<int16_t>));
  else
    ops.Add(def.ComputesIn(OpPrecision::kFloat32)
                .NoGradient(kNoGradient)
                .Inplace("X", "Out")
                .Reference(FakeDequantize<float>, FakeDequantize<double>));
}

// --- a scale for each channel ---

void InferChannelWise(InferContext& ctx) {
  const VarMeta x = ctx.Input("X");
  const size_t scales = ctx.NumInputs("Scales");
  const auto bits = ctx.Attr<std::vector<int32_t>>("quant_bits");
  ctx.Require("C1", scales <= 2 && bits.size() >= scales, "Scales", scales, "quant_bits", bits);
  const int axis = scales == 2 ? 1 : ctx.Attr<int32_t>("quant_axis");
  ctx.Require("C2", axis >= 0 && axis <= 1 && axis < x.shape.rank(), "axis", axis, "X", x.shape);
  const VarMeta& channels = ctx.Input("Scales");
  ctx.Require(
      "C3",
      channels.dtype == x.dtype && InferContext::Matches(NumelOf(channels.shape), x.shape[axis]),
      channels, "X", x);
  if (scales == 2)
    ctx.Require("C4", IsOne(ctx.Input("Scales", 1), x.dtype), ctx.Input("Scales", 1));
  ctx.SetOutput("Out", x);
}

template <class T>
KernelOf<T> ChannelWise(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), scales = ctx.Input("Scales");
  const bool two = ctx.NumInputs("Scales") == 2;
  const TensorArg whole = two ? ctx.Input("Scales", 1) : TensorArg();
  const Channels channels(x.shape, two ? 1 : ctx.Attr<int32_t>("quant_axis"));
  const auto bits = ctx.Attr<std::vector<int32_t>>("quant_bits");
  const double range = LargestInteger(bits[0]) * (two ? LargestInteger(bits[1]) : 1);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *scale = ws.Data<const T>(scales);
    T* o = ws.Data<T>(out);
    const double shared = (whole ? static_cast<double>(*ws.Data<const T>(whole)) : 1) / range;
    channels.ForEachRun([&](int64_t c, int64_t at) {
      const double factor = static_cast<double>(scale[c]) * shared;
      for (int64_t i = at; i < at + channels.inner; ++i)
        o[i] = static_cast<T>(static_cast<double>(in[i]) * factor);
    });
  };
}

// --- by tables ---

constexpr int64_t kDictSize = 128;

void InferLog(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const VarMeta& dict = ctx.Input("Dict");
  ctx.Require(
      "C1", dict.dtype == DType::kFloat32 && InferContext::Matches(NumelOf(dict.shape), kDictSize),
      dict);
  out.dtype = DType::kFloat32;
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> DequantizeLog(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dict = ctx.Input("Dict"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const float* table = ws.Data<const float>(dict);
    float* o = ws.Data<float>(out);
    for (int64_t i = 0; i < x.numel; ++i)
      o[i] = in[i] < 0 ? -table[in[i] + kDictSize] : table[in[i]];
  };
}

void InferLookup(InferContext& ctx) {
  const VarMeta &w = ctx.Input("W"), &ids = ctx.Input("Ids");
  ctx.Require("C1", w.shape.rank() == 2 && (w.shape[1] < 0 || w.shape[1] >= 2), w.shape);
  const int rank = ids.shape.rank();
  ctx.Require("C2",
              IsIndexType(ids.dtype) && rank >= 1 && InferContext::Matches(ids.shape[rank - 1], 1),
              ids);
  VarMeta out = ids;
  out.dtype = DType::kFloat32;
  out.shape[rank - 1] = w.shape[1] < 0 ? -1 : MulDims(4, w.shape[1] - 2);
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> LookupDequant(const PrepareContext& ctx) {
  const TensorArg w = ctx.Input("W"), ids = ctx.Input("Ids"), out = ctx.Output("Out");
  const int64_t padding = ctx.Attr<int64_t>("padding_idx"), rows = w.shape[0];
  const int64_t columns = w.shape[1], width = 4 * (columns - 2);
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader id(ws, ids);
    const float* table = ws.Data<const float>(w);
    float* o = ws.Data<float>(out);
    for (int64_t i = 0; i < ids.numel; ++i, o += width) {
      const int64_t row = id[i];
      if (padding != -1 && row == padding) {
        std::fill_n(o, width, 0.f);
        continue;
      }
      if (row < 0 || row >= rows) ThrowIndexRange(name, "Ids", i, row, rows);
      const float* from = table + row * columns;
      const float min = from[0], step = (from[1] - min) / 256;
      const auto* bytes = reinterpret_cast<const unsigned char*>(from + 2);
      for (int64_t j = 0; j < width; ++j) o[j] = static_cast<float>(bytes[j]) * step + min;
    }
  };
}

void Register(OpRegistry& ops) {
  AddMaxAbs(ops, "fake_dequantize_max_abs", false);
  AddMaxAbs(ops, "dequantize_abs_max", true);
  ops.Add(
      OpDef("fake_channel_wise_dequantize_max_abs")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = X Scales[0][c] / Q for the channel c along quant_axis; with two Scales, "
               "along axis 1, also times Scales[1] / Q'. Q = 2^(b - 1) - 1 for the elements b "
               "of quant_bits.")
          .Constraint("C1", "there must be one or two Scales, each with an element of quant_bits")
          .Constraint("C2", "quant_axis must be 0 or 1, and X must have the axis of the channels")
          .Constraint("C3", "the first Scales must have X's dtype and an element for each channel")
          .Constraint("C4", "the second Scales must hold one element of X's dtype")
          .Input("X", "floating-point tensor of integer values")
          .VariadicInput("Scales",
                         "scales of the channels [C]; then the scale of the other factor [1]")
          .Output("Out", "tensor of X's shape and dtype")
          .Attr<std::vector<int32_t>>("quant_bits", {8}, "bits of the integers")
          .Range(2, 32)
          .Attr<int32_t>("quant_axis", 0, "the axis of the channels")
          .Inplace("X", "Out")
          .NoGradient(kNoGradient)
          .Rows(RowRule::kEach)
          .Infer(InferChannelWise)
          .Reference(ChannelWise<float>, ChannelWise<double>));
  ops.Add(OpDef("dequantize_log")
              .Doc("Out = Dict[X] where X is not negative, else -Dict[X + 128].")
              .Constraint("C1", "Dict must hold 128 float32")
              .Input("X", "int8 tensor")
              .Input("Dict", "the values that 0 to 127 represent [128]")
              .Output("Out", "float32 tensor of X's shape")
              .NotDifferentiable("integers have no gradient")
              .Rows(RowRule::kEach)
              .Infer(InferLog)
              .Reference(DequantizeLog<int8_t>));
  ops.Add(OpDef("lookup_table_dequant")
              .Doc("Out[i] = for each id its row of bytes b, as min + b (max - min) / 256; zeros "
                   "for padding_idx. Another id outside of [0, rows) is an error.")
              .Constraint("C1", "W must be a matrix of two columns or more")
              .Constraint("C2", "Ids must be int32 or int64 with a last dim of 1")
              .Input("W", "float32 matrix [V, 2 + k]: min, max, and 4 k bytes in k floats")
              .Input("Ids", "tensor of ids [.., 1]")
              .Output("Out", "float32 tensor [.., 4 k]")
              .Attr<int64_t>("padding_idx", -1, "id whose row is zeros; -1: none")
              .NoGradient(kNoGradient)
              .LodFrom("Ids")
              .Rows(RowRule::kEach)
              .Tables({"W"})
              .Infer(InferLookup)
              .Reference(LookupDequant<float>));
}

}  // namespace coracle::dequantize_op
