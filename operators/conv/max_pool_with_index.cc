// max_pool2d_with_index and max_pool3d_with_index: maxima of windows with their positions; unpool:
// puts elements back at such positions.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/pool.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <limits>

namespace coracle::max_pool_with_index_op {

using Ints = std::vector<int32_t>;

template <class Context>
WindowSpec SpecOf(const Context& ctx) {
  WindowSpec spec;
  spec.strides = ctx.template Attr<Ints>("strides");
  spec.paddings = ctx.template Attr<Ints>("paddings");
  return spec;
}

// Whether there is one number above the limit for each axis.
bool AllAbove(const Ints& values, int axes, int32_t limit) {
  return values.size() == static_cast<size_t>(axes) &&
         std::all_of(values.begin(), values.end(), [&](int32_t v) { return v > limit; });
}

// --- max_pool*_with_index ---

// Adaptive: ksize is the output size; global: ksize is the input's size. With both, Out is X, as
// in Paddle.
template <class Context>
WindowAxis PoolAxis(const Context& ctx, int axis, int64_t in) {
  const bool global = ctx.template Attr<bool>("global_pooling");
  const bool adaptive = ctx.template Attr<bool>("adaptive");
  const auto ksize = [&] { return ctx.template Attr<Ints>("ksize")[static_cast<size_t>(axis)]; };
  if (!global && !adaptive) return ResolveAxis(SpecOf(ctx), axis, in, ksize());
  WindowAxis w;
  w.in = in;
  w.kernel = in;
  w.out = !adaptive ? 1 : global ? in : ksize();
  if (in == 0) w.out = 0;
  return w;
}

void InferPool(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const int axes = AxesOf(ctx.op().type());
  ctx.Require("C1", x.shape.rank() == 2 + axes, x.shape);
  const WindowSpec spec = SpecOf(ctx);
  ctx.Require("C2", AllAbove(spec.strides, axes, 0), "strides", spec.strides);
  ctx.Require("C2", AllAbove(spec.paddings, axes, -1), "paddings", spec.paddings);
  const Ints ksize = ctx.Attr<Ints>("ksize");
  const bool global = ctx.Attr<bool>("global_pooling"), adaptive = ctx.Attr<bool>("adaptive");
  ctx.Require("C2", global || AllAbove(ksize, axes, 0), "ksize", ksize);
  for (int i = 0; i < axes; ++i) {
    const auto k = static_cast<size_t>(i);
    ctx.Require("C3", global || adaptive || spec.paddings[k] < ksize[k], "paddings", spec.paddings,
                "ksize", ksize);
    const WindowAxis w = PoolAxis(ctx, i, x.shape[2 + i]);
    ctx.Require("C4", x.shape[2 + i] != 0 && w.out != 0, "ksize", ksize, "X", x.shape);
    if (i == 0) {
      const int64_t plane = ProductOfDims(x.shape, 2, 2 + axes);
      ctx.Require("C5", plane <= std::numeric_limits<int32_t>::max(), x.shape);
    }
    x.shape[2 + i] = w.out;
  }
  ctx.SetOutput("Out", x);
  ctx.SetOutput("Mask", DType::kInt32, x.shape);
}

template <class T>
KernelOf<T> Pool(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), mask = ctx.Output("Mask");
  PoolGeometry g;
  g.axes = x.shape.rank() - 2;
  g.batch = x.shape[0];
  g.channels = x.shape[1];
  g.adaptive = ctx.Attr<bool>("adaptive");
  for (int i = 0; i < g.axes; ++i) g.axis(i) = PoolAxis(ctx, i, x.shape[2 + i]);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    int32_t* places = ws.Data<int32_t>(mask);
    const ImageStrides s = g.InStrides();
    ForPlanes(g, [&](int64_t from, int64_t to) {
      ForWindows(g, [&](const PoolWindow& window, int64_t at) {
        int64_t best = -1;
        ForElements(s, window, [&](int64_t i) {
          if (best < 0 || Exceeds(in[from + i], in[from + best])) best = i;
          return false;
        });
        o[to + at] = in[from + best];
        places[to + at] = static_cast<int32_t>(best);
      });
    });
  };
}

Variable AsRows(GradientContext& g, const Variable& x) {
  return g.Make("flatten", {{"X", {x.name()}}}, {{"axis", int32_t{2}}});
}

// X@GRAD = Out@GRAD, summed at the positions of Mask; planes are the rows of matrices.
void PoolGradient(GradientContext& g) {
  const Variable rows = AsRows(g, g.In("X")), mask = AsRows(g, g.Out("Mask"));
  const Variable dout = AsRows(g, g.Grad("Out"));
  const Variable dx = g.Make(
      "index_sample_grad",
      {{"X", {rows.name()}}, {"Index", {mask.name()}}, {"Out@GRAD", {dout.name()}}}, {}, "X@GRAD");
  g.Set("X",
        g.Make("flatten_grad", {{"X", {g.Input("X")}}, {"Out@GRAD", {dx.name()}}}, {}, "X@GRAD"));
}

void AddPool(OpRegistry& ops, const std::string& type) {
  const int axes = AxesOf(type);
  const std::string many = axes == 3 ? "three" : "two";
  const auto n = static_cast<size_t>(axes);
  ops.Add(
      OpDef(type)
          .Doc("Out = the maximum of each window of a channel of X, and Mask = the index of its "
               "first occurrence in the channel; a nan counts as larger than every number. Output "
               "size: (in - kernel + 2 padding) / stride + 1, rounded down. Padding is never the "
               "maximum.")
          .Constraint("C1", std::string("X must have rank ") + (axes == 3 ? "5" : "4"))
          .Constraint("C2", "ksize and strides must be " + many + " positive numbers, paddings " +
                                many + " that are not negative")
          .Constraint("C3", "paddings must be below ksize")
          .Constraint("C4",
                      "X must not be empty along these axes, and the window fit into the padded X")
          .Constraint("C5", "a channel must have fewer than 2^31 elements")
          .Input("X", axes == 3 ? "[n, c, d, h, w]" : "[n, c, h, w]")
          .Output("Out", "the maxima")
          .Output("Mask", "int32 tensor of Out's shape")
          .Attr<Ints>("ksize", "size of the window (of Out when adaptive)")
          .Attr<bool>("global_pooling", false,
                      "the window is the whole channel, and ksize and paddings are ignored; with "
                      "adaptive Out is X")
          .Attr<bool>("adaptive", false,
                      "window i covers [floor(i in / out), ceil((i + 1) in / out)), out = ksize")
          .Attr<Ints>("strides", Ints(n, 1), "steps of the window along the axes")
          .Attr<Ints>("paddings", Ints(n, 0), "padding on both sides of X along each axis")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferPool)
          .Gradient(PoolGradient)
          .Reference(Pool<float>, Pool<double>));
}

// --- unpool ---

Shape UnpoolShape(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& indices = ctx.InputShape("Indices");
  ctx.Require("C1", x.shape.rank() == 4 && indices.CompatibleWith(x.shape), x.shape, indices);
  RequireIndexType(ctx, "C2", "Indices");
  const WindowSpec spec = SpecOf(ctx);
  const Ints ksize = ctx.Attr<Ints>("ksize");
  ctx.Require("C3", AllAbove(spec.strides, 2, 0), "strides", spec.strides);
  ctx.Require("C3", AllAbove(spec.paddings, 2, -1), "paddings", spec.paddings);
  ctx.Require("C3", AllAbove(ksize, 2, 0), "ksize", ksize);
  for (int i = 0; i < 2; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t in = x.shape[2 + i];
    if (in < 0) continue;
    const int64_t out = AddDims(MulDims(std::max<int64_t>(in - 1, 0), spec.strides[k]), ksize[k]) -
                        2 * int64_t{spec.paddings[k]};
    ctx.Require("C4", in > 0 && out > 0, "X", x.shape, "size", out);
    x.shape[2 + i] = out;
  }
  return x.shape;
}

void InferUnpool(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  out.shape = UnpoolShape(ctx);
  ctx.SetOutput("Out", out);
}

// The positions in Out of the elements of X.
class UnpoolPlaces {
 public:
  UnpoolPlaces(const PrepareContext& ctx, const Shape& x, const Shape& out)
      : type_(ctx.op().type()), size_(x[2] * x[3]), out_size_(out[2] * out[3]) {}
  int64_t Of(const IndexReader& indices, int64_t i) const {
    if (indices[i] < 0 || indices[i] >= out_size_)
      ThrowIndexRange(type_, "Indices", i, indices[i], out_size_);
    return i / size_ * out_size_ + indices[i];
  }

 private:
  std::string type_;
  int64_t size_, out_size_;
};

template <class T>
KernelOf<T> Unpool(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), indices = ctx.Input("Indices"), out = ctx.Output("Out");
  const UnpoolPlaces places(ctx, x.shape, out.shape);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const IndexReader at(ws, indices);
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    for (int64_t i = 0; i < x.numel; ++i) o[places.Of(at, i)] = in[i];
  };
}

void InferUnpoolGrad(InferContext& ctx) {
  const Shape out = UnpoolShape(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C5", dout.dtype == x.dtype && dout.shape.CompatibleWith(out), "Out@GRAD", dout,
              "Out", out);
  ctx.SetOutput("X@GRAD", x);
}

// X@GRAD[i] = Out@GRAD[Indices[i]], but 0 if a later element of X has the same position in Out.
template <class T>
KernelOf<T> UnpoolGrad(const PrepareContext& ctx) {
  const TensorArg indices = ctx.Input("Indices"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const UnpoolPlaces places(ctx, dx.shape, dout.shape);
  const TensorArg taken = ctx.Scratch(DType::kUInt8, {std::max<int64_t>(dout.numel, 1)});
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    auto* is_taken = ws.Data<uint8_t>(taken);
    std::fill_n(is_taken, dout.numel, uint8_t{0});
    T* to = ws.Data<T>(dx);
    const IndexReader at(ws, indices);
    for (int64_t i = dx.numel - 1; i >= 0; --i) {
      const int64_t place = places.Of(at, i);
      to[i] = is_taken[place] ? T(0) : from[place];
      is_taken[place] = 1;
    }
  };
}

// Out@GRAD's gradient: the gradient of X@GRAD at the last of equal indices.
void UnpoolGradGradient(GradientContext& g) {
  g.Set("Out@GRAD",
        g.Make("unpool", {{"X", {g.OutputGrad("X@GRAD")}}, {"Indices", {g.Input("Indices")}}},
               g.ForwardAttrs("unpool")));
}

void DeclareUnpoolInputs(OpDef& def) {
  def.Input("X", "[n, c, h, w]")
      .Input("Indices",
             "int32 or int64 tensor of X's shape, usually Mask of max_pool2d_with_index");
}

void Register(OpRegistry& ops) {
  AddPool(ops, "max_pool2d_with_index");
  AddPool(ops, "max_pool3d_with_index");
  ops.Add(OpDef("unpool")
              .Doc("Out = zeros, and in each channel element Indices[i] = X[i]. If several indices "
                   "are equal, the last one is used, and only its element gets a gradient "
                   "(Paddle's unpool_grad gives one to each of them). Size of Out: (in - 1) stride "
                   "- 2 padding + kernel.")
              .Constraint("C1", "X and Indices must have one shape of rank 4")
              .Constraint("C2", "Indices must be int32 or int64")
              .Constraint("C3",
                          "ksize and strides must be two positive numbers, paddings two that "
                          "are not negative")
              .Constraint("C4", "neither X nor Out may be empty in height or width")
              .Apply(DeclareUnpoolInputs)
              .Output("Out", "[n, c, H, W]")
              .Attr<Ints>("ksize", "size of the pooling window")
              .Attr<Ints>("strides", {1, 1}, "steps of the pooling window: {height, width}")
              .Attr<Ints>("paddings", {0, 0}, "paddings of the pooling: {height, width}")
              .Attr<std::string>("unpooling_type", "max")
              .OneOf({"max"})
              .NoGradientTo({"Indices"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferUnpool)
              .GradientOp({"X", "Indices"})
              .Reference(Unpool<float>, Unpool<double>));
  ops.Add(OpDef("unpool_grad")
              .Doc("Gradient of unpool: X@GRAD[i] = Out@GRAD[Indices[i]] for the last of equal "
                   "indices, 0 for the others.")
              .ConstraintsOf("unpool", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and X's dtype")
              .Apply(DeclareUnpoolInputs)
              .OptionalInput("Out", "not read")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("unpool")
              .NoGradientTo({"X", "Indices", "Out"})
              .Infer(InferUnpoolGrad)
              .Gradient(UnpoolGradGradient)
              .Reference(UnpoolGrad<float>, UnpoolGrad<double>));
}

}  // namespace coracle::max_pool_with_index_op
