// sequence_mask: a row of ones followed by zeros for each length.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cmath>

namespace coracle::sequence_mask_op {

void InferMask(InferContext& ctx) {
  int64_t columns = ctx.Attr<int32_t>("maxlen");
  if (ctx.HasInput("MaxLenTensor")) {
    const auto value = ctx.Value("MaxLenTensor");
    if (value) ctx.Require("C2", value->size() == 1, "MaxLenTensor", *value);
    columns = value ? value->front() : -1;
  }
  std::vector<int64_t> dims = ctx.InputShape("X").ToVector();
  dims.push_back(std::max<int64_t>(columns, -1));
  ctx.SetOutput("Y", DTypeFromAttr(ctx, "C1", "out_dtype"), ToShape(ctx, "C3", dims));
}

// The number of indices 0, 1, ... below the length, at most `most`.
template <class T>
int64_t Ones(T length, int64_t most) {
  if (!(length > T(0))) return 0;
  if (static_cast<double>(length) >= static_cast<double>(most)) return most;
  return static_cast<int64_t>(std::ceil(static_cast<double>(length)));
}

template <class T>
KernelOf<T> Mask(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Output("Y");
  const int64_t columns = y.shape[y.shape.rank() - 1];
  const Tensor one = Tensor::Full<float>({1}, 1.f).Cast(y.dtype);
  return [=](Workspace& ws) {
    constexpr int64_t kMost = int64_t{1} << 53;
    const T* lengths = ws.Data<const T>(x);
    Shape shape = x.shape;
    int64_t width = std::max<int64_t>(columns, 0);
    for (int64_t i = 0; columns < 0 && i < x.numel; ++i)
      width = std::max(width, Ones(lengths[i], kMost));
    shape.Append(width);
    Tensor& mask = ResizeOutput(ws, y, y.dtype, shape);
    auto* to = static_cast<char*>(mask.raw());
    FillZeroBytes(to, static_cast<int64_t>(mask.nbytes()));
    const size_t size = SizeOf(y.dtype);
    for (int64_t i = 0; i < x.numel; ++i) {
      FillElements(to + static_cast<size_t>(i * width) * size, Ones(lengths[i], width), one.raw(),
                   size);
    }
  };
}

RowEffect MaskRows(const RowQuery& query) {
  const bool given =
      query.op.HasInput("MaxLenTensor") || query.spec.AttrOf<int32_t>(query.op, "maxlen") >= 0;
  return given ? RowRule::kEach : RowRule::kMixes;
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_mask")
              .Doc("Y[..., j] = 1 if j < X[...], else 0, for j in [0, maxlen).")
              .Constraint("C1", "out_dtype must name a dtype")
              .Constraint("C2", "MaxLenTensor must hold one integer")
              .Constraint("C3", "the rank of Y must be at most 9")
              .Input("X", "tensor of numbers")
              .OptionalInput("MaxLenTensor", "int32 or int64 tensor [1]; replaces maxlen")
              .Output("Y", "tensor of X's shape and a dimension of size maxlen")
              .Attr<int32_t>("maxlen", -1,
                             "size of the last dimension; negative: the largest of X, rounded up")
              .Attr<int32_t>("out_dtype", "dtype of Y")
              .RunTimeShape()
              .NoLod()
              .NotDifferentiable("a comparison is constant almost everywhere")
              .Rows(MaskRows, "each by itself, if a length is given")
              .Infer(InferMask)
              .Reference(Mask<float>, Mask<double>, Mask<int32_t>, Mask<int64_t>));
}

}  // namespace coracle::sequence_mask_op
