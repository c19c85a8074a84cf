#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <array>
#include <charconv>
#include <cstring>

namespace coracle::fill_constant_op {

// One element of any dtype.
using Element = std::array<char, 16>;

Element ToElement(const Tensor& one, DType dtype) {
  Tensor converted = one.Cast(dtype);
  Element element{};
  std::memcpy(element.data(), converted.raw(), SizeOf(dtype));
  return element;
}

// A number as an element. In uint64, negative numbers wrap, as in the op cast.
Element NumberElement(double value, DType dtype) {
  const bool wraps = dtype == DType::kUInt64 && value < 0 && value >= -0x1p63;
  return wraps ? ToElement(Tensor::Full<int64_t>({1}, static_cast<int64_t>(value)), dtype)
               : ToElement(Tensor::Full<double>({1}, value), dtype);
}

// Parses a text as an integer first, so that all 64 bits of an int64 or uint64 are kept.
bool ParseElement(const std::string& text, DType dtype, Element* element) {
  int64_t integer = 0;
  uint64_t natural = 0;
  double real = 0;
  if (ParseInt64(text, &integer)) {
    *element = ToElement(Tensor::Full<int64_t>({1}, integer), dtype);
  } else if (const auto end = text.data() + text.size();
             std::from_chars(text.data(), end, natural).ptr == end && !text.empty() &&
             natural > uint64_t{INT64_MAX}) {
    *element = ToElement(Tensor::Full<uint64_t>({1}, natural), dtype);
  } else if (ParseDouble(text, &real)) {
    *element = NumberElement(real, dtype);
  } else {
    return false;
  }
  return true;
}

void InferFillConstant(InferContext& ctx) {
  const Shape shape = ReadNewShape(ctx, "ShapeTensorList", "ShapeTensor", "shape");
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  Element unused;
  const std::string text = ctx.Attr<std::string>("str_value");
  if (!text.empty() && !ParseElement(text, dtype, &unused)) ctx.Fail("C4", Quote(text));
  if (ctx.HasInput("ValueTensor")) {
    ctx.Require("C5", ctx.InputDType("ValueTensor") == dtype, ctx.InputDType("ValueTensor"), dtype);
    ctx.Require("C5", InferContext::Matches(NumelOf(ctx.InputShape("ValueTensor")), 1),
                ctx.InputShape("ValueTensor"));
  }
  ctx.SetOutput("Out", dtype, shape);
}

Kernel FillWith(const TensorArg& out, Element element) {
  return [=](Workspace& ws) {
    FillElements(ws.Data<void>(out), out.numel, element.data(), SizeOf(out.dtype));
  };
}

// Attr str_value, else attr value, as an element of dtype.
Element ElementFromAttrs(const PrepareContext& ctx, DType dtype) {
  const std::string text = ctx.Attr<std::string>("str_value");
  Element element{};
  if (text.empty()) return NumberElement(static_cast<double>(ctx.Attr<float>("value")), dtype);
  if (!ParseElement(text, dtype, &element)) ctx.Unsupported("str_value is not a number");
  return element;
}

Kernel FillConstant(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out"), value = ctx.Input("ValueTensor");
  if (!value) return FillWith(out, ElementFromAttrs(ctx, out.dtype));
  return [=](Workspace& ws) {
    FillElements(ws.Data<void>(out), out.numel, ws.Data<const void>(value), SizeOf(out.dtype));
  };
}

void InferBatchSizeLike(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C4", "dtype");
  Element unused;
  const std::string text = ctx.Attr<std::string>("str_value");
  if (!text.empty() && !ParseElement(text, dtype, &unused)) ctx.Fail("C5", Quote(text));
  Shape shape = BatchSizeLikeShape(ctx);
  int64_t& batch = shape[ctx.Attr<int32_t>("output_dim_idx")];
  if (ctx.Attr<int32_t>("input_dim_idx") == 0) {
    const auto sizes = ctx.LevelSizes("Input");
    if (sizes && !sizes->empty()) batch = sizes->back();
    if (!sizes && ctx.Input("Input").lod_level > 0) batch = -1;
  }
  ctx.SetOutput("Out", dtype, shape);
}

Kernel FillBatchSizeLike(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  return FillWith(out, ElementFromAttrs(ctx, out.dtype));
}

void InferFillAnyLike(InferContext& ctx) {
  VarMeta meta = ctx.Input("X");
  if (ctx.Attr<int32_t>("dtype") != -1) meta.dtype = DTypeFromAttr(ctx, "C1", "dtype");
  ctx.SetOutput("Out", meta);
}

Kernel FillAnyLike(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const double value = static_cast<double>(ctx.Attr<float>("value"));
  return FillWith(out, NumberElement(value, out.dtype));
}

constexpr char kNoGradientReason[] = "the output is a constant";

OpDef FillConstantDef() {
  OpDef def("fill_constant");
  def.Doc(
         "Out = a tensor of the given shape, dtype and value. The shape comes from "
         "ShapeTensorList, else ShapeTensor, else attr shape; the value from ValueTensor, else "
         "str_value, else value.")
      .Constraint("C1", "no dimension may be negative")
      .Constraint("C2", "the rank must be at most 9")
      .Constraint("C3", "dtype must be the number of a dtype")
      .Constraint("C4", "str_value must be a number (inf and nan included)")
      .Constraint("C5", "ValueTensor must hold one element of the dtype of attr dtype")
      .OptionalInput("ValueTensor", "tensor [1] with the value")
      .OptionalInput("ShapeTensor", "int32 or int64 tensor with the shape")
      .OptionalVariadicInput("ShapeTensorList", "one-element tensors, one per dimension")
      .Output("Out", "the filled tensor")
      .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
      .Attr<std::vector<int64_t>>("shape", {}, "shape of Out")
      .Attr<float>("value", 0.f, "the value")
      .Attr<std::string>("str_value", "", "the value as text: exact for int64")
      .Attr<bool>("force_cpu", false, "ignored")
      .Attr<int32_t>("place_type", -1, "ignored")
      .NotDifferentiable(kNoGradientReason)
      .Rows(RowRule::kEach)
      .Infer(InferFillConstant)
      .Reference(FillConstant);
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(FillConstantDef());
  ops.Add(OpDef("fill_constant_batch_size_like")
              .Doc("Out = a tensor of the given value whose shape is attr shape with dimension "
                   "output_dim_idx taken from dimension input_dim_idx of Input; for dimension 0 of "
                   "an Input with LoD, the number of sequences of its last level is taken instead.")
              .Constraint("C1", "no dimension may be negative")
              .Constraint("C2", "input_dim_idx must be an axis of Input")
              .Constraint("C3", "output_dim_idx must be an index of shape")
              .Constraint("C4", "dtype must be the number of a dtype")
              .Constraint("C5", "str_value must be a number")
              .Input("Input", "tensor with the batch dimension")
              .Output("Out", "the filled tensor")
              .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
              .Attr<float>("value", 0.f, "the value")
              .Attr<std::string>("str_value", "", "the value as text: exact for int64")
              .Attr<bool>("force_cpu", false, "ignored")
              .Attr<std::vector<int32_t>>("shape", "shape of Out but for one dimension")
              .Attr<int32_t>("input_dim_idx", 0, "axis of Input to take the dimension from")
              .Attr<int32_t>("output_dim_idx", 0, "index in shape to put it to")
              .ShapeOnly()
              .NotDifferentiable(kNoGradientReason)
              .NoLod()
              .Rows(OfShapeRows, kOfShapeRows)
              .Infer(InferBatchSizeLike)
              .Reference(FillBatchSizeLike));
  ops.Add(OpDef("fill_any_like")
              .Doc("Out = a tensor of X's shape filled with value.")
              .Constraint("C1", "dtype must be -1 (X's dtype) or the number of a dtype")
              .Input("X", "tensor of any dtype")
              .Output("Out", "the filled tensor")
              .Attr<float>("value", 0.f, "the value")
              .Attr<int32_t>("dtype", -1, "dtype of Out; -1: X's")
              .ShapeOnly()
              .NotDifferentiable(kNoGradientReason)
              .Rows(OfShapeRows, kOfShapeRows)
              .Infer(InferFillAnyLike)
              .Reference(FillAnyLike));
}

}  // namespace coracle::fill_constant_op
