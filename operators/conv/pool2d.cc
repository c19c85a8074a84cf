#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/pool.h>
#include <coracle/operators/conv/pool_bytes.h>
#include <coracle/operators/conv/pool_rules.h>
#include <coracle/operators/kernels/half_part.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <type_traits>

namespace coracle::pool2d_op {

// --- shape rule ---

Shape CheckPool(const InferContext& ctx) { return PoolShape(ctx, AxesOf(ctx.op().type())); }

void InferPool(InferContext& ctx) {
  const DType dtype = ctx.InputDType("X");
  const auto type = ctx.Attr<std::string>("pooling_type");
  const bool bytes = dtype == DType::kInt8 || dtype == DType::kUInt8;
  ctx.Require("C2", !bytes || type == "max", "pooling_type", type, "X", dtype);
  ctx.SetOutput("Out", dtype, CheckPool(ctx));
}

void InferPoolGrad(InferContext& ctx) {
  const Shape out = CheckPool(ctx);
  for (const char* slot : {"Out", "Out@GRAD"}) {
    ctx.Require("C7", out.CompatibleWith(ctx.InputShape(slot)), slot, ctx.InputShape(slot),
                "the pool", out);
    RequireSameDType(ctx, "C8", slot, "X");
  }
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

void InferPoolGradGrad(InferContext& ctx) {
  const Shape out = CheckPool(ctx);
  ctx.Require("C7", out.CompatibleWith(ctx.InputShape("Out")), "Out", ctx.InputShape("Out"),
              "the pool", out);
  ctx.Require("C7", ctx.InputShape("X").CompatibleWith(ctx.InputShape("X@GRAD@GRAD")),
              "X@GRAD@GRAD", ctx.InputShape("X@GRAD@GRAD"), "X", ctx.InputShape("X"));
  for (const char* slot : {"Out", "X@GRAD@GRAD"}) RequireSameDType(ctx, "C8", slot, "X");
  ctx.SetOutput("Out@GRAD@GRAD", ctx.InputDType("X"), out);
}

// --- reference kernels: one plane (an image's channel) at a time ---

template <class T>
void PoolPlane(const PoolGeometry& g, const T* in, T* out) {
  const ImageStrides s = g.InStrides();
  ForWindows(g, [&](const PoolWindow& window, int64_t o) {
    bool first = g.max;
    T largest = T(0);
    double sum = 0;
    ForElements(s, window, [&](int64_t at) {
      const T v = in[at];
      if (!g.max) {
        sum += static_cast<double>(v);
      } else if (first || Exceeds(v, largest)) {
        largest = v;
      }
      return first = false;
    });
    out[o] = g.max ? largest : static_cast<T>(sum / static_cast<double>(g.Divisor(window)));
  });
}

// Offset of the first element of a window that equals `best`, or is nan (only if `best` is nan); -1
// if there is none.
template <class T>
int64_t FirstMatch(const ImageStrides& s, const PoolWindow& window, const T* in, T best) {
  int64_t found = -1;
  const bool nan = best != best;
  ForElements(s, window, [&](int64_t at) {
    if (nan ? in[at] != in[at] : in[at] == best) found = at;
    return found >= 0;
  });
  return found;
}

template <class T>
void PoolGradPlane(const PoolGeometry& g, const T* in, const T* out, const T* dout, T* dx) {
  const ImageStrides s = g.InStrides();
  for (int64_t i = 0; i < g.InPixels(); ++i) dx[i * s.w] = T(0);
  ForWindows(g, [&](const PoolWindow& window, int64_t o) {
    if (g.max) {
      const int64_t at = FirstMatch(s, window, in, out[o]);
      if (at >= 0) dx[at] += dout[o];
      return;
    }
    const T share = dout[o] / static_cast<T>(g.Divisor(window));
    ForElements(s, window, [&](int64_t at) {
      dx[at] += share;
      return false;
    });
  });
  if constexpr (std::is_same_v<T, float>)
    if (!g.max) RepairAverageGrad(g, 1, dout, dx);
}

// A plane of X. X may have no elements while Out has some, for windows in the padding.
template <class T>
T* At(T* data, int64_t offset) {
  return data ? data + offset : nullptr;
}

template <class T>
KernelOf<T> PoolReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const PoolGeometry g = PoolGeometryOf(ctx, x);
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
  const PoolGeometry g = PoolGeometryOf(ctx, x);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T* o = ws.Data<const T>(out);
    const T* go = ws.Data<const T>(dout);
    T* gi = ws.Data<T>(dx);
    ForPlanes(g,
              [&](int64_t i, int64_t k) { PoolGradPlane(g, At(in, i), o + k, go + k, At(gi, i)); });
  };
}

// Pooling is linear in the chosen elements: an average pools X@GRAD@GRAD, a maximum takes it at the
// position that got X@GRAD.
template <class T>
KernelOf<T> PoolGradGradReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), ddx = ctx.Input("X@GRAD@GRAD");
  const TensorArg ddout = ctx.Output("Out@GRAD@GRAD");
  const PoolGeometry g = PoolGeometryOf(ctx, x);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    const T* o = ws.Data<const T>(out);
    const T* gi = ws.Data<const T>(ddx);
    T* go = ws.Data<T>(ddout);
    ForPlanes(g, [&](int64_t i, int64_t k) {
      if (!g.max) return PoolPlane(g, At(gi, i), go + k);
      ForWindows(g, [&](const PoolWindow& window, int64_t p) {
        const int64_t at = FirstMatch(g.InStrides(), window, At(in, i), o[k + p]);
        go[k + p] = at >= 0 ? gi[i + at] : T(0);
      });
    });
  };
}

// --- fast kernels ---

// Scratch memory for a row of every channel of every image.
TensorArg ScratchRows(const PrepareContext& ctx, const PoolGeometry& g) {
  return ctx.Scratch(DType::kFloat32, {CheckedMul(g.batch, g.channels), g.w.in});
}

// 16-bit images with channels last: a few at a time are converted, within the cache.
struct HalfImages {
  int64_t batch, at_once, in, out;  // images; elements of an image of X and of Out

  explicit HalfImages(const PoolGeometry& g)
      : batch(g.batch), in(g.InStrides().n), out(g.OutStrides().n) {
    constexpr int64_t kFloats = 64 * 1024;
    at_once = std::clamp<int64_t>(kFloats / (in + out), 1, g.batch);
  }
  static bool AreIn(const PoolGeometry& g, std::initializer_list<TensorArg> args) {
    return g.channels_last && std::all_of(args.begin(), args.end(), [](const TensorArg& arg) {
             return arg && arg.numel > 0;
           });
  }
  // Scratch memory for the images converted at once.
  TensorArg Scratch(const PrepareContext& ctx, int64_t image) const {
    return ctx.Scratch(DType::kFloat32, {at_once, image});
  }
  // Calls f(first image, number).
  template <class F>
  void ForEach(F&& f) const {
    for (int64_t i = 0; i < batch; i += at_once) f(i, std::min(at_once, batch - i));
  }
};

Kernel PoolFastOfHalves(const PrepareContext& ctx) {
  const TensorArg x = HalfInput(ctx, "X"), out = HalfOutput(ctx, "Out");
  if (!x || !out) return {};
  PoolGeometry g = PoolGeometryOf(ctx, x);
  if (!HalfImages::AreIn(g, {x, out})) return {};
  const HalfImages images(g);
  const TensorArg in = images.Scratch(ctx, images.in), made = images.Scratch(ctx, images.out);
  return [=](Workspace& ws) {
    images.ForEach([&](int64_t first, int64_t n) {
      PoolGeometry part = g;
      part.batch = n;
      const float* from = WidenPart(ws, x, first * images.in, n * images.in, in);
      (g.max ? MaxPoolNhwc : AveragePoolNhwc)(part, from, ws.Data<float>(made));
      NarrowPart(ws, made, out, first * images.out, n * images.out);
    });
  };
}

Kernel PoolGradFastOfHalves(const PrepareContext& ctx) {
  const TensorArg x = HalfInput(ctx, "X"), out = HalfInput(ctx, "Out");
  const TensorArg dout = HalfInput(ctx, "Out@GRAD"), dx = HalfOutput(ctx, "X@GRAD");
  if (!x || !out || !dout || !dx) return {};
  PoolGeometry g = PoolGeometryOf(ctx, x);
  if (!HalfImages::AreIn(g, {x, out, dout, dx})) return {};
  const HalfImages images(g);
  const TensorArg in = images.Scratch(ctx, images.in), made = images.Scratch(ctx, images.in);
  const TensorArg best = images.Scratch(ctx, images.out), grad = images.Scratch(ctx, images.out);
  return [=](Workspace& ws) {
    images.ForEach([&](int64_t first, int64_t n) {
      PoolGeometry part = g;
      part.batch = n;
      const int64_t i = first * images.in, o = first * images.out;
      const float* go = WidenPart(ws, dout, o, n * images.out, grad);
      float* gi = ws.Data<float>(made);
      if (g.max) {
        const float* from = WidenPart(ws, x, i, n * images.in, in);
        MaxPoolGradNhwc(part, from, WidenPart(ws, out, o, n * images.out, best), go, gi);
      } else {
        AveragePoolGradNhwc(part, go, gi);
      }
      NarrowPart(ws, made, dx, i, n * images.in);
    });
  };
}

template <class T>
Kernel MaxPoolBytes(const PrepareContext& ctx, const PoolGeometry& g, const TensorArg& x,
                    const TensorArg& out) {
  const BytePool pool(ctx, g);
  return [=](Workspace& ws) { pool.Max(ws, ws.Data<const T>(x), ws.Data<T>(out)); };
}

Kernel PoolFast(const PrepareContext& ctx) {
  if (Kernel by_parts = PoolFastOfHalves(ctx)) return by_parts;
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const PoolGeometry g = PoolGeometryOf(ctx, x);
  if (out.numel == 0 || x.numel == 0) return {};
  if (x.dtype == DType::kInt8) return MaxPoolBytes<int8_t>(ctx, g, x, out);
  if (x.dtype == DType::kUInt8) return MaxPoolBytes<uint8_t>(ctx, g, x, out);
  if (x.dtype != DType::kFloat32) return {};
  if (g.channels_last) {
    return [=](Workspace& ws) {
      const float* in = ws.Data<const float>(x);
      float* o = ws.Data<float>(out);
      g.max ? MaxPoolNhwc(g, in, o) : AveragePoolNhwc(g, in, o);
    };
  }
  const auto tables = std::make_shared<const PoolTables>(g);
  return [=, rows = ScratchRows(ctx, g)](Workspace& ws) {
    const auto pool = tables->g.max ? MaxPoolNchw : AveragePoolNchw;
    pool(*tables, ws.Data<const float>(x), ws.Data<float>(rows), ws.Data<float>(out));
  };
}

Kernel PoolGradFast(const PrepareContext& ctx) {
  if (Kernel by_parts = PoolGradFastOfHalves(ctx)) return by_parts;
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const PoolGeometry g = PoolGeometryOf(ctx, x);
  if (x.dtype != DType::kFloat32 || dx.numel == 0) return {};
  if (!g.channels_last) {
    if (g.max) return {};
    const auto tables = std::make_shared<const PoolTables>(g);
    return [=, rows = ScratchRows(ctx, g)](Workspace& ws) {
      AveragePoolGradNchw(*tables, ws.Data<const float>(dout), ws.Data<float>(rows),
                          ws.Data<float>(dx));
    };
  }
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
  const std::string type = g.op().type();
  g.Append(
      type + "_grad",
      {{"X", {g.Input("X")}}, {"Out", {g.Input("Out")}}, {"X@GRAD@GRAD", {g.OutputGrad("X@GRAD")}}},
      {{"Out@GRAD@GRAD", {g.InputGrad("Out@GRAD")}}}, g.ForwardAttrs(type));
}

// The op is linear in X@GRAD@GRAD, and its transpose is the map of the gradient op.
void PoolGradGradGradient(GradientContext& g) {
  const std::string type = g.op().type(), grad = type.substr(0, type.size() - 5);
  g.Append(grad,
           {{"X", {g.Input("X")}},
            {"Out", {g.Input("Out")}},
            {"Out@GRAD", {g.OutputGrad("Out@GRAD@GRAD")}}},
           {{"X@GRAD", {g.InputGrad("X@GRAD@GRAD")}}}, g.ForwardAttrs(grad));
}

// --- registration ---

void DeclarePoolAttrs(OpDef& def, int axes) {
  using Ints = std::vector<int32_t>;
  const auto n = static_cast<size_t>(axes);
  const std::string first = axes == 2 ? "NCHW" : "NCDHW", last = axes == 2 ? "NHWC" : "NDHWC";
  def.Attr<std::string>("pooling_type", "max or avg")
      .OneOf({"max", "avg"})
      .Attr<Ints>("ksize", "size of the window (of Out when adaptive)")
      .Attr<bool>("global_pooling", false,
                  "the window is the whole image, and ksize and paddings are ignored")
      .Attr<Ints>("strides", Ints(n, 1), "steps of the window along the axes")
      .Attr<Ints>("paddings", Ints(n, 0),
                  "one number for each axis, or two, before and after: {top, bottom, left, right}")
      .Attr<bool>("exclusive", true, "an average does not count padding")
      .Attr<bool>("adaptive", false,
                  "window i covers [floor(i in / out), ceil((i + 1) in / out)), out = ksize")
      .Attr<bool>("ceil_mode", false, "round the output size up")
      .Attr<std::string>("data_format", first, first + " (AnyLayout too) or " + last)
      .OneOf({first, last, "AnyLayout"})
      .Attr<std::string>("padding_algorithm", "EXPLICIT", "EXPLICIT, SAME or VALID, as for conv2d")
      .OneOf({"EXPLICIT", "SAME", "VALID"})
      .Attr<bool>("is_test", false, "accepted, no effect");
}

OpDef ForwardDef(const std::string& type) {
  const bool volumes = AxesOf(type) == 3;
  const std::string many = volumes ? "three" : "two", twice = volumes ? "six" : "four";
  return OpDef(type)
      .Doc(
          "Maximum or average over windows of each channel. Output size: (in - kernel + pad_before "
          "+ pad_after) / stride + 1, rounded down, or up with ceil_mode. A maximum ignores "
          "padding and is nan if its window contains a nan. An average divides by the number of "
          "elements inside the image or, if not exclusive, by the window's size clipped to in + "
          "pad_after. A window without elements gives 0.")
      .Constraint("C1", std::string("X must have rank ") + (volumes ? "5" : "4"))
      .Constraint("C2", "an average needs floating-point X (of integers: quantized_pool2d)")
      .Constraint("C3", "ksize must be " + many + " positive numbers")
      .Constraint("C4", "strides must be " + many + " positive numbers")
      .Constraint("C5", "paddings must be " + many + " or " + twice + " numbers >= 0")
      .Constraint("C6", "the window must fit into the padded X or stick out by less than a stride")
      .Input("X", volumes ? "volumes [N, C, D, H, W], or [N, D, H, W, C] for NDHWC"
                          : "images [N, C, H, W], or [N, H, W, C] for NHWC")
      .Output("Out", "pooled images or volumes in X's layout")
      .Apply(DeclarePoolAttrs, AxesOf(type))
      .ImageLayout("data_format", {"X", "Out"})
      .Rows(EachBatchRow, kEachBatchRow)
      .Infer(InferPool)
      .GradientOp({"X", "Out"})
      .Reference(PoolReference<float>, PoolReference<double>, PoolReference<int8_t>,
                 PoolReference<uint8_t>)
      .Fast(PoolFast);
}

OpDef GradDef(const std::string& type) {
  return OpDef(type + "_grad")
      .Doc("Gradient of " + type +
           "; the gradient of a maximum goes to the first element of the window that equals Out or "
           "is a nan.")
      .ConstraintsOf(type, {"C1", "C3", "C4", "C5", "C6"})
      .Constraint("C7", "Out and Out@GRAD must have the shape of Out in the forward op")
      .Constraint("C8", "all inputs must have one dtype")
      .Input("X", "X of the forward op")
      .Input("Out", "Out of the forward op")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .AttrsOf(type)
      .NoGradientTo({"X", "Out"})
      .ImageLayout("data_format", {"X", "Out", "Out@GRAD", "X@GRAD"})
      .Infer(InferPoolGrad)
      .Gradient(PoolGradGradient)
      .Reference(PoolGradReference<float>, PoolGradReference<double>)
      .Fast(PoolGradFast);
}

OpDef GradGradDef(const std::string& type) {
  return OpDef(type + "_grad_grad")
      .Doc("Gradient of " + type +
           "_grad with respect to Out@GRAD: X@GRAD@GRAD is pooled like X; for max, it is taken at "
           "the position of X's maximum.")
      .ConstraintsOf(type, {"C1", "C3", "C4", "C5", "C6"})
      .Constraint("C7", "Out must have its shape in the forward op, X@GRAD@GRAD the shape of X")
      .Constraint("C8", "all inputs must have one dtype")
      .Input("X", "X of the forward op")
      .Input("Out", "Out of the forward op")
      .Input("X@GRAD@GRAD", "gradient of X@GRAD")
      .Output("Out@GRAD@GRAD", "gradient of Out@GRAD")
      .AttrsOf(type)
      .Infer(InferPoolGradGrad)
      .NoGradientTo({"X", "Out"})
      .Gradient(PoolGradGradGradient)
      .Reference(PoolGradGradReference<float>, PoolGradGradReference<double>);
}

void Register(OpRegistry& ops) {
  for (const char* type : {"pool2d", "pool3d"}) {
    ops.Add(AxesOf(type) == 2 ? ForwardDef(type).EachImage() : ForwardDef(type));
    ops.Add(GradDef(type));
    ops.Add(GradGradDef(type));
  }
}

}  // namespace coracle::pool2d_op
