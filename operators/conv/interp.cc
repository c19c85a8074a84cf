// Interpolation: linear_interp, nearest_interp, bilinear_interp, trilinear_interp and
// bicubic_interp, each also with _v2, and interpolate. Along each axis, an element of Out is a
// weighted sum of a few elements of X (its taps). One loop serves all ops, and its transpose
// their gradients.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/conv/resample.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>

namespace coracle::interp_op {

constexpr int64_t kMaxSize = int64_t{1} << 31;

enum class Method { kNearest, kLinear, kCubic };

struct Kind {
  Method method;
  int axes;
  bool v2;
};

template <class Context>
Kind KindOf(const Context& ctx) {
  const std::string type = ctx.op().type();
  const bool v2 = type.find("_v2") != type.npos;
  if (type.starts_with("interpolate")) {
    const bool nearest = ctx.template Attr<std::string>("interp_method") == "nearest";
    return {nearest ? Method::kNearest : Method::kLinear, 2, false};
  }
  if (type.starts_with("nearest")) return {Method::kNearest, 2, v2};
  if (type.starts_with("bicubic")) return {Method::kCubic, 2, v2};
  return {Method::kLinear, type.starts_with("linear") ? 1 : type.starts_with("bi") ? 2 : 3, v2};
}

// --- shape rule ---

template <class Context>
std::vector<float> ScaleAttr(const Context& ctx, const Kind& kind) {
  if (kind.v2) return ctx.template Attr<std::vector<float>>("scale");
  return {ctx.template Attr<float>("scale")};
}

// A factor for each axis; empty if the list gives none.
std::vector<float> ToScales(std::vector<float> scale, int axes) {
  if (scale.size() == 1) scale.resize(static_cast<size_t>(axes), scale[0]);
  const bool given = std::all_of(scale.begin(), scale.end(), [](float s) { return s > 0; });
  return given ? scale : std::vector<float>{};
}

int64_t Scaled(const InferContext& ctx, int64_t in, float scale) {
  if (in < 0) return -1;
  const float size = static_cast<float>(in) * scale;
  ctx.Require("C4", size >= 1 && size < static_cast<float>(kMaxSize), size);
  return static_cast<int64_t>(size);
}

// The sizes of Out along the axes; -1 if unknown.
std::vector<int64_t> OutSizes(const InferContext& ctx, const Kind& kind,
                              const std::vector<int64_t>& in) {
  const std::vector<int64_t> unknown(in.size(), -1);
  if (ctx.HasInput("SizeTensor") || ctx.HasInput("OutSize")) {
    const IntList sizes = ReadIntList(ctx, "SizeTensor", "OutSize", "", in.size());
    if (!sizes.known) return unknown;
    ctx.Require("C3", sizes.values.size() == in.size(), sizes.values.size());
    return sizes.values;
  }
  std::vector<float> scale = ScaleAttr(ctx, kind);
  if (ctx.HasInput("Scale")) {
    const Tensor* given = ctx.Constant("Scale");
    if (!given) return unknown;
    const Tensor wide = given->Cast(DType::kFloat32);
    scale.assign(wide.data<float>(), wide.data<float>() + wide.numel());
    ctx.Require("C5", !scale.empty(), "Scale", scale.size());
  }
  ctx.Require("C5", scale.size() <= 1 || scale.size() == in.size(), "factors", scale.size());
  scale = ToScales(scale, kind.axes);
  std::vector<int64_t> sizes;
  const char* const attrs[] = {"out_d", "out_h", "out_w"};
  for (size_t i = 0; i < in.size(); ++i) {
    sizes.push_back(scale.empty() ? ctx.Attr<int32_t>(attrs[3 - in.size() + i])
                                  : Scaled(ctx, in[i], scale[i]));
  }
  return sizes;
}

VarMeta InterpOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Kind kind = KindOf(ctx);
  ctx.Require("C1", x.shape.rank() == 2 + kind.axes, x.shape.rank());
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_layout"), kind.axes);
  std::vector<int64_t> in;
  for (int i = 0; i < kind.axes; ++i) in.push_back(x.shape[layout.axis(i)]);
  ctx.Require("C2", std::count(in.begin(), in.end(), 0) == 0, in);
  const std::vector<int64_t> sizes = OutSizes(ctx, kind, in);
  for (int64_t n : sizes) {
    ctx.Require("C4", (n > 0 && n < kMaxSize) || (n == -1 && !ctx.exact()), n);
  }
  for (int i = 0; i < kind.axes; ++i) x.shape[layout.axis(i)] = sizes[static_cast<size_t>(i)];
  return x;
}

void InferInterp(InferContext& ctx) { ctx.SetOutput("Out", InterpOut(ctx)); }

// --- taps ---

struct AxisSizes {
  int64_t in = 1, out = 1;
};

// Element k of an axis of Out = the sum over t of weight(k, t) times element at(k, t) of X.
struct AxisTaps {
  AxisSizes size;
  int64_t taps = 1;
  Tensor places, weights;

  AxisTaps() : AxisTaps({}, 1) {}
  AxisTaps(const AxisSizes& sizes, int64_t n)
      : size(sizes),
        taps(n),
        places(Tensor::Zeros(DType::kInt64, {sizes.out, n})),
        weights(Tensor::Zeros(DType::kFloat64, {sizes.out, n})) {
    for (int64_t k = 0; k < sizes.out; ++k) Set(k, 0, k, 1);
  }
  void Set(int64_t k, int64_t t, int64_t at, double weight) {
    places.data<int64_t>()[k * taps + t] = std::clamp<int64_t>(at, 0, size.in - 1);
    weights.data<double>()[k * taps + t] = weight;
  }
  const int64_t* at(int64_t k) const { return places.data<int64_t>() + k * taps; }
  const double* weight(int64_t k) const { return weights.data<double>() + k * taps; }
};

// Keys' cubic kernel with A = -0.75.
double Cubic(double t) {
  constexpr double kA = -0.75;
  t = std::abs(t);
  if (t <= 1) return ((kA + 2) * t - (kA + 3)) * t * t + 1;
  return t < 2 ? ((kA * t - 5 * kA) * t + 8 * kA) * t - 4 * kA : 0;
}

struct Rule {
  Method method;
  bool align;       // the corner elements of X and Out coincide
  bool half_pixel;  // element k is at k + 0.5

  // `scale` is the factor that gives the ratio; 0: the sizes give it. As in Paddle, the ratio is
  // float32, and so are the positions, except with the cubic method, whose weights depend smoothly
  // on them.
  AxisTaps Make(const AxisSizes& size, float scale) const {
    const float in = static_cast<float>(size.in), out = static_cast<float>(size.out);
    float ratio = align ? (in - 1) / (out - 1) : scale > 0 ? 1.f / scale : in / out;
    if (size.out == 1) ratio = 0;
    ratio = std::min(ratio, 2 * in);  // then all elements but the first are past the end of X
    AxisTaps made(size, method == Method::kNearest ? 1 : method == Method::kLinear ? 2 : 4);
    for (int64_t k = 0; k < size.out; ++k) {
      const float at = static_cast<float>(k);
      const float x = half_pixel ? ratio * (at + 0.5f) - 0.5f : ratio * at;
      // Out may extend past the end of X if scale and sizes disagree.
      if (method == Method::kNearest) {
        made.Set(k, 0, static_cast<int64_t>(std::min(align ? x + 0.5f : x, in)), 1.f);
      } else if (method == Method::kLinear) {
        const float inside = std::clamp(x, 0.f, in - 1);
        const auto low = static_cast<int64_t>(inside);
        const float part = inside - static_cast<float>(low);
        made.Set(k, 0, low, 1.f - part);
        made.Set(k, 1, low + 1, part);
      } else {
        const double wide = ratio, place = static_cast<double>(k);
        const double exact = half_pixel ? wide * (place + 0.5) - 0.5 : wide * place;
        const double inside = std::min<double>(exact, in), low = std::floor(inside);
        for (int64_t t = 0; t < 4; ++t) {
          const int64_t tap = t - 1;
          made.Set(k, t, static_cast<int64_t>(low) + tap,
                   Cubic(inside - low - static_cast<double>(tap)));
        }
      }
    }
    return made;
  }
};

// The taps of depth, height and width; a missing axis passes its only element through.
struct Taps {
  std::array<AxisTaps, 3> axes;

  int64_t OutRows() const { return axes[0].size.out * axes[1].size.out; }
  // Calls f(weight, row of X) for the rows of X that contribute to row r of Out; rows are counted
  // over all planes.
  template <class F>
  void ForRows(int64_t r, F&& f) const {
    const auto& [d, h, w] = axes;
    const int64_t plane = r / OutRows(), i = r / h.size.out % d.size.out, j = r % h.size.out;
    for (int64_t a = 0; a < d.taps; ++a) {
      for (int64_t b = 0; b < h.taps; ++b) {
        f(d.weight(i)[a] * h.weight(j)[b],
          (plane * d.size.in + d.at(i)[a]) * h.size.in + h.at(j)[b]);
      }
    }
  }
};

// The taps of an op: computed with the plan or, if they depend on a tensor Scale, in every run.
class TapsOf {
 public:
  TapsOf(const PrepareContext& ctx, const Shape& in, const Shape& out) {
    const Kind kind = KindOf(ctx);
    const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_layout"), kind.axes);
    const bool align = ctx.Attr<bool>("align_corners");
    const bool half =
        !align && (kind.method == Method::kCubic ||
                   (kind.method == Method::kLinear && ctx.Attr<int32_t>("align_mode") == 0));
    rule_ = {kind.method, align, half};
    axes_ = kind.axes;
    for (int i = 0; i < axes_; ++i) {
      AxisSizes& size = sizes_[static_cast<size_t>(3 - axes_ + i)];
      size = {in[layout.axis(i)], out[layout.axis(i)]};
      copy_ = copy_ && size.in == size.out;
    }
    pixel = layout.channels_last ? in[layout.channel()] : 1;
    planes = layout.channels_last ? in[0] : in[0] * in[1];
    std::vector<float> scale;
    if (kind.v2 && !ctx.HasInput("SizeTensor")) {
      scale = ToScales(ScaleAttr(ctx, kind), axes_);
      scale_tensor_ = ctx.Input("Scale");
      if (scale_tensor_ && scale_tensor_.dtype != DType::kFloat32)
        ctx.Unsupported("Scale must be float32");
    }
    if (!scale_tensor_) fixed_ = std::make_shared<const Taps>(Make(scale));
  }
  std::shared_ptr<const Taps> operator()(Workspace& ws) const {
    if (fixed_) return fixed_;
    const float* given = ws.Data<const float>(scale_tensor_);
    return std::make_shared<const Taps>(
        Make(ToScales({given, given + scale_tensor_.numel}, axes_)));
  }

  // The taps if they do not depend on a tensor, else null.
  const Taps* fixed() const { return fixed_.get(); }

  // A plane is a channel of an image, or a whole image with channels last; each of its pixels then
  // has several elements.
  int64_t planes, pixel;

 private:
  Taps Make(const std::vector<float>& scale) const {
    Taps taps;
    for (int i = 0; i < axes_; ++i) {
      const auto axis = static_cast<size_t>(3 - axes_ + i), k = static_cast<size_t>(i);
      const float factor = k < scale.size() ? scale[k] : 0.f;
      taps.axes[axis] = copy_ ? AxisTaps(sizes_[axis], 1) : rule_.Make(sizes_[axis], factor);
    }
    return taps;
  }

  Rule rule_;
  int axes_;
  bool copy_ = true;
  std::array<AxisSizes, 3> sizes_;
  TensorArg scale_tensor_;
  std::shared_ptr<const Taps> fixed_;
};

// --- kernels ---

// Calls body(taps, row of Out) for all rows.
template <class Body>
void ForOutRows(const TapsOf& of, Workspace& ws, Body&& body) {
  const std::shared_ptr<const Taps> taps = of(ws);
  const int64_t work = taps->axes[2].size.out * of.pixel;
  ParallelFor(of.planes * taps->OutRows(), 1 + 16384 / work, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(*taps, r);
  });
}

// For a single tap: elements are moved, so only their size matters.
template <class T>
Kernel MoveOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const TapsOf taps_of(ctx, x.shape, out.shape);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForOutRows(taps_of, ws, [&, pixel = taps_of.pixel](const Taps& taps, int64_t r) {
      const AxisTaps& w = taps.axes[2];
      T* to = o + r * w.size.out * pixel;
      taps.ForRows(r, [&](double, int64_t row) {
        const T* from = in + row * w.size.in * pixel;
        for (int64_t k = 0; k < w.size.out; ++k) {
          const T* source = from + w.at(k)[0] * pixel;
          if (pixel == 1)
            to[k] = *source;
          else
            std::copy_n(source, pixel, to + k * pixel);
        }
      });
    });
  };
}

Kernel Move(const PrepareContext& ctx) {
  switch (SizeOf(ctx.Input("X").dtype)) {
    case 1:
      return MoveOf<uint8_t>(ctx);
    case 2:
      return MoveOf<uint16_t>(ctx);
    case 4:
      return MoveOf<uint32_t>(ctx);
    case 8:
      return MoveOf<uint64_t>(ctx);
    default:
      return MoveOf<complex128>(ctx);
  }
}

template <class T>
KernelOf<T> Mix(const PrepareContext& ctx) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const TapsOf taps_of(ctx, x.shape, out.shape);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ForOutRows(taps_of, ws, [&, pixel = taps_of.pixel](const Taps& taps, int64_t r) {
      const AxisTaps& w = taps.axes[2];
      struct {
        Sum weight;
        const T* from;
      } rows[16];
      int count = 0;
      taps.ForRows(r, [&](double weight, int64_t row) {
        rows[count++] = {static_cast<Sum>(weight), in + row * w.size.in * pixel};
      });
      T* to = o + r * w.size.out * pixel;
      for (int64_t k = 0; k < w.size.out; ++k) {
        for (int64_t c = 0; c < pixel; ++c) {
          Sum sum = 0;
          for (int64_t t = 0; t < w.taps; ++t) {
            Sum column = 0;
            for (int i = 0; i < count; ++i)
              column += rows[i].weight * static_cast<Sum>(rows[i].from[w.at(k)[t] * pixel + c]);
            sum += column * static_cast<Sum>(w.weight(k)[t]);
          }
          *to++ = static_cast<T>(sum);
        }
      }
    });
  };
}

template <class T>
KernelOf<T> InterpGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  if (dout.numel == 0 || dx.numel == 0)
    return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
  const TapsOf taps_of(ctx, dx.shape, dout.shape);
  return [=](Workspace& ws) {
    const std::shared_ptr<const Taps> taps = taps_of(ws);
    const AxisTaps& w = taps->axes[2];
    const int64_t pixel = taps_of.pixel, rows = taps->OutRows();
    const int64_t from_row = w.size.out * pixel, to_row = w.size.in * pixel;
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    FillZeroBytes(to, bytes);
    const auto add_row = [&](int64_t r) {
      const T* g = from + r * from_row;
      taps->ForRows(r, [&](double weight, int64_t row) {
        T* target = to + row * to_row;
        for (int64_t k = 0; k < w.size.out; ++k) {
          for (int64_t t = 0; t < w.taps; ++t) {
            const T share = static_cast<T>(weight) * static_cast<T>(w.weight(k)[t]);
            if (share == 0) continue;  // an infinite gradient reaches only elements with a weight
            T* place = target + w.at(k)[t] * pixel;
            for (int64_t c = 0; c < pixel; ++c) place[c] += share * g[k * pixel + c];
          }
        }
      });
    };
    ParallelFor(taps_of.planes, 1 + 16384 / (rows * from_row), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * rows; r < end * rows; ++r) add_row(r);
    });
  };
}

// --- float32, vectorised ---

AxisMap MapOf(const AxisTaps& axis) {
  AxisMap map;
  map.in = axis.size.in;
  map.out = axis.size.out;
  const int64_t all = map.out * axis.taps;
  for (int64_t k = 0; k <= map.out; ++k) map.begin.push_back(k * axis.taps);
  for (int64_t i = 0; i < all; ++i) {
    map.at.push_back(static_cast<int32_t>(axis.places.data<int64_t>()[i]));
    map.weight.push_back(static_cast<float>(axis.weights.data<double>()[i]));
  }
  return map;
}

constexpr int64_t kMostPlaces = int64_t{1} << 20;  // largest axis that has a table

// Makes the op or its gradient (`back`); x and out belong to the forward op. Returns null if this
// would not be faster.
std::shared_ptr<const Resample> MakeResample(const PrepareContext& ctx, const TensorArg& x,
                                             const TensorArg& out, bool back) {
  if (x.dtype != DType::kFloat32 || x.numel == 0 || out.numel == 0) return nullptr;
  const TapsOf of(ctx, x.shape, out.shape);
  if (!of.fixed()) return nullptr;
  const bool move = KindOf(ctx).method == Method::kNearest && !back;
  if (move && of.pixel > 1) return nullptr;
  std::array<AxisMap, 3> maps;
  for (size_t i = 0; i < 3; ++i) {
    const AxisTaps& axis = of.fixed()->axes[i];
    if (std::max(axis.size.in, axis.size.out) > kMostPlaces) return nullptr;
    maps[i] = back ? Transposed(MapOf(axis)) : MapOf(axis);
  }
  auto made = std::make_shared<const Resample>(std::move(maps), of.planes, of.pixel, move);
  return made->usable() ? made : nullptr;
}

Kernel InterpFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const auto resample = MakeResample(ctx, x, out, false);
  if (!resample) return {};
  return [=](Workspace& ws) { (*resample)(ws.Data<const float>(x), ws.Data<float>(out)); };
}

Kernel InterpGradFast(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const auto resample = MakeResample(ctx, dx, dout, true);
  if (!resample) return {};
  return [=](Workspace& ws) { (*resample)(ws.Data<const float>(dout), ws.Data<float>(dx)); };
}

// --- declarations ---

// The op is linear in X, so the gradient of the gradient is the op itself.
void InterpGradGradient(GradientContext& g) {
  const std::string grad = g.op().type(), type = grad.substr(0, grad.size() - 5);
  SlotList inputs = g.ForwardInputs({"OutSize", "SizeTensor", "Scale"});
  inputs.insert(inputs.begin(), {"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD", g.Make(type, std::move(inputs), g.ForwardAttrs(type)));
}

// The method in a type's name: "bilinear" for bilinear_interp_v2.
std::string MethodOf(const std::string& type) { return type.substr(0, type.find("_interp")); }

void DeclareSizes(OpDef& def, const std::string& type) {
  def.OptionalInput("OutSize", "int32 or int64 tensor: the size of Out along each axis")
      .OptionalVariadicInput("SizeTensor", "a one-element tensor for each axis")
      .OptionalInput("Scale", "float32 tensor: a factor for all axes or one for each")
      .Attr<std::string>("data_layout", "NCHW", "NCHW: channels are axis 1; NHWC: the last axis")
      .OneOf({"NCHW", "NHWC"})
      .Attr<int32_t>("out_d", 0, "depth of Out")
      .Attr<int32_t>("out_h", 0, "height of Out")
      .Attr<int32_t>("out_w", 0, "width of Out");
  if (type == "interpolate")
    def.Attr<std::string>("interp_method", "bilinear or nearest").OneOf({"bilinear", "nearest"});
  else
    def.Attr<std::string>("interp_method", MethodOf(type), "must be the method of the op's type")
        .OneOf({MethodOf(type)});
  def.Attr<bool>("align_corners", true, "the corner elements of X and Out coincide")
      .Attr<int32_t>("align_mode", 1, "0, for linear methods: element k is at k + 0.5")
      .NoGradientTo({"OutSize", "SizeTensor", "Scale"});
  if (type.ends_with("_v2"))
    def.Attr<std::vector<float>>("scale", {}, "scale factors, one for all axes or one for each");
  else
    def.Attr<float>("scale", 0.f, "scale factor; 0: the size is given by out_d, out_h and out_w");
}

// Only images have passes that change their layout.
void DeclareLayout(OpDef& def, const std::string& type, const std::vector<std::string>& slots) {
  if (!type.starts_with("linear") && !type.starts_with("tri"))
    def.ImageLayout("data_layout", slots);
}

void AddPair(OpRegistry& ops, const std::string& type, const std::string& what, int axes) {
  OpDef def(type);
  def.Doc(
         "Out = X resized by " + what +
         ". Element k of an axis is at x = k ratio, ratio = in / out (_v2: 1 / scale if a scale is "
         "given and no SizeTensor), or, with align_corners, (in - 1) / (out - 1). The size comes "
         "from SizeTensor, else OutSize, else Scale, else attr scale, else out_d, out_h and out_w.")
      .Constraint("C1", "X must have rank " + std::to_string(2 + axes))
      .Constraint("C2", "X must not be empty along an axis that is resized")
      .Constraint("C3", "SizeTensor and OutSize must hold a number for each axis")
      .Constraint("C4", "the size of Out must be positive and below 2^31")
      .Constraint("C5", "Scale and attr scale must be one number or one for each axis")
      .Input("X", "images, volumes or rows")
      .Output("Out", "X resized")
      .Apply(DeclareSizes, type)
      .Apply(DeclareLayout, type, std::vector<std::string>{"X", "Out"})
      .Rows(EachBatchRow, kEachBatchRow)
      .Infer(InferInterp)
      .Fast(InterpFast)
      .GradientOp({"X", "OutSize", "SizeTensor", "Scale"});
  if (type.starts_with("nearest"))
    def.Reference(Move);
  else if (type.starts_with("bicubic"))
    def.Reference(Mix<float>, Mix<double>);
  else
    def.Reference(Mix<float>, Mix<double>, Mix<uint8_t>);
  ops.Add(std::move(def));
  ops.Add(OpDef(type + "_grad")
              .Doc("Gradient of " + type +
                   ": every element of Out@GRAD is added, with the same weights, to the elements "
                   "of X that it was computed from.")
              .ConstraintsOf(type, {"C1", "C2", "C3", "C4", "C5"})
              .Constraint("C6", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .Apply(DeclareSizes, type)
              .Apply(DeclareLayout, type, std::vector<std::string>{"X", "Out@GRAD", "X@GRAD"})
              .NoGradientTo({"X"})
              .KernelTypeFrom("Out@GRAD")
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C6", InterpOut(ctx));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Gradient(InterpGradGradient)
              .Reference(InterpGrad<float>, InterpGrad<double>)
              .Fast(InterpGradFast));
}

void Register(OpRegistry& ops) {
  const std::string linear = "the two nearest elements along each axis, weighted by their distance";
  const std::string nearest = "the element int(x) (rounded with align_corners)";
  for (const std::string version : {"", "_v2"}) {
    AddPair(ops, "linear_interp" + version, linear, 1);
    AddPair(ops, "nearest_interp" + version, nearest, 2);
    AddPair(ops, "bilinear_interp" + version, linear, 2);
    AddPair(ops, "bicubic_interp" + version,
            "the four nearest elements along each axis and Keys' cubic kernel (A = -0.75); without "
            "align_corners x is (k + 0.5) ratio - 0.5",
            2);
    AddPair(ops, "trilinear_interp" + version, linear, 3);
  }
  AddPair(ops, "interpolate", "interp_method: nearest_interp or bilinear_interp", 2);
}

}  // namespace coracle::interp_op
