#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/pool.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>

namespace coracle {
namespace {

// --- shape rule ---

template <class Context>
WindowSpec PoolWindow(const Context& ctx) {
  WindowSpec spec;
  spec.strides = ctx.template Attr<std::vector<int32_t>>("strides");
  spec.paddings = ctx.template Attr<std::vector<int32_t>>("paddings");
  spec.padding_algorithm = ctx.template Attr<std::string>("padding_algorithm");
  spec.ceil_mode = ctx.template Attr<bool>("ceil_mode");
  return spec;
}

// One axis. Adaptive: ksize is the output size; global: the window is the whole input.
template <class Context>
WindowAxis PoolAxis(const Context& ctx, const WindowSpec& spec, int axis, int64_t in) {
  const auto ksize = ctx.template Attr<std::vector<int32_t>>("ksize");
  WindowAxis w;
  w.in = in;
  if (ctx.template Attr<bool>("global_pooling")) {
    w.kernel = in;
    w.out = in == 0 ? 0 : 1;
    return w;
  }
  if (ctx.template Attr<bool>("adaptive")) {
    w.out = in == 0 ? 0 : ksize[static_cast<size_t>(axis)];
    return w;
  }
  w = ResolveAxis(spec, axis, in, ksize[static_cast<size_t>(axis)]);
  // Paddle's division rounds towards zero, so a window that sticks out by less than a stride still
  // gives one output; exported models rely on it.
  if (w.out == 0 && in > 0 && w.kernel - in - w.before - w.after < w.stride) w.out = 1;
  return w;
}

Shape CheckPool(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 4, x.rank());
  const auto type = ctx.Attr<std::string>("pooling_type");
  if (type != "max" && type != "avg") ctx.Fail("C2", "'" + type.substr(0, 40) + "'");
  if (!ctx.Attr<bool>("global_pooling")) {
    const auto ksize = ctx.Attr<std::vector<int32_t>>("ksize");
    ctx.Require("C3", ksize.size() == 2 && ksize[0] > 0 && ksize[1] > 0, ksize);
  }
  const WindowSpec spec = PoolWindow(ctx);
  ctx.Require("C4", StridesAreValid(spec), spec.strides);
  if (!PaddingAlgorithmIsKnown(spec))
    ctx.Fail("C5", "padding_algorithm", "'" + spec.padding_algorithm.substr(0, 40) + "'");
  ctx.Require("C5", PaddingsAreValid(spec), "paddings", spec.paddings);
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  Shape out = x;
  for (int axis : {0, 1}) {
    const int dim = axis == 0 ? layout.height() : layout.width();
    const WindowAxis w = PoolAxis(ctx, spec, axis, x[dim]);
    ctx.Require("C6", w.out != 0, "window", w.kernel, "size", w.in);
    out[dim] = w.out;
  }
  return out;
}

void InferPool(InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), CheckPool(ctx)); }

void InferPoolGrad(InferContext& ctx) {
  const Shape out = CheckPool(ctx);
  for (const char* slot : {"Out", "Out@GRAD"}) {
    ctx.Require("C7", out.CompatibleWith(ctx.InputShape(slot)), slot, ctx.InputShape(slot),
                "pool2d", out);
    RequireSameDType(ctx, "C8", slot, "X");
  }
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

void InferPoolGradGrad(InferContext& ctx) {
  const Shape out = CheckPool(ctx);
  ctx.Require("C7", out.CompatibleWith(ctx.InputShape("Out")), "Out", ctx.InputShape("Out"),
              "pool2d", out);
  ctx.Require("C7", ctx.InputShape("X").CompatibleWith(ctx.InputShape("X@GRAD@GRAD")),
              "X@GRAD@GRAD", ctx.InputShape("X@GRAD@GRAD"), "X", ctx.InputShape("X"));
  for (const char* slot : {"Out", "X@GRAD@GRAD"}) RequireSameDType(ctx, "C8", slot, "X");
  ctx.SetOutput("Out@GRAD@GRAD", ctx.InputDType("X"), out);
}

PoolGeometry GeometryOf(const PrepareContext& ctx, const TensorArg& x) {
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const WindowSpec spec = PoolWindow(ctx);
  PoolGeometry g;
  g.batch = x.shape[0];
  g.channels = x.shape[layout.channel()];
  g.channels_last = layout.channels_last;
  g.h = PoolAxis(ctx, spec, 0, x.shape[layout.height()]);
  g.w = PoolAxis(ctx, spec, 1, x.shape[layout.width()]);
  g.max = ctx.Attr<std::string>("pooling_type") == "max";
  g.adaptive = ctx.Attr<bool>("adaptive") && !ctx.Attr<bool>("global_pooling");
  g.exclusive = ctx.Attr<bool>("exclusive");
  return g;
}

// --- reference kernels: one plane (an image's channel) at a time ---

// Calls f(rows, columns, output offset within the image's channel) for every window of a plane.
template <class F>
void ForWindows(const PoolGeometry& g, F&& f) {
  const ImageStrides s = g.OutStrides();
  for (int64_t y = 0; y < g.h.out; ++y) {
    const PoolRange rows = g.Range(g.h, y);
    for (int64_t x = 0; x < g.w.out; ++x) f(rows, g.Range(g.w, x), y * s.h + x * s.w);
  }
}

// Calls f(input plane offset, output plane offset) for every plane.
template <class F>
void ForPlanes(const PoolGeometry& g, F&& f) {
  const ImageStrides in = g.InStrides(), out = g.OutStrides();
  const int64_t grain = 1 + 32768 / (1 + g.h.in * g.w.in);
  ParallelFor(g.batch * g.channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t n = p / g.channels, c = p % g.channels;
      f(n * in.n + c * in.c, n * out.n + c * out.c);
    }
  });
}

template <class T>
void PoolPlane(const PoolGeometry& g, const T* in, T* out) {
  const ImageStrides s = g.InStrides();
  ForWindows(g, [&](const PoolRange& rows, const PoolRange& columns, int64_t o) {
    const bool empty = rows.begin >= rows.end || columns.begin >= columns.end;
    T value = g.max && !empty ? in[rows.begin * s.h + columns.begin * s.w] : T(0);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        const T v = in[i * s.h + j * s.w];
        if (!g.max) {
          value += v;
        } else if (v > value) {
          value = v;
        }
      }
    }
    out[o] = g.max ? value : value / static_cast<T>(g.Divisor(rows, columns));
  });
}

// Offset of the first element of a window that equals `best`; -1 when there is none (a nan).
template <class T>
int64_t FirstMatch(const ImageStrides& s, const PoolRange& rows, const PoolRange& columns,
                   const T* in, T best) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      if (in[i * s.h + j * s.w] == best) return i * s.h + j * s.w;
    }
  }
  return -1;
}

template <class T>
void PoolGradPlane(const PoolGeometry& g, const T* in, const T* out, const T* dout, T* dx) {
  const ImageStrides s = g.InStrides();
  for (int64_t i = 0; i < g.h.in; ++i) {
    for (int64_t j = 0; j < g.w.in; ++j) dx[i * s.h + j * s.w] = T(0);
  }
  ForWindows(g, [&](const PoolRange& rows, const PoolRange& columns, int64_t o) {
    if (g.max) {
      const int64_t at = FirstMatch(s, rows, columns, in, out[o]);
      if (at >= 0) dx[at] += dout[o];
      return;
    }
    const T share = dout[o] / static_cast<T>(g.Divisor(rows, columns));
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = columns.begin; j < columns.end; ++j) dx[i * s.h + j * s.w] += share;
    }
  });
}

// A plane of X, which may have no elements while Out has some: windows that lie in the padding.
template <class T>
T* At(T* data, int64_t offset) {
  return data ? data + offset : nullptr;
}

template <class T>
KernelOf<T> PoolReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const PoolGeometry g = GeometryOf(ctx, x);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForPlanes(g, [&](int64_t i, int64_t k) { PoolPlane(g, At(in, i), o + k); });
  };
}

template <class T>
KernelOf<T> PoolGradReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const PoolGeometry g = GeometryOf(ctx, x);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T* o = ws.Data<const T>(out);
    const T* go = ws.Data<const T>(dout);
    T* gi = ws.Data<T>(dx);
    ForPlanes(g,
              [&](int64_t i, int64_t k) { PoolGradPlane(g, At(in, i), o + k, go + k, At(gi, i)); });
  };
}

// Pooling is linear in the elements it chooses: an average pools X@GRAD@GRAD, a maximum takes it
// at the position that X@GRAD went to.
template <class T>
KernelOf<T> PoolGradGradReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), ddx = ctx.Input("X@GRAD@GRAD");
  const TensorArg ddout = ctx.Output("Out@GRAD@GRAD");
  const PoolGeometry g = GeometryOf(ctx, x);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T* o = ws.Data<const T>(out);
    const T* gi = ws.Data<const T>(ddx);
    T* go = ws.Data<T>(ddout);
    ForPlanes(g, [&](int64_t i, int64_t k) {
      if (!g.max) return PoolPlane(g, At(gi, i), go + k);
      ForWindows(g, [&](const PoolRange& rows, const PoolRange& columns, int64_t p) {
        const int64_t at = FirstMatch(g.InStrides(), rows, columns, At(in, i), o[k + p]);
        go[k + p] = at >= 0 ? gi[i + at] : T(0);
      });
    });
  };
}

// --- fast kernels ---

Kernel PoolFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const PoolGeometry g = GeometryOf(ctx, x);
  if (x.dtype != DType::kFloat32 || !g.channels_last || out.numel == 0) return {};
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    float* o = ws.Data<float>(out);
    g.max ? MaxPoolNhwc(g, in, o) : AveragePoolNhwc(g, in, o);
  };
}

Kernel PoolGradFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const PoolGeometry g = GeometryOf(ctx, x);
  if (x.dtype != DType::kFloat32 || !g.channels_last || dx.numel == 0) return {};
  return [=](Workspace& ws) {
    const float* go = ws.Data<const float>(dout);
    float* gi = ws.Data<float>(dx);
    if (g.max) {
      MaxPoolGradNhwc(g, ws.Data<const float>(x), ws.Data<const float>(out), go, gi);
    } else {
      AveragePoolGradNhwc(g, go, gi);
    }
  };
}

// --- gradient rules ---

void PoolGradGradient(GradientContext& g) {
  g.Append(
      "pool2d_grad_grad",
      {{"X", {g.Input("X")}}, {"Out", {g.Input("Out")}}, {"X@GRAD@GRAD", {g.OutputGrad("X@GRAD")}}},
      {{"Out@GRAD@GRAD", {g.InputGrad("Out@GRAD")}}}, g.ForwardAttrs("pool2d"));
}

// Linear in X@GRAD@GRAD, and the transposed map is that of pool2d_grad.
void PoolGradGradGradient(GradientContext& g) {
  g.Append("pool2d_grad",
           {{"X", {g.Input("X")}},
            {"Out", {g.Input("Out")}},
            {"Out@GRAD", {g.OutputGrad("Out@GRAD@GRAD")}}},
           {{"X@GRAD", {g.InputGrad("X@GRAD@GRAD")}}}, g.ForwardAttrs("pool2d"));
}

// --- registration ---

void DeclarePoolAttrs(OpDef& def) {
  def.Attr<std::string>("pooling_type", "max or avg")
      .OneOf({"max", "avg"})
      .Attr<std::vector<int32_t>>("ksize", "size of the window (of Out when adaptive)")
      .Attr<bool>("global_pooling", false, "the window is the whole image; ksize, paddings ignored")
      .Attr<std::vector<int32_t>>("strides", {1, 1}, "step of the window: {height, width}")
      .Attr<std::vector<int32_t>>("paddings", {0, 0},
                                  "{height, width} or {top, bottom, left, right}")
      .Attr<bool>("exclusive", true, "an average does not count padding")
      .Attr<bool>("adaptive", false,
                  "window i covers [floor(i in / out), ceil((i + 1) in / out)), out = ksize")
      .Attr<bool>("ceil_mode", false, "round the output size up")
      .Attr<std::string>("data_format", "NCHW", "NCHW (AnyLayout too) or NHWC")
      .OneOf({"NCHW", "NHWC", "AnyLayout"})
      .Attr<std::string>("padding_algorithm", "EXPLICIT", "EXPLICIT, SAME or VALID, as for conv2d")
      .OneOf({"EXPLICIT", "SAME", "VALID"})
      .Attr<bool>("is_test", false, "accepted, without effect");
}

OpDef ForwardDef() {
  return OpDef("pool2d")
      .Doc(
          "Maximum or average over windows of each channel. Output size: (in - kernel + pad_before "
          "+ pad_after) / stride + 1, rounded down, or up with ceil_mode. Padding never enters a "
          "maximum; an average divides by the number of elements inside the image, or, not "
          "exclusive, by the window's size clipped to in + pad_before. A window without elements "
          "gives 0.")
      .Constraint("C1", "X must have rank 4")
      .Constraint("C2", "pooling_type must be max or avg")
      .Constraint("C3", "ksize must be two positive numbers")
      .Constraint("C4", "strides must be two positive numbers")
      .Constraint("C5", "paddings must be two or four numbers >= 0, and padding_algorithm known")
      .Constraint("C6", "the window must fit into the padded X or stick out by less than a stride")
      .Input("X", "images [N, C, H, W], or [N, H, W, C] for NHWC")
      .Output("Out", "pooled images in X's layout")
      .Apply(DeclarePoolAttrs)
      .ImageLayout("data_format", {"X", "Out"})
      .Infer(InferPool)
      .GradientOp({"X", "Out"})
      .Reference(PoolReference<float>, PoolReference<double>)
      .Fast(PoolFast);
}

OpDef GradDef() {
  return OpDef("pool2d_grad")
      .Doc(
          "Gradient of pool2d; that of a maximum goes to the first element of the window that "
          "equals Out.")
      .ConstraintsOf("pool2d", {"C1", "C2", "C3", "C4", "C5", "C6"})
      .Constraint("C7", "Out and Out@GRAD must have the shape of pool2d's Out")
      .Constraint("C8", "all inputs must have one dtype")
      .Input("X", "pool2d's X")
      .Input("Out", "pool2d's Out")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .AttrsOf("pool2d")
      .NoGradientTo({"X", "Out"})
      .ImageLayout("data_format", {"X", "Out", "Out@GRAD", "X@GRAD"})
      .Infer(InferPoolGrad)
      .Gradient(PoolGradGradient)
      .Reference(PoolGradReference<float>, PoolGradReference<double>)
      .Fast(PoolGradFast);
}

OpDef GradGradDef() {
  return OpDef("pool2d_grad_grad")
      .Doc(
          "Gradient of pool2d_grad with respect to Out@GRAD: X@GRAD@GRAD pooled like X was, a "
          "maximum at the position of X's.")
      .ConstraintsOf("pool2d", {"C1", "C2", "C3", "C4", "C5", "C6"})
      .Constraint("C7", "Out must have the shape of pool2d's Out, X@GRAD@GRAD that of X")
      .Constraint("C8", "all inputs must have one dtype")
      .Input("X", "pool2d's X")
      .Input("Out", "pool2d's Out")
      .Input("X@GRAD@GRAD", "gradient of pool2d_grad's X@GRAD")
      .Output("Out@GRAD@GRAD", "gradient of pool2d_grad's Out@GRAD")
      .AttrsOf("pool2d")
      .Infer(InferPoolGradGrad)
      .NoGradientTo({"X", "Out"})
      .Gradient(PoolGradGradGradient)
      .Reference(PoolGradGradReference<float>, PoolGradGradReference<double>);
}

}  // namespace

void RegisterPool2d(OpRegistry& ops) {
  ops.Add(ForwardDef());
  ops.Add(GradDef());
  ops.Add(GradGradDef());
}

}  // namespace coracle
