// Bijections between the elements of X and Out that are views with other strides: pixel_shuffle,
// shuffle_channel, space_to_depth. Each is a row; the gradient copies in the other direction.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>

#include <limits>

namespace coracle::rearrange_op {

// Index i of dims maps element i . x_strides of X to element i of a contiguous Out.
struct View {
  std::vector<int64_t> dims, x_strides;
};

constexpr int64_t kMaxFactor = std::numeric_limits<int32_t>::max();

// An attr whose square is a divisor. C2: must be positive.
template <class T>
int64_t Factor(const InferContext& ctx, const char* attr) {
  const int64_t factor = ctx.Attr<T>(attr);
  ctx.Require("C2", factor > 0 && factor <= kMaxFactor, attr, factor);
  return factor;
}

// dim / factor; -1 if unknown. C2: must have no remainder.
int64_t Divided(const InferContext& ctx, int64_t dim, int64_t factor) {
  ctx.Require("C2", dim < 0 || dim % factor == 0, dim, factor);
  return dim < 0 ? -1 : dim / factor;
}

struct PixelShuffle {
  static constexpr const char* kType = "pixel_shuffle";
  static constexpr const char* kDoc =
      "With r = upscale_factor: Out[n, c, h r + a, w r + b] = X[n, c r^2 + a r + b, h, w]; under "
      "NHWC the same with the channels last.";
  static constexpr const char* kDivisible =
      "upscale_factor must be positive, and its square must divide the channels";
  static void Declare(OpDef& def) {
    def.Attr<int32_t>("upscale_factor", 1, "r")
        .Range(1, static_cast<double>(kMaxFactor))
        .Attr<std::string>("data_format", "NCHW", "layout of X and Out: NCHW or NHWC")
        .OneOf({"NCHW", "NHWC"});
  }
  static bool ChannelsLast(const std::string& format) { return format == "NHWC"; }
  static Shape OutShape(const InferContext& ctx, const Shape& x) {
    const int64_t r = Factor<int32_t>(ctx, "upscale_factor");
    const bool last = ChannelsLast(ctx.Attr<std::string>("data_format"));
    const int64_t channels = Divided(ctx, x[last ? 3 : 1], r * r);
    const int64_t h = MulDims(x[last ? 1 : 2], r), w = MulDims(x[last ? 2 : 3], r);
    return last ? Shape{x[0], h, w, channels} : Shape{x[0], channels, h, w};
  }
  static View MakeView(const PrepareContext& ctx, const Shape& x) {
    const int64_t r = ctx.Attr<int32_t>("upscale_factor");
    if (ChannelsLast(ctx.Attr<std::string>("data_format"))) {
      const int64_t c = x[3];
      return {{x[0], x[1], r, x[2], r, c / (r * r)}, {x[1] * x[2] * c, x[2] * c, r, c, 1, r * r}};
    }
    const int64_t area = x[2] * x[3];
    return {{x[0], x[1] / (r * r), x[2], r, x[3], r},
            {x[1] * area, r * r * area, x[3], r * area, 1, area}};
  }
};

struct ShuffleChannel {
  static constexpr const char* kType = "shuffle_channel";
  static constexpr const char* kDoc =
      "Reorders channels: with g = group, channel j g + i of Out = channel i (C / g) + j of X.";
  static constexpr const char* kDivisible = "group must be positive and divide the channels";
  static void Declare(OpDef& def) {
    def.Attr<int32_t>("group", 1, "number of groups").Range(1, {});
  }
  static Shape OutShape(const InferContext& ctx, const Shape& x) {
    Divided(ctx, x[1], Factor<int32_t>(ctx, "group"));
    return x;
  }
  static View MakeView(const PrepareContext& ctx, const Shape& x) {
    const int64_t group = ctx.Attr<int32_t>("group"), part = x[1] / group, area = x[2] * x[3];
    return {{x[0], part, group, area}, {x[1] * area, area, part * area, 1}};
  }
};

// Darknet's reorg: the declared shape of Out is [N, C b^2, H / b, W / b], but its elements are
// ordered as in a tensor [N, C / b^2, H b, W b].
struct SpaceToDepth {
  static constexpr const char* kType = "space_to_depth";
  static constexpr const char* kDoc =
      "Out = [N, C b^2, H / b, W / b], b = blocksize. For X[n, o C / b^2 + c, j, i] with o < b^2 "
      "and c < C / b^2, the element of Out's memory is (i b + o mod b) + W b ((j b + o / b) + H b "
      "(c + C / b^2 n)): an image [C / b^2, H b, W b] as from pixel_shuffle, read in another "
      "shape.";
  static constexpr const char* kDivisible =
      "blocksize must be positive and divide height and width, its square the channels";
  static void Declare(OpDef& def) {
    def.Attr<int64_t>("blocksize", 2, "b").Range(1, static_cast<double>(kMaxFactor));
  }
  static Shape OutShape(const InferContext& ctx, const Shape& x) {
    const int64_t b = Factor<int64_t>(ctx, "blocksize");
    Divided(ctx, x[1], b * b);
    return {x[0], MulDims(x[1], b * b), Divided(ctx, x[2], b), Divided(ctx, x[3], b)};
  }
  static View MakeView(const PrepareContext& ctx, const Shape& x) {
    const auto b = ctx.Attr<int64_t>("blocksize");
    const int64_t channels = x[1] / (b * b), area = x[2] * x[3];
    return {{x[0], channels, x[2], b, x[3], b},
            {x[1] * area, area, x[3], b * channels * area, 1, channels * area}};
  }
};

template <class Row>
VarMeta OutOf(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x.shape);
  x.shape = Row::OutShape(ctx, x.shape);
  return x;
}

template <class Row>
void InferOut(InferContext& ctx) {
  ctx.SetOutput("Out", OutOf<Row>(ctx));
}

template <class Row>
void InferGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C3", OutOf<Row>(ctx));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

template <class Row>
Kernel Rearrange(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const View view = Row::MakeView(ctx, x.shape);
  const StridedCopy copy(SizeOf(x.dtype), view.dims, view.x_strides, ContiguousStrides(view.dims));
  return [=](Workspace& ws) { copy(ws.Data<const void>(x), ws.Data<void>(out)); };
}

template <class Row>
Kernel RearrangeBack(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  if (dx.numel == 0) return [](Workspace&) {};
  const View view = Row::MakeView(ctx, dx.shape);
  const StridedCopy copy(SizeOf(dx.dtype), view.dims, ContiguousStrides(view.dims), view.x_strides);
  return [=](Workspace& ws) { copy(ws.Data<const void>(dout), ws.Data<void>(dx)); };
}

template <class Row>
void GradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make(Row::kType, {{"X", {g.OutputGrad("X@GRAD")}}}, g.ForwardAttrs(Row::kType)));
}

template <class Row>
void Add(OpRegistry& ops) {
  const std::string type = Row::kType;
  ops.Add(OpDef(type)
              .Doc(Row::kDoc)
              .Constraint("C1", "X must have rank 4")
              .Constraint("C2", Row::kDivisible)
              .Input("X", "images of any dtype")
              .Output("Out", "the rearranged images")
              .Apply(Row::Declare)
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferOut<Row>)
              .GradientOp({"X"})
              .Reference(Rearrange<Row>));
  ops.Add(OpDef(type + "_grad")
              .Doc("Gradient of " + type + ": X@GRAD = Out@GRAD put back into X's order.")
              .ConstraintsOf(type, {"C1", "C2"})
              .Constraint("C3", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf(type)
              .NoGradientTo({"X"})
              .Infer(InferGrad<Row>)
              .Gradient(GradGradient<Row>)
              .Reference(RearrangeBack<Row>));
}

void Register(OpRegistry& ops) {
  Add<PixelShuffle>(ops);
  Add<ShuffleChannel>(ops);
  Add<SpaceToDepth>(ops);
}

}  // namespace coracle::rearrange_op
