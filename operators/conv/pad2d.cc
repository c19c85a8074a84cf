#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/conv/pad_axis.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>

#include <algorithm>

namespace coracle::pad2d_op {

// The padded size of one axis; checks C3 and C4.
int64_t Padded(const InferContext& ctx, int64_t size, int64_t before, int64_t after) {
  const std::string mode = ctx.Attr<std::string>("mode");
  ctx.Require("C3", before >= 0 && after >= 0 && before < kMaxPadding && after < kMaxPadding,
              before, after);
  if (size < 0) return -1;
  if (mode == "reflect")
    ctx.Require("C4", std::max(before, after) < std::max<int64_t>(size, 1), "before", before,
                "after", after, "size", size);
  if (mode == "edge")
    ctx.Require("C4", size > 0 || before + after == 0, "before", before, "after", after, "size",
                size);
  return AddDims(size, before + after);
}

VarMeta PadOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x.shape.rank());
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const IntList pads = ReadIntList(ctx, "", "Paddings", "paddings", 4);
  ctx.Require("C2", pads.values.size() == 4, pads.values.size());
  int64_t& h = x.shape[layout.height()];
  int64_t& w = x.shape[layout.width()];
  h = pads.known ? Padded(ctx, h, pads.values[0], pads.values[1]) : -1;
  w = pads.known ? Padded(ctx, w, pads.values[2], pads.values[3]) : -1;
  return x;
}

void InferPad(InferContext& ctx) { ctx.SetOutput("Out", PadOut(ctx)); }

struct Layout {
  PadAxis h, w;
  int64_t planes, pixel;  // channels last: a plane is an image, a pixel all its channels
  PadMode mode;
};

PadMode ModeOf(const std::string& mode) {
  if (mode == "constant") return PadMode::kConstant;
  return mode == "reflect" ? PadMode::kReflect : PadMode::kEdge;
}

Layout LayoutOf(const PrepareContext& ctx, const Shape& in, const Shape& out, int64_t top,
                int64_t left) {
  const ImageLayout l = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const int64_t channels = in[l.channel()];
  return {{in[l.height()], out[l.height()], top},
          {in[l.width()], out[l.width()], left},
          l.channels_last ? in[0] : in[0] * channels,
          l.channels_last ? channels : 1,
          ModeOf(ctx.Attr<std::string>("mode"))};
}

// Calls inside(first element of X, first of Out, number) for the elements of plane p between the
// paddings of a row, and around(first element of X or -1, first of Out, number) for the pixels in
// the paddings.
template <class Inside, class Around>
void ForRows(const Layout& l, int64_t p, Inside&& inside, Around&& around) {
  for (int64_t i = 0; i < l.h.out; ++i) {
    const int64_t row = PadSource(l.h, i, l.mode);
    const int64_t from = (p * l.h.in + row) * l.w.in, to = (p * l.h.out + i) * l.w.out;
    const auto pixels = [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const int64_t column = PadSource(l.w, j, l.mode);
        around(row < 0 || column < 0 ? -1 : (from + column) * l.pixel, (to + j) * l.pixel, l.pixel);
      }
    };
    pixels(0, l.w.before);
    if (row < 0)
      around(-1, (to + l.w.before) * l.pixel, l.w.in * l.pixel);
    else
      inside(from * l.pixel, (to + l.w.before) * l.pixel, l.w.in * l.pixel);
    pixels(l.w.before + l.w.in, l.w.out);
  }
}

// {top, left} from attr or tensor: the sizes of Out determine the rest.
struct Corner {
  TensorArg tensor;
  int64_t top = 0, left = 0;

  explicit Corner(const PrepareContext& ctx) : tensor(ctx.Input("Paddings")) {
    if (tensor && (tensor.numel != 4 || tensor.dtype != DType::kInt32))
      ctx.Unsupported("Paddings must hold four int32");
    const auto pads = ctx.Attr<std::vector<int32_t>>("paddings");
    if (!tensor && pads.size() == 4) top = pads[0], left = pads[2];
  }
  // Clamps to the range that the shapes allow, whatever the tensor holds.
  void Apply(const Workspace& ws, Layout* l) const {
    const int32_t* given = tensor ? ws.Data<const int32_t>(tensor) : nullptr;
    l->h.before = std::clamp<int64_t>(given ? given[0] : top, 0, l->h.out - l->h.in);
    l->w.before = std::clamp<int64_t>(given ? given[2] : left, 0, l->w.out - l->w.in);
  }
};

template <class T>
KernelOf<T> Pad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const Corner corner(ctx);
  const Layout layout = LayoutOf(ctx, x.shape, out.shape, 0, 0);
  const T value = SaturateTo<T>(static_cast<double>(ctx.Attr<float>("pad_value")));
  return [=](Workspace& ws) {
    Layout l = layout;
    corner.Apply(ws, &l);
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const int64_t work = l.h.out * l.w.out * l.pixel;
    ParallelFor(l.planes, 1 + 16384 / work, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        ForRows(
            l, p, [&](int64_t from, int64_t to, int64_t n) { std::copy_n(in + from, n, o + to); },
            [&](int64_t from, int64_t to, int64_t n) {
              for (int64_t c = 0; c < n; ++c) o[to + c] = from < 0 ? value : in[from + c];
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
  const Corner corner(ctx);
  const Layout layout = LayoutOf(ctx, dx.shape, dout.shape, 0, 0);
  return [=](Workspace& ws) {
    Layout l = layout;
    corner.Apply(ws, &l);
    const T* g = ws.Data<const T>(dout);
    T* o = ws.Data<T>(dx);
    FillZeroBytes(o, bytes);
    const int64_t work = l.h.out * l.w.out * l.pixel;
    ParallelFor(l.planes, 1 + 16384 / work, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const auto add = [&](int64_t from, int64_t to, int64_t n) {
          for (int64_t c = 0; c < n && from >= 0; ++c) o[from + c] += g[to + c];
        };
        ForRows(l, p, add, add);
      }
    });
  };
}

void DeclarePads(OpDef& def) {
  def.OptionalInput("Paddings", "int32 tensor [4]; replaces attr paddings")
      .Attr<std::vector<int32_t>>("paddings", {0, 0, 0, 0}, "{top, bottom, left, right}")
      .Attr<float>("pad_value", 0.f, "the value around X in mode constant")
      .Attr<std::string>("mode", "constant",
                         "constant; reflect: mirrored; edge: the nearest element")
      .OneOf({"constant", "reflect", "edge"})
      .Attr<std::string>("data_format", "NCHW", "layout of X and Out: NCHW or NHWC")
      .OneOf({"NCHW", "NHWC"})
      .NoGradientTo({"Paddings"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("pad2d")
              .Doc("Out = X with rows and columns added around each image.")
              .Constraint("C1", "X must have rank 4")
              .Constraint("C2", "there must be four paddings")
              .Constraint("C3", "paddings must lie in [0, 2^31)")
              .Constraint("C4",
                          "a reflection must be shorter than its dimension, and edge needs a "
                          "dimension that is not empty")
              .Input("X", "images of numbers")
              .Output("Out", "the padded images")
              .Apply(DeclarePads)
              .ImageLayout("data_format", {"X", "Out"})
              .Infer(InferPad)
              .GradientOp({"X", "Paddings"})
              .Reference(Pad<float>, Pad<double>, Pad<int32_t>, Pad<int64_t>));
  ops.Add(OpDef("pad2d_grad")
              .Doc("Gradient of pad2d: each element of X@GRAD = the sum of Out@GRAD over its "
                   "copies in Out.")
              .ConstraintsOf("pad2d", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .Apply(DeclarePads)
              .ImageLayout("data_format", {"X", "Out@GRAD", "X@GRAD"})
              .NoGradientTo({"X"})
              .KernelTypeFrom("Out@GRAD")
              .Infer([](InferContext& ctx) { InferXGrad(ctx, "C5", PadOut(ctx)); })
              .Gradient([](GradientContext& g) { SetPadGradGradient(g, "pad2d"); })
              .Reference(PadGrad<float>, PadGrad<double>));
}

}  // namespace coracle::pad2d_op
