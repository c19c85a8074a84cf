#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/conv/pad.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace pad_ops {

enum class Mode { kConstant, kReflect, kEdge, kCircular };

Mode ModeOf(const std::string& mode) {
  if (mode == "constant") return Mode::kConstant;
  if (mode == "reflect") return Mode::kReflect;
  return mode == "circular" ? Mode::kCircular : Mode::kEdge;
}

// The index of the padding before axis i of n. Images list height and width, volumes width, height
// and depth.
size_t PlaceOf(int i, int n) { return static_cast<size_t>(n == 2 ? 2 * i : 2 * (2 - i)); }

template <class Context>
bool ChannelsLast(const Context& ctx) {
  const auto layout = ctx.template Attr<std::string>("data_format");
  return layout.back() == 'C';
}

// --- shape rules ---

constexpr int64_t kMaxPadding = int64_t{1} << 31;

// The padded size of one axis; checks C3 and C4.
int64_t Padded(const InferContext& ctx, int64_t size, int64_t before, int64_t after) {
  const Mode mode = ModeOf(ctx.Attr<std::string>("mode"));
  ctx.Require("C3", before >= 0 && after >= 0 && before < kMaxPadding && after < kMaxPadding,
              before, after);
  if (size < 0) return -1;
  const bool fits = mode == Mode::kConstant || before + after == 0 ||
                    (mode == Mode::kReflect ? std::max(before, after) < size : size > 0);
  ctx.Require("C4", fits, "before", before, "after", after, "size", size);
  return AddDims(size, before + after);
}

VarMeta PadOut(InferContext& ctx, int axes) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == axes + 2, x.shape.rank());
  const auto count = static_cast<size_t>(2 * axes);
  const IntList pads = ReadIntList(ctx, "", "Paddings", "paddings", count);
  ctx.Require("C2", pads.values.size() == count, pads.values.size());
  for (int i = 0; i < axes; ++i) {
    int64_t& dim = x.shape[i + (ChannelsLast(ctx) ? 1 : 2)];
    const size_t at = PlaceOf(i, axes);
    dim = pads.known ? Padded(ctx, dim, pads.values[at], pads.values[at + 1]) : -1;
  }
  return x;
}

// --- kernels ---

struct Axis {
  int64_t in = 1, out = 1, before = 0;  // sizes of the axis before and after padding
};

// The source of element `i` of the padded axis; -1 for the pad value. REQUIRES: in > 0 unless the
// mode is kConstant.
int64_t SourceOf(const Axis& axis, int64_t i, Mode mode) {
  const int64_t at = i - axis.before;
  if (at >= 0 && at < axis.in) return at;
  if (mode == Mode::kConstant) return -1;
  if (mode == Mode::kCircular) return (at % axis.in + axis.in) % axis.in;
  const bool reflect = mode == Mode::kReflect;
  const int64_t far = reflect ? (at < 0 ? -at : 2 * axis.in - 2 - at) : at;
  return std::clamp<int64_t>(far, 0, axis.in - 1);
}

// `count` volumes, with `width` elements at each position.
struct Layout {
  Axis axes[3];  // depth, which is 1 in images, height, width
  int64_t count, width;
  Mode mode;
};

class Padding {
 public:
  Padding(const PrepareContext& ctx, const Shape& in, const Shape& out)
      : pads_(ctx, "", "Paddings", "paddings"), n_(in.rank() - 2) {
    if (pads_.size() != static_cast<size_t>(2 * n_))
      ctx.Unsupported("the number of paddings is wrong");
    const bool last = ChannelsLast(ctx);
    const int first = last ? 1 : 2;
    for (int i = 0; i < n_; ++i) AxisOf(layout_, i) = {in[first + i], out[first + i], 0};
    layout_.count = in[0] * (last ? 1 : in[1]);
    layout_.width = last ? in[n_ + 1] : 1;
    layout_.mode = ModeOf(ctx.Attr<std::string>("mode"));
  }
  // With the paddings before each axis, clamped to the range that the shapes allow, whatever a
  // tensor holds.
  Layout operator()(const Workspace& ws) const {
    Layout l = layout_;
    for (int i = 0; i < n_; ++i) {
      Axis& axis = AxisOf(l, i);
      axis.before = std::clamp<int64_t>(pads_.Get(ws, PlaceOf(i, n_)), 0, axis.out - axis.in);
    }
    return l;
  }

 private:
  Axis& AxisOf(Layout& l, int i) const { return l.axes[3 - n_ + i]; }

  Layout layout_;
  IntListArg pads_;
  int n_;
};

// Calls inside(first element of X, first of Out, number) for the elements of volume v between the
// paddings of a row, and around(first element of X or -1, first of Out, number) for the positions
// in the paddings.
template <class Inside, class Around>
void ForRows(const Layout& l, int64_t v, Inside&& inside, Around&& around) {
  const Axis &depth = l.axes[0], &height = l.axes[1], &width = l.axes[2];
  int64_t to = v * depth.out * height.out * width.out;
  for (int64_t i = 0; i < depth.out * height.out; ++i, to += width.out) {
    const int64_t d = SourceOf(depth, i / height.out, l.mode);
    const int64_t h = SourceOf(height, i % height.out, l.mode);
    const bool exists = d >= 0 && h >= 0;
    const int64_t from = ((v * depth.in + d) * height.in + h) * width.in;
    const auto positions = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t w = SourceOf(width, k, l.mode);
        around(exists && w >= 0 ? (from + w) * l.width : -1, (to + k) * l.width, l.width);
      }
    };
    positions(0, width.before);
    if (exists)
      inside(from * l.width, (to + width.before) * l.width, width.in * l.width);
    else
      around(-1, (to + width.before) * l.width, width.in * l.width);
    positions(width.before + width.in, width.out);
  }
}

// Calls f(v) for each volume.
template <class F>
void ForVolumes(const Layout& l, const F& f) {
  const int64_t work = l.axes[0].out * l.axes[1].out * l.axes[2].out * l.width;
  ParallelFor(l.count, 1 + 16384 / work, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) f(v);
  });
}

template <class T>
Kernel Pad(const PrepareContext& ctx, const std::string& value_attr) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const Padding padding(ctx, x.shape, out.shape);
  const T value = SaturateTo<T>(static_cast<double>(ctx.Attr<float>(value_attr)));
  return [=](Workspace& ws) {
    const Layout l = padding(ws);
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForVolumes(l, [&](int64_t v) {
      ForRows(
          l, v, [&](int64_t from, int64_t to, int64_t n) { std::copy_n(in + from, n, o + to); },
          [&](int64_t from, int64_t to, int64_t n) {
            for (int64_t c = 0; c < n; ++c) o[to + c] = from < 0 ? value : in[from + c];
          });
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
    ForVolumes(l, [&](int64_t v) {
      const auto add = [&](int64_t from, int64_t to, int64_t n) {
        for (int64_t c = 0; c < n && from >= 0; ++c) o[from + c] += g[to + c];
      };
      ForRows(l, v, add, add);
    });
  };
}

// --- registration ---

// The gradient rule of `type`_grad. Apart from the pad value, which is 0 by default, the op is
// linear: the gradient is padded with zeros.
void GradGradient(GradientContext& g, const std::string& type) {
  SlotList inputs = g.ForwardInputs({"Paddings"});
  inputs.insert(inputs.begin(), {"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD",
        g.Make(type, std::move(inputs), g.ForwardAttrs({"paddings", "mode", "data_format"})));
}

void DeclarePads(OpDef& def, const PadType& t) {
  const auto n = static_cast<size_t>(2 * t.axes);
  def.OptionalInput("Paddings",
                    fmt::format("int32 or int64 tensor [{}]; replaces attr paddings", n))
      .Attr<std::vector<int32_t>>("paddings", std::vector<int32_t>(n, 0), t.paddings)
      .Attr<float>(t.value, 0.f, "the value around X in mode constant")
      .Attr<std::string>("mode", "constant", t.modes)
      .OneOf(t.mode_names)
      .Attr<std::string>("data_format", t.layouts[0],
                         fmt::format("layout of X and Out: {} or {}", t.layouts[0], t.layouts[1]))
      .OneOf(t.layouts)
      .NoGradientTo({"Paddings"});
}

}  // namespace pad_ops

void AddPadOps(OpRegistry& ops, const PadType& t) {
  using namespace pad_ops;
  OpDef def(t.type);
  def.Doc(t.doc)
      .Constraint("C1", fmt::format("X must have rank {}", t.axes + 2))
      .Constraint("C2", t.axes == 2 ? "there must be four paddings" : "there must be six paddings")
      .Constraint("C3", "paddings must lie in [0, 2^31)")
      .Constraint("C4", "a reflection must be shorter than its dimension, and " + t.edges +
                            " a dimension that is not empty")
      .Input("X", t.input)
      .Output("Out", t.output)
      .Apply(DeclarePads, t)
      .Rows(EachBatchRow, kEachBatchRow)
      .Infer([n = t.axes](InferContext& ctx) { ctx.SetOutput("Out", PadOut(ctx, n)); })
      .GradientOp({"X", "Paddings"})
      .Reference<float, double, int32_t, int64_t, int8_t, uint8_t>(
          [value = t.value]<class T>(const PrepareContext& ctx) { return Pad<T>(ctx, value); });
  OpDef grad(t.type + "_grad");
  grad.Doc("Gradient of " + t.type +
           ": each element of X@GRAD = the sum of Out@GRAD over its copies in Out.")
      .ConstraintsOf(t.type, {"C1", "C2", "C3", "C4"})
      .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
      .Input("X", "only its shape is used")
      .Input("Out@GRAD", "gradient of Out")
      .Output("X@GRAD", "gradient of X")
      .Apply(DeclarePads, t)
      .NoGradientTo({"X"})
      .KernelTypeFrom("Out@GRAD")
      .Infer([n = t.axes](InferContext& ctx) { InferXGrad(ctx, "C5", PadOut(ctx, n)); })
      .Gradient([type = t.type](GradientContext& g) { GradGradient(g, type); })
      .Reference(PadGrad<float>, PadGrad<double>);
  if (t.axes == 2) {
    def.ImageLayout("data_format", {"X", "Out"});
    grad.ImageLayout("data_format", {"X", "Out@GRAD", "X@GRAD"});
  }
  ops.Add(std::move(def));
  ops.Add(std::move(grad));
}

}  // namespace coracle::inline internal
