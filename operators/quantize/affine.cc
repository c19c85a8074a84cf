#include <coracle/operators/quantize/affine.h>
#include <coracle/operators/rules/dims.h>

#include <string>

namespace coracle::inline internal {

AffineSteps::AffineSteps(const Shape& x, const Shape& steps, int64_t axis, int64_t block_size)
    : count(steps.numel()) {
  if (count == 1) return;
  const int at = static_cast<int>(axis < 0 ? axis + x.rank() : axis);
  outer = x.Product(0, at);
  dim = x[at];
  inner = x.Product(at + 1, x.rank());
  block = block_size;
  if (block > 0) blocks = steps[at];
}

void DeclareAffineSteps(OpDef& def, std::string_view integers) {
  def.Constraint("C1", "Scale must have floats")
      .Constraint("C2",
                  "Scale and ZeroPoint must each have one element, or one for each index of axis "
                  "[C]; with block_size, X's rank and one element for each block along axis")
      .Constraint("C3", "axis must be an axis of X")
      .Constraint("C4", "ZeroPoint must have the dtype of the integers")
      .Input("Scale", "the scales [1], [C] or, with block_size, [.., ceil(C / block_size), ..]")
      .OptionalInput("ZeroPoint", std::string("the integers that represent 0, of ") +
                                      std::string(integers) +
                                      " dtype: in one of Scale's shapes; 0 if absent")
      .Attr<int32_t>("axis", 1, "the axis of several scales; negative: from the end")
      .Attr<int64_t>("block_size", 0, "elements along axis that share a scale; 0: all of an index")
      .Range(0, {});
}

namespace {

void RequireSteps(const InferContext& ctx, const char* slot) {
  const Shape &x = ctx.InputShape("X"), &steps = ctx.InputShape(slot);
  if (InferContext::Matches(NumelOf(steps), 1)) return;
  const int axis = ctx.Axis("C3", ctx.Attr<int32_t>("axis"), x.rank());
  const int64_t block = ctx.Attr<int64_t>("block_size");
  Shape wanted = {x[axis]};
  if (block > 0) {
    wanted = x;
    if (x[axis] >= 0) wanted[axis] = x[axis] / block + (x[axis] % block != 0);
  }
  ctx.Require("C2", steps.CompatibleWith(wanted), slot, steps, "X", x);
}

template <class T>
double ReadReal(const void* data, int64_t i) {
  if constexpr (sizeof(T) == 2)
    return static_cast<double>(static_cast<float>(static_cast<const T*>(data)[i]));
  else
    return static_cast<double>(static_cast<const T*>(data)[i]);
}
template <class T>
int64_t ReadInteger(const void* data, int64_t i) {
  return static_cast<int64_t>(static_cast<const T*>(data)[i]);
}

}  // namespace

void RequireAffineSteps(const InferContext& ctx, DType integers) {
  ctx.Require("C1", IsFloating(ctx.InputDType("Scale")), ctx.Input("Scale"));
  RequireSteps(ctx, "Scale");
  if (!ctx.HasInput("ZeroPoint")) return;
  ctx.Require("C4", ctx.InputDType("ZeroPoint") == integers, ctx.Input("ZeroPoint"), "integers",
              integers);
  RequireSteps(ctx, "ZeroPoint");
}

RealReader FindRealReader(DType dtype) {
  return DispatchDType(dtype, []<class T>() -> RealReader { return &ReadReal<T>; });
}

AffineReader::AffineReader(const PrepareContext& ctx)
    : scale_(ctx.Input("Scale")), zero_(ctx.Input("ZeroPoint")) {
  const Shape x = ctx.Input("X").shape;
  const int32_t axis = ctx.Attr<int32_t>("axis");
  const int64_t block = ctx.Attr<int64_t>("block_size");
  scale_steps_ = AffineSteps(x, scale_.shape, axis, block);
  read_scale_ = FindRealReader(scale_.dtype);
  if (!zero_) return;
  zero_steps_ = AffineSteps(x, zero_.shape, axis, block);
  read_zero_ = DispatchDType(zero_.dtype, []<class T>() -> int64_t (*)(const void*, int64_t) {
    if constexpr (std::is_integral_v<T>)
      return &ReadInteger<T>;
    else
      return nullptr;
  });
}

void AffineReader::Expand(Workspace& ws, float* scales, int32_t* zeros) const {
  const int64_t n = steps().count;
  const void* scale = ws.Data<const void>(scale_);
  const void* zero = zero_ ? ws.Data<const void>(zero_) : nullptr;
  for (int64_t i = 0; i < n; ++i) {
    scales[i] = static_cast<float>(read_scale_(scale, scale_steps_.count == 1 ? 0 : i));
    zeros[i] = zero ? static_cast<int32_t>(read_zero_(zero, zero_steps_.count == 1 ? 0 : i)) : 0;
  }
}

}  // namespace coracle::inline internal
