#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/bilinear.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/vision_simd.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <utility>

namespace coracle::deformable_conv_op {

using Ints = std::vector<int32_t>;

template <class Context>
WindowSpec SpecOf(const Context& ctx) {
  WindowSpec spec;
  spec.strides = ctx.template Attr<Ints>("strides");
  spec.paddings = ctx.template Attr<Ints>("paddings");
  spec.dilations = ctx.template Attr<Ints>("dilations");
  return spec;
}

bool HasMask(const std::string& type) { return type.find("_v1") == type.npos; }

VarMeta CheckConv(const InferContext& ctx) {
  VarMeta x = ctx.Input("Input");
  const Shape input = x.shape, filter = ctx.InputShape("Filter");
  ctx.Require("C1", input.rank() == 4 && filter.rank() == 4, input, filter);
  const WindowSpec spec = SpecOf(ctx);
  ctx.Require("C2", StridesAreValid(spec, 2) && DilationsAreValid(spec, 2), "strides", spec.strides,
              "dilations", spec.dilations);
  ctx.Require("C2", PaddingsAreValid(spec, 2) && spec.paddings.size() == 2, "paddings",
              spec.paddings);
  const int64_t groups = ctx.Attr<int32_t>("groups"),
                parts = ctx.Attr<int32_t>("deformable_groups");
  const int64_t channels = input[1], filters = filter[0];
  ctx.Require("C3", groups > 0 && parts > 0, "groups", groups, "deformable_groups", parts);
  ctx.Require("C3",
              (channels < 0 || (channels % groups == 0 && channels % parts == 0 &&
                                InferContext::Matches(filter[1], channels / groups))) &&
                  (filters < 0 || filters % groups == 0),
              "Input", input, "Filter", filter);
  x.shape[1] = filters;
  for (int i = 0; i < 2; ++i) {
    const WindowAxis axis = ResolveAxis(spec, i, input[2 + i], filter[2 + i]);
    ctx.Require("C4", axis.out != 0 && input[2 + i] != 0, "Input", input, "Filter", filter);
    x.shape[2 + i] = axis.out;
  }
  const int64_t taps = MulDims(parts, MulDims(filter[2], filter[3]));
  const auto require = [&](const char* slot, int64_t maps) {
    const Shape wanted{input[0], maps, x.shape[2], x.shape[3]};
    ctx.Require("C5", ctx.InputShape(slot).CompatibleWith(wanted), slot, ctx.InputShape(slot),
                "shape", wanted);
    RequireSameDType(ctx, "C6", slot, "Input");
  };
  require("Offset", MulDims(2, taps));
  if (HasMask(ctx.op().type())) require("Mask", taps);
  RequireSameDType(ctx, "C6", "Filter", "Input");
  return x;
}

// For one image, columns [C kh kw, Ho Wo] hold the values that the taps read, so that the
// convolution is a matrix product for each group.
struct Geometry {
  int64_t batch, channels, filters, groups, parts;
  WindowAxis h, w;

  Geometry(const PrepareContext& ctx, const Shape& input, const Shape& filter)
      : batch(input[0]),
        channels(input[1]),
        filters(filter[0]),
        groups(ctx.Attr<int32_t>("groups")),
        parts(ctx.Attr<int32_t>("deformable_groups")),
        h(ResolveAxis(SpecOf(ctx), 0, input[2], filter[2])),
        w(ResolveAxis(SpecOf(ctx), 1, input[3], filter[3])) {}

  int64_t plane() const { return h.in * w.in; }
  int64_t places() const { return h.out * w.out; }
  int64_t taps() const { return h.kernel * w.kernel; }
  int64_t depth() const { return channels / groups * taps(); }  // rows of a group's columns
  int64_t image() const { return channels * plane(); }
  int64_t out_image() const { return filters * places(); }

  // The first channel that a tap reads.
  int64_t FirstChannel(int64_t tap) const { return tap / taps() * (channels / parts); }
  // For tap `tap` of image n at place p: the mask is element Map(n, tap) * places() + p of the
  // masks; the offset along y is element 2 * Map(n, tap) * places() + p of the offsets, and the
  // offset along x is `places()` further.
  int64_t Map(int64_t n, int64_t tap) const { return n * parts * taps() + tap; }
  template <class T>
  Bilinear<T> Near(const T* offset, int64_t n, int64_t tap, int64_t p) const {
    const int64_t k = tap % taps();
    const T* at = offset + 2 * Map(n, tap) * places() + p;
    const T y = static_cast<T>(h.Start(p / w.out) + k / w.kernel * h.dilation) + at[0];
    const T x = static_cast<T>(w.Start(p % w.out) + k % w.kernel * w.dilation) + at[places()];
    return Bilinear<T>(y, x, h.in, w.in);
  }

  // Calls f(bilinear weights, index of the tap's mask, index of its offset along y, first channel,
  // tap, place) for taps [begin, end) of all parts of image n; the offset along x is
  // `places` further.
  template <class T, class F>
  void ForTaps(const T* offset, int64_t n, int64_t begin, int64_t end, F&& f) const {
    for (int64_t tap = begin; tap < end; ++tap) {
      const int64_t map = Map(n, tap);
      for (int64_t p = 0; p < places(); ++p) {
        f(Near(offset, n, tap, p), map * places() + p, 2 * map * places() + p, FirstChannel(tap),
          tap % taps(), p);
      }
    }
  }
  // The row of the columns for a channel and a tap.
  int64_t Row(int64_t channel, int64_t tap) const { return channel * taps() + tap; }

  // `mask` may be null: all ones.
  template <class T>
  void Gather(const T* image_of_n, const T* offset, const T* mask, int64_t n, T* columns) const {
    ParallelFor(parts * taps(), 1, [&](int64_t begin, int64_t end) {
      ForTaps(
          offset, n, begin, end,
          [&](const Bilinear<T>& near, int64_t m, int64_t, int64_t first, int64_t k, int64_t p) {
            const T factor = mask ? mask[m] : T(1);
            for (int64_t c = first; c < first + channels / parts; ++c)
              columns[Row(c, k) * places() + p] = factor * near.Of(image_of_n + c * plane());
          });
    });
  }
};

// Outputs of the gradient op; null if not wanted.
template <class T>
struct Wanted {
  T *input, *offset, *mask, *filter;
};

// Scatters the gradient of one image's columns.
template <class T>
void Scatter(const Geometry& g, const T* in, const T* offset, const T* mask, int64_t n,
             const T* columns, const Wanted<T>& to) {
  g.ForTaps(
      offset, n, 0, g.parts * g.taps(),
      [&](const Bilinear<T>& near, int64_t m, int64_t at, int64_t first, int64_t k, int64_t p) {
        const T factor = mask ? mask[m] : T(1);
        T value = 0, along_y = 0, along_x = 0;
        for (int64_t c = first; c < first + g.channels / g.parts; ++c) {
          const T d = columns[g.Row(c, k) * g.places() + p];
          const T* plane = in + c * g.plane();
          value += d * near.Of(plane);
          along_y += d * near.DyOf(plane);
          along_x += d * near.DxOf(plane);
          if (to.input) near.AddTo(to.input + n * g.image() + c * g.plane(), factor * d);
        }
        if (to.mask) to.mask[m] = value;
        if (!to.offset) return;
        to.offset[at] = factor * along_y;
        to.offset[at + g.places()] = factor * along_x;
      });
}

// --- float32: tiles of places, for which the channels are done one after the other ---

bool FitsTiles(const Geometry& g) { return g.plane() < (int64_t{1} << 31); }

// Calls f(tile, first place) for the places of a tap of image n; the weights are multiplied by the
// mask unless it is null.
template <class F>
void ForTiles(const Geometry& g, const float* offset, const float* mask, int64_t n, int64_t tap,
              F&& f) {
  SampleTile tile;
  for (int64_t first = 0; first < g.places(); first += SampleTile::kSize) {
    const int64_t size = std::min(SampleTile::kSize, g.places() - first);
    const float* factors = mask ? mask + g.Map(n, tap) * g.places() + first : nullptr;
    for (int64_t i = 0; i < size; ++i)
      tile.Set(i, g.Near(offset, n, tap, first + i), factors ? factors[i] : 1.f);
    tile.Finish(size);
    f(tile, first);
  }
}

void FastGather(const Geometry& g, const float* in, const float* offset, const float* mask,
                int64_t n, float* columns) {
  ParallelFor(g.parts * g.taps(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t tap = begin; tap < end; ++tap) {
      // The mask multiplies the sum over the neighbours: an infinite mask times each neighbour
      // would give nan if they have both signs.
      const float* factors = mask ? mask + g.Map(n, tap) * g.places() : nullptr;
      ForTiles(g, offset, nullptr, n, tap, [&](const SampleTile& tile, int64_t p) {
        const int64_t first = g.FirstChannel(tap);
        for (int64_t c = first; c < first + g.channels / g.parts; ++c)
          ReadSamples(tile, in + c * g.plane(), factors ? factors + p : nullptr,
                      columns + g.Row(c, tap % g.taps()) * g.places() + p);
      });
    }
  });
}

// The gradients of the offsets and masks of one image, which are sums over channels.
void TapGradients(const Geometry& g, const float* in, const float* offset, const float* mask,
                  int64_t n, const float* columns, const Wanted<float>& to) {
  ParallelFor(g.parts * g.taps(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t tap = begin; tap < end; ++tap) {
      ForTiles(g, offset, nullptr, n, tap, [&](const SampleTile& tile, int64_t p) {
        constexpr int64_t kSize = SampleTile::kSize;
        float value[kSize] = {}, along_y[kSize] = {}, along_x[kSize] = {};
        float* sum = to.mask ? value : nullptr;
        const int64_t first = g.FirstChannel(tap);
        for (int64_t c = first; c < first + g.channels / g.parts; ++c) {
          AddDerivatives(tile, in + c * g.plane(),
                         columns + g.Row(c, tap % g.taps()) * g.places() + p, sum, along_y,
                         along_x);
        }
        const int64_t map = g.Map(n, tap) * g.places() + p;
        const int64_t at = 2 * g.Map(n, tap) * g.places() + p;
        for (int64_t i = 0; i < tile.size; ++i) {
          const float factor = mask ? mask[map + i] : 1.f;
          if (to.mask) to.mask[map + i] = value[i];
          if (!to.offset) continue;
          to.offset[at + i] = factor * along_y[i];
          to.offset[at + g.places() + i] = factor * along_x[i];
        }
      });
    }
  });
}

// Threads split the channels, since different taps add to the same elements.
void InputGradient(const Geometry& g, const float* offset, const float* mask, int64_t n,
                   const float* columns, float* to) {
  ParallelFor(g.channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tap = 0; tap < g.parts * g.taps(); ++tap) {
      const int64_t first = std::max(begin, g.FirstChannel(tap));
      const int64_t last = std::min(end, g.FirstChannel(tap) + g.channels / g.parts);
      if (first >= last) continue;
      ForTiles(g, offset, mask, n, tap, [&](const SampleTile& tile, int64_t p) {
        for (int64_t c = first; c < last; ++c) {
          SpreadSamples(tile, columns + g.Row(c, tap % g.taps()) * g.places() + p,
                        to + n * g.image() + c * g.plane());
        }
      });
    }
  });
}

// --- kernels ---

template <KernelMode mode, class T>
void GatherIn(const Geometry& g, const T* in, const T* offset, const T* mask, int64_t n,
              T* columns) {
  if constexpr (mode == KernelMode::kReference)
    g.Gather(in, offset, mask, n, columns);
  else
    FastGather(g, in, offset, mask, n, columns);
}

template <KernelMode mode, class T>
void ScatterIn(const Geometry& g, const T* in, const T* offset, const T* mask, int64_t n,
               const T* columns, const Wanted<T>& to) {
  if constexpr (mode == KernelMode::kReference) {
    Scatter(g, in, offset, mask, n, columns, to);
  } else {
    if (to.offset || to.mask) TapGradients(g, in, offset, mask, n, columns, to);
    if (to.input) InputGradient(g, offset, mask, n, columns, to.input);
  }
}

template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> DeformableConv(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), offset = ctx.Input("Offset");
  const TensorArg mask = HasMask(ctx.op().type()) ? ctx.Input("Mask") : TensorArg();
  const TensorArg filter = ctx.Input("Filter"), output = ctx.Output("Output");
  if (output.numel == 0) return [](Workspace&) {};
  const Geometry g(ctx, input.shape, filter.shape);
  if (mode != KernelMode::kReference && !FitsTiles(g)) return {};
  const auto gemm = MakeGemm<T>({.m = g.filters / g.groups, .n = g.places(), .k = g.depth()}, mode);
  if (!gemm) return {};
  const TensorArg scratch =
      ctx.Scratch(input.dtype, {CheckedMul(CheckedMul(g.channels, g.taps()), g.places())});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(input), *w = ws.Data<const T>(filter);
    T *columns = ws.Data<T>(scratch), *o = ws.Data<T>(output);
    const T* factors = mask ? ws.Data<const T>(mask) : nullptr;
    for (int64_t n = 0; n < g.batch; ++n) {
      GatherIn<mode>(g, in + n * g.image(), ws.Data<const T>(offset), factors, n, columns);
      for (int64_t k = 0; k < g.groups; ++k) {
        gemm(w + k * (g.filters / g.groups) * g.depth(), columns + k * g.depth() * g.places(),
             o + n * g.out_image() + k * (g.filters / g.groups) * g.places());
      }
    }
  };
}

Kernel DeformableConvFast(const PrepareContext& ctx) {
  if (ctx.Input("Input").dtype != DType::kFloat32) return {};
  return DeformableConv<float, KernelMode::kAuto>(ctx);
}

// With the columns of an image: dFilter += dOut columns^T, dcolumns = Filter^T dOut.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> DeformableConvGrad(const PrepareContext& ctx) {
  const TensorArg input = ctx.Input("Input"), offset = ctx.Input("Offset");
  const TensorArg mask = HasMask(ctx.op().type()) ? ctx.Input("Mask") : TensorArg();
  const TensorArg filter = ctx.Input("Filter"), dout = ctx.Input("Output@GRAD");
  const TensorArg outs[] = {ctx.Output("Input@GRAD"), ctx.Output("Offset@GRAD"),
                            mask ? ctx.Output("Mask@GRAD") : TensorArg(),
                            ctx.Output("Filter@GRAD")};
  const auto zeros = [=](Workspace& ws) {
    for (const TensorArg& out : outs) {
      if (out) std::fill_n(ws.Data<T>(out), out.numel, T(0));
    }
  };
  if (dout.numel == 0 || input.numel == 0) return zeros;
  const Geometry g(ctx, input.shape, filter.shape);
  if (mode != KernelMode::kReference && !FitsTiles(g)) return {};
  const int64_t rows = g.filters / g.groups;
  const auto to_filter = MakeGemm<T>(
      {.m = rows, .n = g.depth(), .k = g.places(), .transpose_b = true, .beta = 1}, mode);
  const auto to_columns =
      MakeGemm<T>({.m = g.depth(), .n = g.places(), .k = rows, .transpose_a = true}, mode);
  if (!to_filter || !to_columns) return {};
  const TensorArg scratch =
      ctx.Scratch(input.dtype, {CheckedMul(CheckedMul(g.channels, g.taps()), g.places())});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(input), *off = ws.Data<const T>(offset);
    const T *w = ws.Data<const T>(filter), *d = ws.Data<const T>(dout);
    const T* factors = mask ? ws.Data<const T>(mask) : nullptr;
    T* columns = ws.Data<T>(scratch);
    const auto data = [&](const TensorArg& out) { return out ? ws.Data<T>(out) : nullptr; };
    const Wanted<T> to{data(outs[0]), data(outs[1]), data(outs[2]), data(outs[3])};
    zeros(ws);
    for (int64_t n = 0; n < g.batch; ++n) {
      const auto for_groups = [&](const auto& f) {
        for (int64_t k = 0; k < g.groups; ++k)
          f(d + n * g.out_image() + k * rows * g.places(), k * rows * g.depth(),
            columns + k * g.depth() * g.places());
      };
      if (to.filter) {
        GatherIn<mode>(g, in + n * g.image(), off, factors, n, columns);
        for_groups(
            [&](const T* dout_k, int64_t at, T* part) { to_filter(dout_k, part, to.filter + at); });
      }
      if (!to.input && !to.offset && !to.mask) continue;
      for_groups([&](const T* dout_k, int64_t at, T* part) { to_columns(w + at, dout_k, part); });
      ScatterIn<mode>(g, in + n * g.image(), off, factors, n, columns, to);
    }
  };
}

Kernel DeformableConvGradFast(const PrepareContext& ctx) {
  if (ctx.Input("Input").dtype != DType::kFloat32) return {};
  return DeformableConvGrad<float, KernelMode::kAuto>(ctx);
}

void DeclareConv(OpDef& def, bool mask) {
  def.Input("Input", "images [N, C, H, W]")
      .Input("Offset", "[N, 2 D kh kw, H', W'], for each of D parts and each tap (y, x)");
  if (mask) def.Input("Mask", "[N, D kh kw, H', W'], a factor for each tap");
  def.Input("Filter", "[M, C / groups, kh, kw]")
      .Attr<Ints>("strides", {1, 1}, "steps of the window: {height, width}")
      .Attr<Ints>("paddings", {0, 0}, "zeros around Input: {height, width}")
      .Attr<Ints>("dilations", {1, 1}, "distance of kernel elements")
      .Attr<int32_t>("groups", 1, "channels and filters are split into so many groups")
      .Attr<int32_t>("deformable_groups", 1,
                     "D, the number of channel groups with separate offsets")
      .Attr<int32_t>("im2col_step", 64, "ignored: a hint for blocking");
}

void Add(OpRegistry& ops, const std::string& type) {
  const bool mask = HasMask(type);
  ops.Add(
      OpDef(type)
          .Doc(std::string("A convolution whose taps read Input at their usual position plus "
                           "Offset, interpolated bilinearly, 0 outside") +
               (mask ? ", times Mask." : "."))
          .Constraint("C1", "Input and Filter must have rank 4")
          .Constraint("C2",
                      "strides and dilations must be two positive numbers, paddings two "
                      "that are not negative")
          .Constraint("C3",
                      "groups and deformable_groups must be positive and divide the "
                      "channels, groups the number of filters too, and Filter.shape[1] * "
                      "groups must be the channels")
          .Constraint("C4",
                      "Input must not be empty, and the kernel must fit into it with its "
                      "padding")
          .Constraint("C5", "Offset (and Mask) must have the maps of all taps, of Output's size")
          .Constraint("C6", "all inputs must have one dtype")
          .Apply(DeclareConv, mask)
          .Output("Output", "[N, M, H', W']")
          .Rows(EachBatchRow, kEachBatchRow)
          .Tables({"Filter"})
          .Infer([](InferContext& ctx) { ctx.SetOutput("Output", CheckConv(ctx)); })
          .GradientOp(mask ? std::vector<std::string>{"Input", "Offset", "Mask", "Filter"}
                           : std::vector<std::string>{"Input", "Offset", "Filter"})
          .Reference(DeformableConv<float>, DeformableConv<double>)
          .Fast(DeformableConvFast));
  OpDef grad(type + "_grad");
  grad.Doc("Gradients of " + type +
           "; at whole positions, the gradient of the offset is the one towards larger positions.")
      .ConstraintsOf(type, {"C1", "C2", "C3", "C4", "C5", "C6"})
      .Constraint("C7", "Output@GRAD must have Output's shape and dtype")
      .Apply(DeclareConv, mask)
      .Input("Output@GRAD", "gradient of Output")
      .OptionalOutput("Input@GRAD", "gradient of Input")
      .OptionalOutput("Offset@GRAD", "gradient of Offset");
  if (mask) grad.OptionalOutput("Mask@GRAD", "gradient of Mask");
  grad.OptionalOutput("Filter@GRAD", "gradient of Filter")
      .NoGradient("second derivatives of deformable convolutions are not provided")
      .Infer([](InferContext& ctx) {
        const VarMeta out = CheckConv(ctx), &dout = ctx.Input("Output@GRAD");
        ctx.Require("C7", dout.dtype == out.dtype && dout.shape.CompatibleWith(out.shape), dout,
                    out);
        for (const char* slot : {"Input", "Offset", "Mask", "Filter"}) {
          if (ctx.HasInput(slot)) ctx.SetOutput(GradName(slot), ctx.Input(slot));
        }
      })
      .Reference(DeformableConvGrad<float>, DeformableConvGrad<double>)
      .Fast(DeformableConvGradFast);
  ops.Add(std::move(grad));
}

void Register(OpRegistry& ops) {
  Add(ops, "deformable_conv");
  Add(ops, "deformable_conv_v1");
}

}  // namespace coracle::deformable_conv_op
