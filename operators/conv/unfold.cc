#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <utility>

namespace coracle::unfold_op {

using Ints = std::vector<int32_t>;

// The windows along height (axis 0) or width (axis 1).
template <class Context>
WindowAxis AxisOf(const Context& ctx, int axis, int64_t in) {
  const auto pads = ctx.template Attr<Ints>("paddings");
  WindowSpec spec;
  spec.strides = ctx.template Attr<Ints>("strides");
  spec.dilations = ctx.template Attr<Ints>("dilations");
  spec.paddings = {pads[0], pads[2], pads[1], pads[3]};  // given as top, left, bottom, right
  return ResolveAxis(spec, axis, in,
                     ctx.template Attr<Ints>("kernel_sizes")[static_cast<size_t>(axis)]);
}

VarMeta UnfoldOut(const InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x.shape);
  const auto check = [&](const char* attr, size_t size, int32_t least) {
    const Ints list = ctx.Attr<Ints>(attr);
    const bool fits = list.size() == size &&
                      std::all_of(list.begin(), list.end(), [&](int32_t v) { return v >= least; });
    ctx.Require("C2", fits, attr, list);
  };
  check("kernel_sizes", 2, 1);
  check("strides", 2, 1);
  check("dilations", 2, 1);
  check("paddings", 4, 0);
  const WindowAxis h = AxisOf(ctx, 0, x.shape[2]), w = AxisOf(ctx, 1, x.shape[3]);
  ctx.Require("C3", h.out != 0 && w.out != 0, x.shape);
  x.shape = {x.shape[0], MulDims(x.shape[1], MulDims(h.kernel, w.kernel)), MulDims(h.out, w.out)};
  return x;
}

struct Patches {
  int64_t planes;
  WindowAxis h, w;

  Patches(const PrepareContext& ctx, const Shape& x)
      : planes(x[0] * x[1]), h(AxisOf(ctx, 0, x[2])), w(AxisOf(ctx, 1, x[3])) {}

  // The positions x in a row of windows that read a column of X at tap `tap`; the others
  // are padding.
  struct Inside {
    int64_t begin, end, first;  // position x reads column first + x * stride
  };
  Inside InsideOf(int64_t tap) const {
    const int64_t first = tap * w.dilation - w.before;
    // The number of positions below a number of columns.
    const auto places = [&](int64_t columns) {
      return columns <= first ? 0 : std::min((columns - first + w.stride - 1) / w.stride, w.out);
    };
    return {places(0), places(w.in), first};
  }

  // Calls f(first element of a row of X, or -1 in the padding, inside, first element of a row of Y)
  // for all rows of Y of a channel of an image.
  template <class F>
  void ForRows(int64_t p, F&& f) const {
    int64_t to = p * h.kernel * w.kernel * h.out * w.out;
    for (int64_t k = 0; k < h.kernel * w.kernel; ++k) {
      const Inside inside = InsideOf(k % w.kernel);
      for (int64_t y = 0; y < h.out; ++y, to += w.out) {
        const int64_t row = h.Start(y) + k / w.kernel * h.dilation;
        f(row >= 0 && row < h.in ? (p * h.in + row) * w.in : int64_t{-1}, inside, to);
      }
    }
  }
  template <class Body>
  void ForEach(Body&& body) const {
    ParallelFor(planes, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) body(p);
    });
  }
};

template <class T>
KernelOf<T> Unfold(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Output("Y");
  const Patches patches(ctx, x.shape);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* out = ws.Data<T>(y);
    const int64_t width = patches.w.out, stride = patches.w.stride;
    patches.ForEach([&](int64_t p) {
      patches.ForRows(p, [&](int64_t from, const Patches::Inside& inside, int64_t at) {
        T* to = out + at;
        if (from < 0) return void(std::fill_n(to, width, T(0)));
        const T* row = in + from;
        const int64_t first = inside.first;
        std::fill(to, to + inside.begin, T(0));
        if (stride == 1) {
          if (inside.begin < inside.end)
            std::copy(row + first + inside.begin, row + first + inside.end, to + inside.begin);
        } else {
          for (int64_t x = inside.begin; x < inside.end; ++x) to[x] = row[first + x * stride];
        }
        std::fill(to + inside.end, to + width, T(0));
      });
    });
  };
}

template <class T>
KernelOf<T> UnfoldGrad(const PrepareContext& ctx) {
  const TensorArg dy = ctx.Input("Y@GRAD"), dx = ctx.Output("X@GRAD");
  const Patches patches(ctx, dx.shape);
  return [=](Workspace& ws) {
    const T* g = ws.Data<const T>(dy);
    T* to = ws.Data<T>(dx);
    const int64_t plane = patches.h.in * patches.w.in;
    patches.ForEach([&](int64_t p) {
      std::fill_n(to + p * plane, plane, T(0));
      patches.ForRows(p, [&](int64_t at, const Patches::Inside& inside, int64_t from) {
        if (at < 0) return;
        T* row = to + at;
        const int64_t first = inside.first, stride = patches.w.stride;
        if (stride == 1) {
          for (int64_t x = inside.begin; x < inside.end; ++x) row[first + x] += g[from + x];
        } else {
          for (int64_t x = inside.begin; x < inside.end; ++x)
            row[first + x * stride] += g[from + x];
        }
      });
    });
  };
}

void DeclareUnfold(OpDef& def) {
  def.Attr<Ints>("kernel_sizes", "{height, width} of a patch")
      .Attr<Ints>("strides", "{height, width}: steps from patch to patch")
      .Attr<Ints>("paddings", "zeros around X: {top, left, bottom, right}")
      .Attr<Ints>("dilations", "{height, width}: distance of the elements of a patch");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("unfold")
              .Doc("Y[n] = the patches of X[n] as columns, from left to right and from top to "
                   "bottom; a column holds channel after channel, zero in the padding.")
              .Constraint("C1", "X must have rank 4")
              .Constraint("C2",
                          "kernel_sizes, strides and dilations must be two positive numbers, "
                          "paddings four that are not negative")
              .Constraint("C3", "a patch must fit into the padded X")
              .Input("X", "[N, C, H, W]")
              .Output("Y", "[N, C kernel height kernel width, patches]")
              .Apply(DeclareUnfold)
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Y", UnfoldOut(ctx)); })
              .GradientOp({"X"})
              .Reference(Unfold<float>, Unfold<double>));
  ops.Add(OpDef("unfold_grad")
              .Doc("Gradient of unfold: X@GRAD = the sum over the patches.")
              .ConstraintsOf("unfold", {"C1", "C2", "C3"})
              .Constraint("C4", "Y@GRAD must have Y's shape and dtype")
              .Input("X", "only its shape is used")
              .Input("Y@GRAD", "gradient of Y")
              .Output("X@GRAD", "gradient of X")
              .Apply(DeclareUnfold)
              .NoGradientTo({"X"})
              .KernelTypeFrom("Y@GRAD")
              .Infer([](InferContext& ctx) {
                const VarMeta y = UnfoldOut(ctx), &dy = ctx.Input("Y@GRAD");
                ctx.Require("C4", dy.dtype == y.dtype && dy.shape.CompatibleWith(y.shape), dy, y);
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Gradient([](GradientContext& g) {
                g.Set("Y@GRAD", g.Make("unfold", {{"X", {g.OutputGrad("X@GRAD")}}},
                                       g.ForwardAttrs("unfold"), "Y"));
              })
              .Reference(UnfoldGrad<float>, UnfoldGrad<double>));
}

}  // namespace coracle::unfold_op
