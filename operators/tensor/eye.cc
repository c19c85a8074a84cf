#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>

namespace coracle::eye_op {

void InferEye(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C1", "dtype");
  const auto rows = ctx.Attr<int64_t>("num_rows"), columns = ctx.Attr<int64_t>("num_columns");
  ctx.Require("C2", rows >= 0 && columns >= -1, rows, columns);
  ctx.SetOutput("Out", dtype, {rows, columns < 0 ? rows : columns});
}

template <class T>
KernelOf<T> Eye(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    for (int64_t i = 0; i < std::min(out.shape[0], out.shape[1]); ++i)
      o[i * out.shape[1] + i] = T(1);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("eye")
              .Doc("Out[i, i] = 1, other elements 0.")
              .Constraint("C1", "dtype must be the number of a dtype")
              .Constraint("C2", "num_rows must not be negative, num_columns -1 or not negative")
              .Output("Out", "the matrix")
              .Attr<int64_t>("num_rows", "number of rows")
              .Attr<int64_t>("num_columns", -1, "number of columns; -1: as many as rows")
              .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
              .NotDifferentiable("the output is a constant")
              .KernelTypeFrom("Out")
              .Rows(RowRule::kEach)
              .Infer(InferEye)
              .Reference(Eye<float>, Eye<double>, Eye<float16>, Eye<bfloat16>, Eye<int8_t>,
                         Eye<uint8_t>, Eye<int16_t>, Eye<int32_t>, Eye<int64_t>, Eye<bool>));
}

}  // namespace coracle::eye_op
