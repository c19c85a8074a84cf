#pragma once
// The shape rule and the geometry of pooling ops, from the attrs of pool2d.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/pool.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

template <class Context>
WindowSpec PoolSpec(const Context& ctx) {
  WindowSpec spec;
  spec.strides = ctx.template Attr<std::vector<int32_t>>("strides");
  spec.paddings = ctx.template Attr<std::vector<int32_t>>("paddings");
  spec.padding_algorithm = ctx.template Attr<std::string>("padding_algorithm");
  spec.ceil_mode = ctx.template Attr<bool>("ceil_mode");
  return spec;
}

// The window along one axis. Adaptive: ksize is the output size; global: the window is the
// whole input.
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

// The shape of Out. Checks C1 and C3 to C6 of pool2d.
inline Shape PoolShape(const InferContext& ctx, int axes) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 2 + axes, x.rank());
  if (!ctx.Attr<bool>("global_pooling")) {
    const auto ksize = ctx.Attr<std::vector<int32_t>>("ksize");
    const bool positive = std::all_of(ksize.begin(), ksize.end(), [](int32_t k) { return k > 0; });
    ctx.Require("C3", ksize.size() == static_cast<size_t>(axes) && positive, ksize);
  }
  const WindowSpec spec = PoolSpec(ctx);
  ctx.Require("C4", StridesAreValid(spec, axes), spec.strides);
  ctx.Require("C5", PaddingsAreValid(spec, axes), "paddings", spec.paddings);
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"), axes);
  Shape out = x;
  for (int axis = 0; axis < axes; ++axis) {
    const int dim = layout.axis(axis);
    const WindowAxis w = PoolAxis(ctx, spec, axis, x[dim]);
    ctx.Require("C6", w.out != 0, "window", w.kernel, "size", w.in);
    out[dim] = w.out;
  }
  return out;
}

inline PoolGeometry PoolGeometryOf(const PrepareContext& ctx, const TensorArg& x) {
  const int axes = x.shape.rank() - 2;
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"), axes);
  const WindowSpec spec = PoolSpec(ctx);
  PoolGeometry g;
  g.axes = axes;
  g.batch = x.shape[0];
  g.channels = x.shape[layout.channel()];
  g.channels_last = layout.channels_last;
  for (int i = 0; i < axes; ++i) g.axis(i) = PoolAxis(ctx, spec, i, x.shape[layout.axis(i)]);
  g.max = ctx.spec().FindAttr("pooling_type") && ctx.Attr<std::string>("pooling_type") == "max";
  g.adaptive = ctx.Attr<bool>("adaptive") && !ctx.Attr<bool>("global_pooling");
  g.exclusive = ctx.Attr<bool>("exclusive");
  return g;
}

}  // namespace coracle::inline internal
