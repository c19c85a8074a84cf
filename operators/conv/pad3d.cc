#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/conv/pad_axis.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>

#include <algorithm>

namespace coracle::pad3d_op {

// Paddings are listed for width, height and depth: axis i of {D, H, W} has its two at 2 * (2 - i).
constexpr size_t PadsOf(int i) { return 2 * static_cast<size_t>(2 - i); }

template <class Context>
bool ChannelsLast(const Context& ctx) {
  return ctx.template Attr<std::string>("data_format") == "NDHWC";
}

PadMode ModeOf(const std::string& mode) {
  if (mode == "constant") return PadMode::kConstant;
  if (mode == "reflect") return PadMode::kReflect;
  return mode == "replicate" ? PadMode::kEdge : PadMode::kCircular;
}

// The padded size of one axis; checks C3 and C4.
int64_t Padded(const InferContext& ctx, int64_t size, int64_t before, int64_t after) {
  const PadMode mode = ModeOf(ctx.Attr<std::string>("mode"));
  ctx.Require("C3", before >= 0 && after >= 0 && before < kMaxPadding && after < kMaxPadding,
              before, after);
  if (size < 0) return -1;
  const bool fits = mode == PadMode::kConstant || before + after == 0 ||
                    (mode == PadMode::kReflect ? std::max(before, after) < size : size > 0);
  ctx.Require("C4", fits, "before", before, "after", after, "size", size);
  return AddDims(size, before + after);
}

VarMeta PadOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 5, x.shape.rank());
  const IntList pads = ReadIntList(ctx, "", "Paddings", "paddings", 6);
  ctx.Require("C2", pads.values.size() == 6, pads.values.size());
  for (int i = 0; i < 3; ++i) {
    int64_t& dim = x.shape[i + (ChannelsLast(ctx) ? 1 : 2)];
    dim = pads.known ? Padded(ctx, dim, pads.values[PadsOf(i)], pads.values[PadsOf(i) + 1]) : -1;
  }
  return x;
}

void InferPad(InferContext& ctx) { ctx.SetOutput("Out", PadOut(ctx)); }

// `count` volumes, with `width` elements at each position.
struct Layout {
  PadAxis axes[3];  // depth, height, width
  int64_t count, width;
  PadMode mode;
};

class Padding {
 public:
  Padding(const PrepareContext& ctx, const Shape& in, const Shape& out)
      : pads_(ctx, "", "Paddings", "paddings") {
    if (pads_.size() != 6) ctx.Unsupported("there must be six paddings");
    const int first = ChannelsLast(ctx) ? 1 : 2;
    for (int i = 0; i < 3; ++i) layout_.axes[i] = {in[first + i], out[first + i], 0};
    layout_.count = in[0] * (first == 1 ? 1 : in[1]);
    layout_.width = first == 1 ? in[4] : 1;
    layout_.mode = ModeOf(ctx.Attr<std::string>("mode"));
  }
  // With the paddings before each axis, clamped to the range that the shapes allow, whatever a
  // tensor holds.
  Layout operator()(const Workspace& ws) const {
    Layout l = layout_;
    for (int i = 0; i < 3; ++i) {
      const PadAxis& axis = l.axes[i];
      l.axes[i].before = std::clamp<int64_t>(pads_.Get(ws, PadsOf(i)), 0, axis.out - axis.in);
    }
    return l;
  }

 private:
  Layout layout_;
  IntListArg pads_;
};

// Calls f(offset in X or -1, offset in Out) for every position of volume v.
template <class F>
void ForPlaces(const Layout& l, int64_t v, F&& f) {
  const auto& [depth, height, width] = l.axes;
  int64_t to = v * depth.out * height.out * width.out;
  for (int64_t i = 0; i < depth.out; ++i) {
    const int64_t d = PadSource(depth, i, l.mode);
    for (int64_t j = 0; j < height.out; ++j) {
      const int64_t h = PadSource(height, j, l.mode);
      for (int64_t k = 0; k < width.out; ++k, ++to) {
        const int64_t w = PadSource(width, k, l.mode);
        const bool inside = d >= 0 && h >= 0 && w >= 0;
        const int64_t from = ((v * depth.in + d) * height.in + h) * width.in + w;
        f(inside ? from * l.width : -1, to * l.width);
      }
    }
  }
}

template <class T>
KernelOf<T> Pad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const Padding padding(ctx, x.shape, out.shape);
  const T value = SaturateTo<T>(static_cast<double>(ctx.Attr<float>("value")));
  return [=](Workspace& ws) {
    const Layout l = padding(ws);
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(l.count, 1 + 16384 * l.count / out.numel, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        ForPlaces(l, v, [&](int64_t from, int64_t to) {
          for (int64_t c = 0; c < l.width; ++c) o[to + c] = from < 0 ? value : in[from + c];
        });
      }
    });
  };
}

template <class T>
KernelOf<T> PadGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  if (dout.numel == 0 || dx.numel == 0)
    return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
  const Padding padding(ctx, dx.shape, dout.shape);
  return [=](Workspace& ws) {
    const Layout l = padding(ws);
    const T* g = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    FillZeroBytes(o, bytes);
    ParallelFor(l.count, 1 + 16384 * l.count / dout.numel, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        ForPlaces(l, v, [&](int64_t from, int64_t to) {
          for (int64_t c = 0; c < l.width && from >= 0; ++c) o[from + c] += g[to + c];
        });
      }
    });
  };
}

void DeclarePads(OpDef& def) {
  def.OptionalInput("Paddings", "int32 or int64 tensor [6]; replaces attr paddings")
      .Attr<std::vector<int32_t>>("paddings", {0, 0, 0, 0, 0, 0},
                                  "{left, right, top, bottom, front, back}")
      .Attr<float>("value", 0.f, "the value around X in mode constant")
      .Attr<std::string>("mode", "constant",
                         "constant; reflect: mirrored without repeating the edge; replicate: the "
                         "nearest element; circular: from the other end")
      .OneOf({"constant", "reflect", "replicate", "circular"})
      .Attr<std::string>("data_format", "NCDHW", "layout of X and Out: NCDHW or NDHWC")
      .OneOf({"NCDHW", "NDHWC"})
      .NoGradientTo({"Paddings"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("pad3d")
              .Doc("Out = X with elements added around each volume along width, height and depth.")
              .Constraint("C1", "X must have rank 5")
              .Constraint("C2", "there must be six paddings")
              .Constraint("C3", "paddings must lie in [0, 2^31)")
              .Constraint("C4",
                          "a reflection must be shorter than its dimension, and replicate and "
                          "circular need a dimension that is not empty")
              .Input("X", "volumes of numbers")
              .Output("Out", "the padded volumes")
              .Apply(DeclarePads)
              .Infer(InferPad)
              .GradientOp({"X", "Paddings"})
              .Reference(Pad<float>, Pad<double>, Pad<int32_t>, Pad<int64_t>));
  ops.Add(OpDef("pad3d_grad")
              .Doc("Gradient of pad3d: each element of X@GRAD = the sum of Out@GRAD over its "
                   "copies in Out.")
              .ConstraintsOf("pad3d", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .Apply(DeclarePads)
              .NoGradientTo({"X"})
              .KernelTypeFrom("Out@GRAD")
              .Infer([](InferContext& ctx) { InferXGrad(ctx, "C5", PadOut(ctx)); })
              .Gradient([](GradientContext& g) { SetPadGradGradient(g, "pad3d"); })
              .Reference(PadGrad<float>, PadGrad<double>));
}

}  // namespace coracle::pad3d_op
