// Random tensors. An element depends only on (seed, name of Out, step, index), see rng.h.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/random/generator.h>
#include <coracle/operators/random/normal.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace coracle::random_op {

constexpr int64_t kGrain = 1 << 13;

void CheckFloating(const InferContext& ctx, std::string_view id, DType dtype) {
  ctx.Require(id, IsFloating(dtype), dtype);
}

// ---- uniform ----

void CheckUniform(const InferContext& ctx, std::string_view id) {
  const float min = ctx.Attr<float>("min"), max = ctx.Attr<float>("max");
  ctx.Require(id, min <= max && std::isfinite(min) && std::isfinite(max), "min", min, "max", max);
}

// C5: the diagonal lies inside the tensor.
void CheckDiagonal(const InferContext& ctx, const Shape& shape) {
  const int64_t num = ctx.Attr<int32_t>("diag_num"), step = ctx.Attr<int32_t>("diag_step");
  ctx.Require("C5", num >= 0 && step >= 0, "diag_num", num, "diag_step", step);
  const int64_t numel = NumelOf(shape);
  ctx.Require("C5", numel < 0 || num == 0 || (num - 1) * (step + 1) < numel, "diag_num", num,
              "diag_step", step, "elements", numel);
}

void InferUniform(InferContext& ctx) {
  const Shape shape = ReadNewShape(ctx, "ShapeTensorList", "ShapeTensor", "shape");
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  CheckFloating(ctx, "C3", dtype);
  CheckUniform(ctx, "C4");
  CheckDiagonal(ctx, shape);
  ctx.SetOutput("Out", dtype, shape);
}

void InferUniformLike(InferContext& ctx) {
  const Shape shape = BatchSizeLikeShape(ctx);
  const DType dtype = DTypeFromAttr(ctx, "C6", "dtype");
  CheckFloating(ctx, "C6", dtype);
  CheckUniform(ctx, "C4");
  CheckDiagonal(ctx, shape);
  ctx.SetOutput("Out", dtype, shape);
}

// Rounding may raise min + (max - min) u to max, which is not in [min, max).
float Below(float value, float min, float max) {
  return value < max || !(min < max) ? value : std::nextafter(max, min);
}

template <class T>
void FillUniform(const Philox& random, float min, float max, T* out, int64_t begin, int64_t end) {
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t i = begin; i < end; ++i) {
      const double u = random.UniformDouble(static_cast<uint64_t>(i));
      out[i] = static_cast<double>(min) + (static_cast<double>(max) - static_cast<double>(min)) * u;
    }
  } else {
    const float width = max - min;
    for (int64_t i = begin; i < end;) {
      const auto words = random.Block(static_cast<uint64_t>(i) / 4);
      do {
        const float u = ToUnitFloat(words[static_cast<size_t>(i % 4)]);
        // Halving keeps the sum finite if the width exceeds the largest float.
        const float value = std::isfinite(width) ? min + width * u : min * (1 - u) + max * u;
        out[i] = T(Below(value, min, max));
      } while (++i < end && i % 4 != 0);
    }
  }
}

template <class T>
KernelOf<T> Uniform(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const float min = ctx.Attr<float>("min"), max = ctx.Attr<float>("max");
  const Generator generator(ctx);
  const int64_t num = ctx.Attr<int32_t>("diag_num");
  const int64_t stride = int64_t{1} + ctx.Attr<int32_t>("diag_step");
  const T diagonal = static_cast<T>(ctx.Attr<float>("diag_val"));
  return [=](Workspace& ws) {
    const Philox random = generator(ws);
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, kGrain,
                [&](int64_t begin, int64_t end) { FillUniform(random, min, max, o, begin, end); });
    for (int64_t i = 0; i < num && i * stride < out.numel; ++i) o[i * stride] = diagonal;
  };
}

// ---- normal ----

template <class Context>
bool NormalAttrsHold(const Context& ctx) {
  const float std = ctx.template Attr<float>("std");
  return std::isfinite(ctx.template Attr<float>("mean")) && std >= 0 && std::isfinite(std);
}

void InferGaussian(InferContext& ctx) {
  const Shape shape = ReadNewShape(ctx, "ShapeTensorList", "ShapeTensor", "shape");
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  CheckFloating(ctx, "C3", dtype);
  ctx.Require("C4", NormalAttrsHold(ctx), "mean", ctx.Attr<float>("mean"), "std",
              ctx.Attr<float>("std"));
  const float share = ctx.Attr<float>("share");
  ctx.Require("C5", share >= 0 && share <= 1, "share", share);
  ctx.SetOutput("Out", dtype, shape);
}

void InferGaussianLike(InferContext& ctx) {
  const Shape shape = BatchSizeLikeShape(ctx);
  const DType dtype = DTypeFromAttr(ctx, "C6", "dtype");
  CheckFloating(ctx, "C6", dtype);
  ctx.Require("C4", NormalAttrsHold(ctx), "mean", ctx.Attr<float>("mean"), "std",
              ctx.Attr<float>("std"));
  ctx.SetOutput("Out", dtype, shape);
}

void InferTruncated(InferContext& ctx) {
  const Shape shape = ReadNewShape(ctx, "", "", "shape");
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  CheckFloating(ctx, "C3", dtype);
  ctx.Require("C4", NormalAttrsHold(ctx), "mean", ctx.Attr<float>("mean"), "std",
              ctx.Attr<float>("std"));
  ctx.SetOutput("Out", dtype, shape);
}

// `draw(random, i)` returns the unscaled element i.
template <class T, class Draw>
Kernel Scaled(const PrepareContext& ctx, Draw draw) {
  const TensorArg out = ctx.Output("Out");
  const double mean = static_cast<double>(ctx.Attr<float>("mean"));
  const double deviation = static_cast<double>(ctx.Attr<float>("std"));
  const Generator generator(ctx);
  return [=](Workspace& ws) {
    const Philox random = generator(ws);
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double value = mean + deviation * draw(random, static_cast<uint64_t>(i));
        if constexpr (std::is_same_v<T, double>)
          o[i] = value;
        else
          o[i] = T(static_cast<float>(value));
      }
    });
  };
}

template <class T>
KernelOf<T> Gaussian(const PrepareContext& ctx) {
  return Scaled<T>(ctx, [](const Philox& random, uint64_t i) { return random.Normal(i); });
}

// Draws of the same stream, far behind all elements, choose the elements that become 0.
template <class T>
KernelOf<T> SparseGaussian(const PrepareContext& ctx) {
  constexpr uint64_t kChoices = uint64_t{1} << 60;
  const auto share = static_cast<double>(ctx.Attr<float>("share"));
  KernelOf<T> all = Gaussian<T>(ctx);
  if (share == 1) return all;
  const TensorArg out = ctx.Output("Out");
  const Generator generator(ctx);
  return [=, fill = std::move(all.kernel)](Workspace& ws) {
    fill(ws);
    const Philox random = generator(ws);
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (random.UniformDouble(kChoices + static_cast<uint64_t>(i)) >= share) o[i] = T(0);
    });
  };
}

// Inverse distribution function over the middle [Phi(-2), Phi(2)]: one draw per element,
// without rejection.
template <class T>
KernelOf<T> TruncatedGaussian(const PrepareContext& ctx) {
  return Scaled<T>(ctx, [low = NormalCdf(-2.0)](const Philox& random, uint64_t i) {
    const double u = random.UniformDouble(i);
    return std::clamp(NormalQuantile(low + (1.0 - 2.0 * low) * u), -2.0, 2.0);
  });
}

constexpr char kNoGradientReason[] = "the output is drawn at random from attrs";

void DeclareDraw(OpDef& def) {
  def.Output("Out", "the drawn tensor")
      .Attr<int32_t>("seed", 0, "seed of this op; 0: the program's seed")
      .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32), "dtype of Out")
      .KernelTypeFrom("Out")
      .Random()
      .NotDifferentiable(kNoGradientReason);
}

void DeclareUniform(OpDef& def) {
  def.Attr<float>("min", -1.f, "lower bound, included")
      .Attr<float>("max", 1.f, "upper bound, excluded")
      .Attr<int32_t>("diag_num", 0, "number of diagonal elements to set")
      .Attr<int32_t>("diag_step", 0, "diagonal element i is element i * (diag_step + 1)")
      .Attr<float>("diag_val", 1.f, "value of the diagonal elements")
      .Constraint("C4", "min must not exceed max, and both must be finite")
      .Constraint(
          "C5",
          "diag_num and diag_step must not be negative, and the diagonal must lie inside Out");
}

void DeclareNormal(OpDef& def) {
  def.Attr<float>("mean", 0.f, "mean")
      .Attr<float>("std", 1.f, "standard deviation")
      .Constraint("C4", "mean and std must be finite, std not negative");
}

void DeclareShape(OpDef& def) {
  def.OptionalInput("ShapeTensor", "int32 or int64 tensor with the shape")
      .OptionalVariadicInput("ShapeTensorList", "one-element tensors, one per dimension")
      .Attr<std::vector<int64_t>>("shape", {}, "shape of Out");
}

void DeclareBatchSizeLike(OpDef& def) {
  def.Constraint("C1", "no dimension may be negative")
      .Constraint("C2", "input_dim_idx must be an axis of Input")
      .Constraint("C3", "output_dim_idx must be an index of shape")
      .Constraint("C6", "dtype must be a floating-point one")
      .Input("Input", "tensor with the batch dimension")
      .Attr<std::vector<int32_t>>("shape", "shape of Out, except for one dimension")
      .Attr<int32_t>("input_dim_idx", 0, "axis of Input to take the dimension from")
      .Attr<int32_t>("output_dim_idx", 0, "index in shape that gets this dimension")
      .ShapeOnly();
}

void DeclareNewTensor(OpDef& def) {
  def.Constraint("C1", "no dimension may be negative")
      .Constraint("C2", "the rank must be at most 9")
      .Constraint("C3", "dtype must be a floating-point one");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("uniform_random")
              .Doc("Out = independent draws, uniform in [min, max).")
              .Apply(DeclareNewTensor)
              .Apply(DeclareDraw)
              .Apply(DeclareShape)
              .Apply(DeclareUniform)
              .Rows(RowRule::kEach)
              .Infer(InferUniform)
              .Reference(Uniform<float>, Uniform<double>, Uniform<float16>, Uniform<bfloat16>));
  ops.Add(
      OpDef("uniform_random_batch_size_like")
          .Doc("uniform_random in attr shape with dimension output_dim_idx taken from dimension "
               "input_dim_idx of Input.")
          .Apply(DeclareBatchSizeLike)
          .Apply(DeclareDraw)
          .Apply(DeclareUniform)
          .NoLod()
          .Rows(RowRule::kEach)
          .Infer(InferUniformLike)
          .Reference(Uniform<float>, Uniform<double>, Uniform<float16>, Uniform<bfloat16>));
  ops.Add(
      OpDef("gaussian_random")
          .Doc("Out = independent draws, normal with the given mean and standard deviation.")
          .Apply(DeclareNewTensor)
          .Apply(DeclareDraw)
          .Apply(DeclareShape)
          .Apply(DeclareNormal)
          .Attr<float>("share", 1.f,
                       "share of the elements that are drawn; the others, chosen at random, are "
                       "0. Only Coracle has it")
          .Constraint("C5", "share must lie in [0, 1]")
          .Rows(RowRule::kEach)
          .Infer(InferGaussian)
          .Reference(SparseGaussian<float>, SparseGaussian<double>, SparseGaussian<float16>,
                     SparseGaussian<bfloat16>));
  ops.Add(
      OpDef("gaussian_random_batch_size_like")
          .Doc("gaussian_random in attr shape with dimension output_dim_idx taken from dimension "
               "input_dim_idx of Input.")
          .Apply(DeclareBatchSizeLike)
          .Apply(DeclareDraw)
          .Apply(DeclareNormal)
          .NoLod()
          .Rows(RowRule::kEach)
          .Infer(InferGaussianLike)
          .Reference(Gaussian<float>, Gaussian<double>, Gaussian<float16>, Gaussian<bfloat16>));
  ops.Add(OpDef("truncated_gaussian_random")
              .Doc("Out = independent draws, normal with the given mean and standard deviation, "
                   "restricted to two standard deviations around the mean.")
              .Apply(DeclareNewTensor)
              .Attr<std::vector<int32_t>>("shape", "shape of Out")
              .Apply(DeclareDraw)
              .Apply(DeclareNormal)
              .Rows(RowRule::kEach)
              .Infer(InferTruncated)
              .Reference(TruncatedGaussian<float>, TruncatedGaussian<double>,
                         TruncatedGaussian<float16>, TruncatedGaussian<bfloat16>));
}

}  // namespace coracle::random_op
