#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace coracle {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 31;

// Attr scale: one number in nearest_interp, none, one or two in nearest_interp_v2.
template <class Context>
std::vector<float> ScaleAttr(const Context& ctx) {
  if (ctx.op().type().rfind("nearest_interp_v2", 0) == 0)
    return ctx.template Attr<std::vector<float>>("scale");
  return {ctx.template Attr<float>("scale")};
}

// {height, width} from a list of scales; {0, 0} when it says nothing.
std::array<float, 2> ToPair(const std::vector<float>& scale) {
  if (scale.empty()) return {0.f, 0.f};
  const std::array<float, 2> pair = {scale[0], scale.size() > 1 ? scale[1] : scale[0]};
  return pair[0] > 0 && pair[1] > 0 ? pair : std::array<float, 2>{0.f, 0.f};
}

int64_t Scaled(const InferContext& ctx, int64_t in, float scale) {
  if (in < 0) return -1;
  const float size = static_cast<float>(in) * scale;
  ctx.Require("C4", size >= 1 && size < static_cast<float>(kMaxSize), size);
  return static_cast<int64_t>(size);
}

// Sizes from SizeTensor, else OutSize, else Scale, else attr scale, else out_h and out_w.
std::array<int64_t, 2> OutSizes(const InferContext& ctx, int64_t in_h, int64_t in_w) {
  if (ctx.HasInput("SizeTensor") || ctx.HasInput("OutSize")) {
    const IntList sizes = ReadIntList(ctx, "SizeTensor", "OutSize", "", 2);
    if (!sizes.known) return {-1, -1};
    ctx.Require("C3", sizes.values.size() == 2, sizes.values.size());
    return {sizes.values[0], sizes.values[1]};
  }
  std::vector<float> scale = ScaleAttr(ctx);
  if (ctx.HasInput("Scale")) {
    const Tensor* given = ctx.Constant("Scale");
    if (!given) return {-1, -1};
    const Tensor wide = given->Cast(DType::kFloat32);
    ctx.Require("C5", wide.numel() == 1 || wide.numel() == 2, "Scale", wide.numel());
    scale.assign(wide.data<float>(), wide.data<float>() + wide.numel());
  }
  ctx.Require("C5", scale.size() <= 2, "attr scale", scale.size());
  const std::array<float, 2> pair = ToPair(scale);
  if (pair[0] > 0) return {Scaled(ctx, in_h, pair[0]), Scaled(ctx, in_w, pair[1])};
  return {ctx.Attr<int32_t>("out_h"), ctx.Attr<int32_t>("out_w")};
}

VarMeta InterpOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x.shape.rank());
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_layout"));
  int64_t& h = x.shape[layout.height()];
  int64_t& w = x.shape[layout.width()];
  ctx.Require("C2", h != 0 && w != 0, "height", h, "width", w);
  const std::array<int64_t, 2> size = OutSizes(ctx, h, w);
  for (int64_t n : size) {
    ctx.Require("C4", (n > 0 && n < kMaxSize) || (n == -1 && !ctx.exact()), n);
  }
  h = size[0];
  w = size[1];
  return x;
}

void InferInterp(InferContext& ctx) { ctx.SetOutput("Out", InterpOut(ctx)); }

struct Image {
  bool channels_last;
  int64_t n, c, in_h, in_w, out_h, out_w;
};

Image ImageOf(const PrepareContext& ctx, const Shape& in, const Shape& out) {
  const ImageLayout l = ImageLayoutOf(ctx.Attr<std::string>("data_layout"));
  return {l.channels_last, in[0],           in[l.channel()], in[l.height()],
          in[l.width()],   out[l.height()], out[l.width()]};
}

// Which element of X each row and column of Out shows: int(ratio * k), rounded to the
// nearest with align_corners.
class Sources {
 public:
  Sources(const PrepareContext& ctx, const Image& image)
      : image_(image), align_(ctx.Attr<bool>("align_corners")) {
    if (!ctx.HasInput("SizeTensor")) {
      scale_ = ToPair(ScaleAttr(ctx));
      scale_tensor_ = ctx.Input("Scale");
      if (scale_tensor_ && scale_tensor_.dtype != DType::kFloat32)
        ctx.Unsupported("Scale must be float32");
    }
    rows_ = ctx.Scratch(DType::kInt64, {image.out_h});
    columns_ = ctx.Scratch(DType::kInt64, {image.out_w});
  }
  void Fill(Workspace& ws) const {
    std::array<float, 2> scale = scale_;
    if (scale_tensor_) {
      const float* given = ws.Data<const float>(scale_tensor_);
      scale = ToPair({given, given + scale_tensor_.numel});
    }
    FillAxis(ws.Data<int64_t>(rows_), image_.in_h, image_.out_h, scale[0]);
    FillAxis(ws.Data<int64_t>(columns_), image_.in_w, image_.out_w, scale[1]);
  }
  const int64_t* Rows(Workspace& ws) const { return ws.Data<const int64_t>(rows_); }
  const int64_t* Columns(Workspace& ws) const { return ws.Data<const int64_t>(columns_); }

 private:
  void FillAxis(int64_t* to, int64_t in, int64_t out, float scale) const {
    float ratio = scale > 0 ? 1.f / scale : static_cast<float>(in) / static_cast<float>(out);
    if (align_) ratio = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.f;
    for (int64_t k = 0; k < out; ++k) {
      const float at = ratio * static_cast<float>(k) + (align_ ? 0.5f : 0.f);
      to[k] = std::min(static_cast<int64_t>(std::min(at, static_cast<float>(in))), in - 1);
    }
  }

  Image image_;
  bool align_;
  std::array<float, 2> scale_{0.f, 0.f};
  TensorArg scale_tensor_, rows_, columns_;
};

// A plane is a channel of an image, or the whole image when channels come last; its pixels then
// have several elements.
template <class T>
Kernel InterpOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const Image m = ImageOf(ctx, x.shape, out.shape);
  const Sources sources(ctx, m);
  const int64_t pixel = m.channels_last ? m.c : 1, planes = m.channels_last ? m.n : m.n * m.c;
  return [=](Workspace& ws) {
    sources.Fill(ws);
    const int64_t *rows = sources.Rows(ws), *columns = sources.Columns(ws);
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(planes * m.out_h, 1 + 32768 / (m.out_w * pixel), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* from = in + (r / m.out_h * m.in_h + rows[r % m.out_h]) * m.in_w * pixel;
        T* to = o + r * m.out_w * pixel;
        if (pixel == 1) {
          for (int64_t j = 0; j < m.out_w; ++j) to[j] = from[columns[j]];
        } else {
          for (int64_t j = 0; j < m.out_w; ++j)
            std::copy_n(from + columns[j] * pixel, pixel, to + j * pixel);
        }
      }
    });
  };
}

// Moves elements, so only their size counts.
Kernel Interp(const PrepareContext& ctx) {
  switch (SizeOf(ctx.Input("X").dtype)) {
    case 1:
      return InterpOf<uint8_t>(ctx);
    case 2:
      return InterpOf<uint16_t>(ctx);
    case 4:
      return InterpOf<uint32_t>(ctx);
    default:
      return InterpOf<uint64_t>(ctx);
  }
}

template <class T>
KernelOf<T> InterpGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  if (dout.numel == 0 || dx.numel == 0)
    return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
  const Image m = ImageOf(ctx, dx.shape, dout.shape);
  const Sources sources(ctx, m);
  const int64_t pixel = m.channels_last ? m.c : 1, planes = m.channels_last ? m.n : m.n * m.c;
  return [=](Workspace& ws) {
    sources.Fill(ws);
    const int64_t *rows = sources.Rows(ws), *columns = sources.Columns(ws);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    const int64_t plane_in = m.in_h * m.in_w * pixel, plane_out = m.out_h * m.out_w * pixel;
    ParallelFor(planes, 1 + 32768 / plane_out, [&](int64_t begin, int64_t end) {
      std::fill(to + begin * plane_in, to + end * plane_in, T(0));
      for (int64_t p = begin; p < end; ++p) {
        for (int64_t i = 0; i < m.out_h; ++i) {
          const T* g = from + p * plane_out + i * m.out_w * pixel;
          T* row = to + p * plane_in + rows[i] * m.in_w * pixel;
          for (int64_t j = 0; j < m.out_w; ++j) {
            T* target = row + columns[j] * pixel;
            for (int64_t c = 0; c < pixel; ++c) target[c] += g[j * pixel + c];
          }
        }
      }
    });
  };
}

// Linear in X: the gradient of the gradient is the op itself.
void InterpGradGradient(GradientContext& g) {
  const std::string grad_type = g.op().type();
  SlotList inputs = g.ForwardInputs({"OutSize", "SizeTensor", "Scale"});
  inputs.insert(inputs.begin(), {"X", {g.OutputGrad("X@GRAD")}});
  g.Set("Out@GRAD", g.Make(grad_type.substr(0, grad_type.size() - 5), std::move(inputs),
                           g.ForwardAttrs({"data_layout", "out_h", "out_w", "align_corners",
                                           "interp_method", "scale"})));
}

void DeclareSizes(OpDef& def, bool v2) {
  def.OptionalInput("OutSize", "int32 or int64 tensor {height, width}")
      .OptionalVariadicInput("SizeTensor", "two one-element tensors: height, width")
      .OptionalInput("Scale", "float32 tensor of one or two factors")
      .Attr<std::string>("data_layout", "NCHW", "layout of X and Out: NCHW or NHWC")
      .OneOf({"NCHW", "NHWC"})
      .Attr<int32_t>("out_d", 0, "ignored: for three dimensions")
      .Attr<int32_t>("out_h", 0, "height of Out")
      .Attr<int32_t>("out_w", 0, "width of Out")
      .Attr<std::string>("interp_method", "bilinear", "ignored: the op's type says it")
      .Attr<bool>("align_corners", true, "the corner elements of X and Out coincide")
      .Attr<int32_t>("align_mode", 1, "ignored: for linear interpolation")
      .NoGradientTo({"OutSize", "SizeTensor", "Scale"});
  if (v2)
    def.Attr<std::vector<float>>("scale", {}, "factors of size: {height, width} or one for both");
  else
    def.Attr<float>("scale", 0.f, "factor of size; 0: out_h and out_w tell");
}

void AddPair(OpRegistry& ops, bool v2) {
  const std::string type = v2 ? "nearest_interp_v2" : "nearest_interp";
  ops.Add(OpDef(type)
              .Doc("Out[n, c, i, j] = X[n, c, int(i * ratio), int(j * ratio)], where ratio is 1 / "
                   "scale, else in / out; with align_corners (in - 1) / (out - 1), rounded. The "
                   "size comes from SizeTensor, else OutSize, else Scale, else attr scale, else "
                   "out_h and out_w.")
              .Constraint("C1", "X must have rank 4")
              .Constraint("C2", "X must not be empty in height or width")
              .Constraint("C3", "SizeTensor and OutSize must hold two numbers")
              .Constraint("C4", "the size of Out must be positive and below 2^31")
              .Constraint("C5", "Scale and attr scale must be one or two numbers")
              .Input("X", "images of any dtype")
              .Output("Out", "the resized images")
              .Apply(DeclareSizes, v2)
              .ImageLayout("data_layout", {"X", "Out"})
              .Infer(InferInterp)
              .GradientOp({"X", "OutSize", "SizeTensor", "Scale"})
              .Reference(Interp));
  ops.Add(OpDef(type + "_grad")
              .Doc("Gradient of " + type +
                   ": every element of Out@GRAD is added to the place of X that it came from.")
              .ConstraintsOf(type, {"C1", "C2", "C3", "C4", "C5"})
              .Constraint("C6", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "for its shape only")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .Apply(DeclareSizes, v2)
              .ImageLayout("data_layout", {"X", "Out@GRAD", "X@GRAD"})
              .NoGradientTo({"X"})
              .KernelTypeFrom("Out@GRAD")
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C6", InterpOut(ctx));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Gradient(InterpGradGradient)
              .Reference(InterpGrad<float>, InterpGrad<double>));
}

}  // namespace

void RegisterNearestInterpV2(OpRegistry& ops) {
  AddPair(ops, false);
  AddPair(ops, true);
}

}  // namespace coracle
