// ONNX's Resize along one axis, with a size that may be known only at run time.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/resize_taps.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>

#include <cstring>
#include <vector>

namespace coracle::resize_axis_op {

template <class Context>
ResizeRule RuleOf(const Context& ctx) {
  ResizeRule rule;
  rule.mode = ctx.template Attr<std::string>("mode");
  rule.place = ctx.template Attr<std::string>("coordinate_transformation_mode");
  rule.nearest = ctx.template Attr<std::string>("nearest_mode");
  rule.cubic_a = static_cast<double>(ctx.template Attr<float>("cubic_coeff_a"));
  rule.exclude_outside = ctx.template Attr<bool>("exclude_outside");
  rule.antialias = ctx.template Attr<bool>("antialias");
  return rule;
}

void RequireNumbers(InferContext& ctx, const char* slot, int64_t count) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  ctx.Require("C3",
              meta.dtype == DType::kFloat64 && InferContext::Matches(NumelOf(meta.shape), count),
              slot, meta);
}

VarMeta ResizedOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const int axis = ctx.Axis("C1", ctx.Attr<int32_t>("axis"), x.shape.rank());
  const IntList size = ReadIntList(ctx, "", "Size", "");
  ctx.Require("C2", size.values.size() == 1 && (size.values[0] >= 0 || !size.known), size.values);
  RequireNumbers(ctx, "Scale", 1);
  RequireNumbers(ctx, "Region", 2);
  const bool moves = ctx.Attr<std::string>("mode") == "nearest";
  ctx.Require("C4", moves || x.dtype == DType::kFloat32 || x.dtype == DType::kFloat64, x.dtype);
  ctx.Require("C5", x.shape[axis] != 0 || size.values[0] <= 0, x.shape);
  x.shape[axis] = size.values[0];
  return x;
}

void InferResize(InferContext& ctx) { ctx.SetOutput("Out", ResizedOut(ctx)); }

// Element k of [outer, out, inner] = the sum of weight(k, t) times element at(k, t) of
// [outer, in, inner], or a value of its own.
struct AxisWeights {
  AxisWeights(const ResizeRule& rule, const ResizeLengths& a)
      : taps(MaxTaps(rule, a)),
        places(DType::kInt64, {a.out, taps}),
        weights(DType::kFloat64, {a.out, taps}),
        counts(DType::kInt64, {a.out}) {
    std::vector<ResizeTap> found;
    for (int64_t k = 0; k < a.out; ++k) {
      if (k % 4096 == 4095) CheckTimeLimit("resizing");
      ResizeTaps(rule, a, k, &found);
      const bool outside = IsOutside(rule, a, k);
      counts.data<int64_t>()[k] = outside ? 0 : static_cast<int64_t>(found.size());
      for (size_t t = 0; t < found.size(); ++t) {
        places.data<int64_t>()[k * taps + static_cast<int64_t>(t)] = found[t].at;
        weights.data<double>()[k * taps + static_cast<int64_t>(t)] = found[t].weight;
      }
    }
  }
  int64_t taps;
  Tensor places, weights, counts;
};

// What a kernel knows before it runs.
struct ResizeOp {
  // `whole` has the shape of X, `part` that of Out.
  ResizeOp(const PrepareContext& ctx, const TensorArg& x, const TensorArg& out)
      : rule(RuleOf(ctx)), scale(ctx.Input("Scale")), region(ctx.Input("Region")) {
    int axis = 0;
    x.shape.NormalizeAxis(ctx.Attr<int32_t>("axis"), &axis);
    outer = x.shape.Product(0, axis);
    inner = x.shape.Product(axis + 1, x.shape.rank());
    lengths.in = x.shape[axis];
    lengths.out = out.shape[axis];
    lengths.by_size = !scale;
    outside_value = static_cast<double>(ctx.Attr<float>("extrapolation_value"));
  }
  AxisWeights Weights(Workspace& ws) const {
    ResizeLengths a = lengths;
    a.scale = scale ? ws.Data<const double>(scale)[0]
                    : static_cast<double>(a.out) / static_cast<double>(a.in);
    if (!(a.scale > 0)) ThrowInvalid("resize_axis: Scale must be positive");
    if (region) {
      a.begin = ws.Data<const double>(region)[0];
      a.end = ws.Data<const double>(region)[1];
    }
    return {rule, a};
  }
  bool IsCopy() const { return lengths.by_size && lengths.in == lengths.out && !rule.IsCrop(); }

  ResizeRule rule;
  TensorArg scale, region;
  ResizeLengths lengths;
  int64_t outer = 1, inner = 1;
  double outside_value = 0;
};

template <class T>
void Weighted(const ResizeOp& op, const AxisWeights& w, const T* x, T* out) {
  const int64_t n = op.lengths.out, in = op.lengths.in, inner = op.inner;
  ParallelFor(op.outer * n, 1 + 16384 / (inner * w.taps + 1), [&](int64_t begin, int64_t end) {
    std::vector<double> sum(static_cast<size_t>(inner));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t k = row % n, count = w.counts.data<int64_t>()[k];
      const T* from = x + row / n * in * inner;
      std::fill(sum.begin(), sum.end(), count == 0 ? op.outside_value : 0.0);
      for (int64_t t = 0; t < count; ++t) {
        const double weight = w.weights.data<double>()[k * w.taps + t];
        const T* line = from + w.places.data<int64_t>()[k * w.taps + t] * inner;
        for (int64_t i = 0; i < inner; ++i)
          sum[static_cast<size_t>(i)] += weight * static_cast<double>(line[i]);
      }
      T* to = out + row * inner;
      for (int64_t i = 0; i < inner; ++i) to[i] = static_cast<T>(sum[static_cast<size_t>(i)]);
    }
  });
}

// Elements of any dtype; `outside` is one with the value of elements outside of X.
void Moved(const ResizeOp& op, const AxisWeights& w, size_t size, const char* outside,
           const char* x, char* out) {
  const int64_t n = op.lengths.out, in = op.lengths.in, inner = op.inner;
  const auto each = static_cast<int64_t>(size);
  ParallelFor(op.outer * n, 1 + 16384 / (inner * each), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t k = row % n;
      char* to = out + row * inner * each;
      if (w.counts.data<int64_t>()[k] == 0) {
        for (int64_t i = 0; i < inner; ++i) std::memcpy(to + i * each, outside, size);
      } else {
        const int64_t at = w.places.data<int64_t>()[k * w.taps];
        std::memcpy(to, x + (row / n * in + at) * inner * each, static_cast<size_t>(inner * each));
      }
    }
  });
}

Kernel Resize(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t bytes = out.nbytes();
  if (out.numel == 0) return [](Workspace&) {};
  const ResizeOp op(ctx, x, out);
  if (op.IsCopy())
    return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes); };
  if (op.rule.mode != "nearest") {
    return [=](Workspace& ws) {
      const AxisWeights w = op.Weights(ws);
      if (x.dtype == DType::kFloat32)
        Weighted(op, w, ws.Data<const float>(x), ws.Data<float>(out));
      else
        Weighted(op, w, ws.Data<const double>(x), ws.Data<double>(out));
    };
  }
  const Tensor outside = Tensor::Full<double>({1}, op.outside_value).Cast(x.dtype);
  return [=](Workspace& ws) {
    Moved(op, op.Weights(ws), SizeOf(x.dtype), static_cast<const char*>(outside.raw()),
          static_cast<const char*>(ws.Data<const void>(x)), static_cast<char*>(ws.Data<void>(out)));
  };
}

template <class T>
KernelOf<T> ResizeGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const ResizeOp op(ctx, dx, dout);
  return [=](Workspace& ws) {
    FillZeroBytes(ws.Data<void>(dx), dx.nbytes());
    if (dout.numel == 0) return;
    const AxisWeights w = op.Weights(ws);
    const int64_t n = op.lengths.out, in = op.lengths.in, inner = op.inner;
    for (int64_t row = 0; row < op.outer * n; ++row) {
      const int64_t k = row % n;
      const T* from = ws.Data<const T>(dout) + row * inner;
      for (int64_t t = 0; t < w.counts.data<int64_t>()[k]; ++t) {
        const T weight = static_cast<T>(w.weights.data<double>()[k * w.taps + t]);
        T* to = ws.Data<T>(dx) + (row / n * in + w.places.data<int64_t>()[k * w.taps + t]) * inner;
        for (int64_t i = 0; i < inner; ++i) to[i] += weight * from[i];
      }
    }
  };
}

// The op is linear up to the constant value outside of X, which adds nothing to this gradient.
void ResizeGradGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"Size", "Scale", "Region"});
  inputs.push_back({"X", {g.OutputGrad("X@GRAD")}});
  AttrList attrs;
  for (const NamedAttr& attr : g.ForwardAttrs("resize_axis"))
    if (attr.name != "extrapolation_value") attrs.push_back(attr);
  g.Set("Out@GRAD", g.Make("resize_axis", std::move(inputs), std::move(attrs)));
}

void Declare(OpDef& def) {
  def.Input("Size", "int32 or int64 tensor [1]: the length of the axis in Out")
      .OptionalInput("Scale",
                     "tensor [1]: positions are multiples of 1 / Scale, not of the ratio "
                     "of the lengths")
      .OptionalInput("Region", "tensor [2]: begin and end of a crop, as shares of the axis")
      .Attr<int32_t>("axis", "the axis")
      .Attr<std::string>("mode", "nearest", "nearest, linear or cubic")
      .OneOf({"nearest", "linear", "cubic"})
      .Attr<std::string>("coordinate_transformation_mode", "half_pixel", "as in ONNX")
      .OneOf({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"})
      .Attr<std::string>("nearest_mode", "round_prefer_floor",
                         "as in ONNX; simple: ceil if the axis gets shorter, else floor")
      .OneOf({"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"})
      .Attr<float>("cubic_coeff_a", -0.75f, "the coefficient of the cubic kernel")
      .Attr<bool>("exclude_outside", false, "elements outside of X have no weight")
      .Attr<bool>("antialias", false, "a shorter axis takes means of more elements")
      .Attr<float>("extrapolation_value", 0.f, "the value of elements outside of X, in a crop")
      .NoGradientTo({"Size", "Scale", "Region"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("resize_axis")
          .Doc("Out = X resized along one axis to Size elements, by the rules of ONNX's Resize; "
               "other axes are kept. Not in Paddle.")
          .Constraint("C1", "axis must lie in [-rank, rank)")
          .Constraint("C2", "Size must be one number, not negative")
          .Constraint("C3", "Scale must be one float64, Region two")
          .Constraint("C4", "X must be float32 or float64 unless mode is nearest")
          .Constraint("C5", "an axis without elements cannot get any")
          .Input("X", "tensor of any dtype")
          .Output("Out", "the resized tensor")
          .Apply(Declare)
          .Rows(RowRule::kEach)
          .Axes("axis")
          .Infer(InferResize)
          .GradientOp({"X", "Size", "Scale", "Region"})
          .Reference(Resize));
  ops.Add(
      OpDef("resize_axis_grad")
          .Doc("Gradient of resize_axis: each element of Out@GRAD is added, with its weights, to "
               "the elements of X that it was made of.")
          .Input("X", "only its shape is used")
          .Input("Out@GRAD", "gradient of Out")
          .Output("X@GRAD", "gradient of X")
          .Apply(Declare)
          .NoGradientTo({"X"})
          .KernelTypeFrom("Out@GRAD")
          .ConstraintsOf("resize_axis", {"C1", "C2", "C3", "C4", "C5"})
          .Constraint("C6", "Out@GRAD must have Out's shape and dtype")
          .Infer([](InferContext& ctx) {
            RequireOutGrad(ctx, "C6", ResizedOut(ctx));
            ctx.SetOutput("X@GRAD", ctx.Input("X"));
          })
          .Gradient(ResizeGradGradient)
          .Reference(ResizeGrad<float>, ResizeGrad<double>));
}

}  // namespace coracle::resize_axis_op
