#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle::one_hot_op {

// one_hot replaces a trailing dimension of 1; one_hot_v2 appends a dimension.
void InferOneHot(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  RequireIndexType(ctx, "C1", "X");
  int64_t depth = ctx.Attr<int32_t>("depth");
  bool known = true;
  if (ctx.HasInput("depth_tensor")) {
    const auto value = ctx.Value("depth_tensor");
    known = value.has_value();
    if (known) ctx.Require("C2", value->size() == 1, "depth_tensor", *value);
    depth = known ? value->front() : -1;
  }
  ctx.Require("C2", !known || depth > 0, depth);
  std::vector<int64_t> dims = x.ToVector();
  if (ctx.op().type() == "one_hot") {
    ctx.Require("C5", x.rank() > 0 && InferContext::Matches(x[x.rank() - 1], 1), x);
    dims.pop_back();
  }
  dims.push_back(depth);
  VarMeta out = ctx.Input("X");
  out.dtype = DTypeFromAttr(ctx, "C3", "dtype");
  out.shape = ToShape(ctx, "C4", dims);
  ctx.SetOutput("Out", out);
}

template <class T>
Kernel OneHot(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t depth = out.shape[out.shape.rank() - 1];
  const bool allow = ctx.Attr<bool>("allow_out_of_range");
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader id(ws, x);
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel, 1 + 65536 / depth, [&](int64_t begin, int64_t end) {
      std::fill(o + begin * depth, o + end * depth, T(0));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = id[i];
        if (at >= 0 && at < depth)
          o[i * depth + at] = T(1);
        else if (!allow)
          ThrowIndexRange(name, "X", i, at, depth);
      }
    });
  };
}

void Add(OpRegistry& ops, const std::string& type, const std::string& shape, const char* id,
         const char* constraint) {
  ops.Add(
      OpDef(type)
          .Doc("Out[.., j] = 1 if j is the id, else 0. An id outside of [0, depth) is an error; "
               "with allow_out_of_range, it gives a row of zeros." +
               shape)
          .Constraint("C1", "X must be int32 or int64")
          .Constraint("C2", "depth (from depth_tensor, else the attr) must be one positive number")
          .Constraint("C3", "dtype must be the number of a dtype")
          .Constraint(id, constraint)
          .Input("X", "int32 or int64 tensor of ids")
          .OptionalInput("depth_tensor", "tensor [1]; replaces attr depth")
          .Output("Out", "tensor with a last dimension of depth")
          .Attr<int32_t>("depth", -1, "number of classes")
          .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
          .Attr<bool>("allow_out_of_range", false, "zeros for an id out of range")
          .NotDifferentiable("ids are integers")
          .Rows(RowRule::kEach)
          .Infer(InferOneHot)
          .KernelTypeFrom("Out")
          .Reference<float, double, float16, bfloat16, int8_t, uint8_t, int16_t, int32_t, int64_t,
                     bool>([]<class T>(const PrepareContext& c) { return OneHot<T>(c); }));
}

void Register(OpRegistry& ops) {
  Add(ops, "one_hot", " Out has depth in place of X's last dimension.", "C5",
      "the last dimension of X must be 1");
  Add(ops, "one_hot_v2", "", "C4", "the rank of Out must be at most 9");
}

}  // namespace coracle::one_hot_op
