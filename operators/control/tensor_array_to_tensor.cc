// tensor_array_to_tensor: joins the elements of an array in one tensor.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>

#include <cstring>
#include <limits>

namespace coracle::tensor_array_to_tensor_op {

void RequireArray(const InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.type == VarType::kLoDTensorArray, x);
}

// The declared shape with an open dim at the axis, for a run; [-1] if nothing is declared.
Shape DeclaredShape(const InferContext& ctx) {
  const VarMeta* declared = ctx.DeclaredOutput("Out");
  if (!declared || declared->shape.rank() == 0) return {-1};
  Shape shape = declared->shape;
  if (!ctx.exact()) return shape;
  int axis = 0;
  if (!shape.NormalizeAxis(ctx.Attr<int32_t>("axis"), &axis)) return {-1};
  shape[axis] = -1;
  return shape;
}

// The dtype of the elements. An array without elements has the shape [-1, -1] and no dtype in a
// run; then the declared dtype is used.
DType JoinedDType(const InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const VarMeta* declared = ctx.DeclaredOutput("Out");
  const bool is_empty = ctx.exact() && x.shape == Shape{-1, -1};
  return is_empty && declared && declared->shape.rank() > 0 ? declared->dtype : x.dtype;
}

void InferJoin(InferContext& ctx) {
  RequireArray(ctx);
  VarMeta out{VarType::kLoDTensor, JoinedDType(ctx), DeclaredShape(ctx), 0};
  ctx.SetOutput("Out", out);
  ctx.SetOutput("OutIndex", DType::kInt32, {-1});
}

// The layout of the elements in the tensor: each one has a part in each of `outer` slices.
struct Layout {
  Shape out;
  int64_t outer = 1;
  DType dtype = DType::kFloat32;
  size_t bytes = 1;                 // of one step along the axis
  std::vector<int64_t> sizes = {};  // of each element along the axis
};

class Joining {
 public:
  // `out`: the joined tensor.
  Joining(const PrepareContext& ctx, const TensorArg& out)
      : axis_(ctx.Attr<int32_t>("axis")),
        stack_(ctx.Attr<bool>("use_stack")),
        fits_(ctx, "C2"),
        none_{.out = out.shape, .dtype = out.dtype} {
    int axis = 0;
    if (out.shape.NormalizeAxis(axis_, &axis)) none_.out[axis] = 0;
  }

  Layout operator()(const TensorArray& array) const {
    // A declared shape of one dim may be a mere placeholder.
    if (array.empty() && none_.out.rank() > 1 && none_.out.IsKnown() && none_.out.numel() == 0)
      return none_;
    fits_.Require(!array.empty() && array.IsWritten(0), "elements", array.size());
    const Tensor& first = array[0];
    const int rank = first.shape().rank() + (stack_ ? 1 : 0);
    fits_.Require(axis_ >= -rank && axis_ < rank, "axis", axis_, "element 0", first.shape());
    const auto axis = static_cast<int>(axis_ < 0 ? axis_ + rank : axis_);
    Layout layout;
    layout.dtype = first.dtype();
    int64_t total = 0;
    for (size_t k = 0; k < array.size(); ++k) {
      Shape shape = array[k].shape(), like = first.shape();
      const bool same_rank = shape.rank() == like.rank();
      const int64_t size = stack_ ? 1 : same_rank ? shape[axis] : 0;
      if (!stack_ && same_rank) like[axis] = size;
      fits_.Require(array.IsWritten(k) && array[k].dtype() == layout.dtype && shape == like,
                    "element", k, "of shape", shape, "element 0", first.shape());
      layout.sizes.push_back(size);
      total = CheckedAdd(total, size);
    }
    for (int i = 0; i < rank; ++i)
      layout.out.Append(i == axis ? total : first.shape()[i > axis && stack_ ? i - 1 : i]);
    layout.outer = layout.out.Product(0, axis);
    Shape inner;
    for (int i = axis + 1; i < rank; ++i) inner.Append(layout.out[i]);
    layout.bytes = ByteSize(layout.dtype, inner);
    return layout;
  }
  // The element of OutIndex: the size of `element` along the axis.
  int32_t IndexOf(const Shape& element) const {
    const int rank = element.rank() + (stack_ ? 1 : 0);
    const auto axis = static_cast<int>(axis_ < 0 ? axis_ + rank : axis_);
    const int64_t size = axis < element.rank() ? element[axis] : 1;
    fits_.Require(size <= std::numeric_limits<int32_t>::max(), "element", element);
    return static_cast<int32_t>(size);
  }

 private:
  int32_t axis_;
  bool stack_;
  RunConstraint fits_;
  // For an array without elements; known if the other dims are declared.
  Layout none_;
};

// visit(element, byte of the tensor, byte of the element, bytes) for each slice.
template <class Visit>
void ForEachSlice(const Layout& layout, const Visit& visit) {
  if (layout.bytes == 0) return;
  size_t at = 0;
  for (int64_t o = 0; o < layout.outer; ++o) {
    for (size_t k = 0; k < layout.sizes.size(); ++k) {
      const size_t bytes = static_cast<size_t>(layout.sizes[k]) * layout.bytes;
      if (bytes > 0) visit(k, at, static_cast<size_t>(o) * bytes, bytes);
      at += bytes;
    }
  }
}

const TensorArray& ArrayAt(Workspace& ws, const TensorArg& arg) {
  const auto* array = std::get_if<TensorArray>(&ws.ValueOf(arg));
  if (!array) ThrowInvalid("tensor_array_to_tensor: the array was not made");
  return *array;
}

Kernel Join(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), index = ctx.Output("OutIndex");
  const Joining joining(ctx, out);
  return [=](Workspace& ws) {
    const TensorArray& array = ArrayAt(ws, x);
    const Layout layout = joining(array);
    Tensor& result = ResizeOutput(ws, out, layout.dtype, layout.out);
    auto* to = static_cast<char*>(result.raw());
    ForEachSlice(layout, [&](size_t k, size_t at, size_t from, size_t bytes) {
      std::memcpy(to + at, static_cast<const char*>(array[k].raw()) + from, bytes);
    });
    result.lod().clear();
    if (!index) return;
    Tensor& sizes = ResizeOutput(ws, index, DType::kInt32, {static_cast<int64_t>(array.size())});
    for (size_t k = 0; k < array.size(); ++k)
      sizes.data<int32_t>()[k] = joining.IndexOf(array[k].shape());
  };
}

Kernel JoinGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Joining joining(ctx, dout);
  const RunConstraint fits(ctx, "C3");
  return [=](Workspace& ws) {
    const TensorArray& array = ArrayAt(ws, x);
    const Layout layout = joining(array);
    fits.Require(dout.dtype == layout.dtype && dout.shape == layout.out, "Out@GRAD", dout.shape,
                 "Out", layout.out);
    VarValue& value = ws.ValueOf(dx);
    if (!std::holds_alternative<TensorArray>(value)) value = TensorArray();
    auto& grads = std::get<TensorArray>(value);
    grads.clear();
    std::vector<char*> to;
    for (size_t k = 0; k < array.size(); ++k) {
      Tensor& grad = grads.Write(k, layout.dtype, array[k].shape());
      grad.lod() = array[k].lod();
      to.push_back(static_cast<char*>(grad.raw()));
    }
    const char* from = ws.Data<const char>(dout);
    ForEachSlice(layout, [&](size_t k, size_t at, size_t place, size_t bytes) {
      std::memcpy(to[k] + place, from + at, bytes);
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("tensor_array_to_tensor")
          .Doc("Out = the elements of X concatenated along axis or, with use_stack, stacked along "
               "a new axis; OutIndex = the size of each element along axis. For an empty array, "
               "Out has size 0 along axis; its other dims and dtype are those that the program "
               "declares.")
          .Constraint("C1", "X must be a tensor array")
          .Constraint("C2",
                      "X must have elements (unless Out declares its other dims), all written and "
                      "of one dtype; their shapes must include the axis and may differ only there "
                      "(with use_stack they must be equal)")
          .Input("X", "tensor array")
          .Output("Out", "tensor without LoD")
          .OptionalOutput("OutIndex", "int32 tensor [number of elements]")
          .Attr<int32_t>("axis", 0,
                         "axis along which elements are joined; counted from the end if negative")
          .Attr<bool>("use_stack", false, "join along a new axis")
          .Takes(VarType::kLoDTensorArray, {"X"})
          .RunTimeShape()
          .NoLod()
          .Rows(RowRule::kMixes)
          .Infer(InferJoin)
          .GradientOp({"X"})
          .Strings()
          .Reference(Join));
  ops.Add(OpDef("tensor_array_to_tensor_grad")
              .Doc("Gradient of tensor_array_to_tensor: the elements of X@GRAD are the parts of "
                   "Out@GRAD.")
              .ConstraintsOf("tensor_array_to_tensor", {"C1", "C2"})
              .Constraint("C3", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "the array in the forward op; only the shapes of its elements are used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "tensor array")
              .AttrsOf("tensor_array_to_tensor")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .NoGradient("first order only")
              .Infer([](InferContext& ctx) {
                RequireArray(ctx);
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Reference(JoinGrad));
}

}  // namespace coracle::tensor_array_to_tensor_op
