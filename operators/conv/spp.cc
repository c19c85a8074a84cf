#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/pool.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::spp_op {

constexpr int kHighest = 15;

// The bins of one axis at a level: windows of equal size around an input of any size.
WindowAxis BinsOf(int level, int64_t in) {
  WindowAxis axis;
  axis.in = in;
  axis.out = int64_t{1} << level;
  axis.kernel = axis.stride = (in + axis.out - 1) / axis.out;
  axis.before = (axis.kernel * axis.out - in + 1) / 2;
  axis.after = axis.kernel * axis.out - in - axis.before;
  return axis;
}

void InferSpp(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x.shape);
  ctx.Require("C2", x.shape[2] != 0 && x.shape[3] != 0, x.shape);
  const int32_t levels = ctx.Attr<int32_t>("pyramid_height");
  ctx.Require("C3", levels >= 1 && levels <= kHighest, levels);
  int64_t bins = 0;
  for (int level = 0; level < levels; ++level) bins += int64_t{1} << 2 * level;
  ctx.SetOutput("Out", x.dtype, {x.shape[0], MulDims(x.shape[1], bins)});
}

template <class T>
KernelOf<T> Spp(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const int levels = ctx.Attr<int32_t>("pyramid_height");
  const bool max = ctx.Attr<std::string>("pooling_type") == "max";
  const int64_t channels = x.shape[1], height = x.shape[2], width = x.shape[3];
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const auto pool = [&](const PoolGeometry& g, const PoolWindow& window, const T* plane) {
      T largest = T(0);
      double sum = 0;
      bool first = max;
      ForElements(g.InStrides(), window, [&](int64_t at) {
        if (!max) sum += static_cast<double>(plane[at]);
        if (first || (max && Exceeds(plane[at], largest))) largest = plane[at];
        return first = false;
      });
      return max ? largest : static_cast<T>(sum / static_cast<double>(g.Divisor(window)));
    };
    ParallelFor(x.shape[0] * channels, 1 + 16384 / (1 + height * width),
                [&](int64_t begin, int64_t end) {
                  for (int64_t p = begin; p < end; ++p) {
                    T* row = o + p / channels * out.shape[1];
                    for (int level = 0; level < levels; ++level) {
                      PoolGeometry g;
                      g.channels = 1;
                      g.h = BinsOf(level, height);
                      g.w = BinsOf(level, width);
                      T* to = row + p % channels * g.OutPixels();
                      ForWindows(g, [&](const PoolWindow& window, int64_t at) {
                        to[at] = pool(g, window, in + p * height * width);
                      });
                      row += channels * g.OutPixels();
                    }
                  }
                });
  };
}

// The sum over the levels of the gradients of a pool2d with their windows.
void SppGradient(GradientContext& g) {
  const Shape& x = g.In("X").shape();
  if (x[1] < 0 || x[2] < 0 || x[3] < 0)
    throw Error(ErrorCode::kUnimplemented,
                "spp: the gradient needs the channels, height and width of X when the program is "
                "built");
  const int32_t levels = g.Attr<int32_t>("pyramid_height");
  if (levels < 1 || levels > kHighest) {  // in a program that was not verified
    ThrowInvalid(fmt::format("spp: pyramid_height must lie in [1, {}], got {}", kHighest, levels),
                 "  " + Locate(g.op()));
  }
  const std::string dout = g.OutputGrad("Out");
  std::vector<Variable> terms;
  int64_t begin = 0;
  for (int level = 0; level < levels; ++level) {
    const WindowAxis h = BinsOf(level, x[2]), w = BinsOf(level, x[3]);
    const auto ints = [](std::initializer_list<int64_t> values) {
      return std::vector<int32_t>(values.begin(), values.end());
    };
    const AttrList pool = {{"pooling_type", g.Attr<std::string>("pooling_type")},
                           {"ksize", ints({h.kernel, w.kernel})},
                           {"strides", ints({h.stride, w.stride})},
                           {"paddings", ints({h.before, h.after, w.before, w.after})}};
    const int64_t end = CheckedAdd(begin, CheckedMul(x[1], h.out, w.out));
    const Variable part =
        g.Make("slice", {{"Input", {dout}}},
               {{"axes", ints({1})}, {"starts", ints({begin})}, {"ends", ints({end})}});
    const Variable dlevel = Reshape(part, ints({0, x[1], h.out, w.out}));
    const Variable out = g.Make("pool2d", {{"X", {g.Input("X")}}}, pool);
    terms.push_back(
        g.Make("pool2d_grad",
               {{"X", {g.Input("X")}}, {"Out", {out.name()}}, {"Out@GRAD", {dlevel.name()}}}, pool,
               "X@GRAD"));
    begin = end;
  }
  g.Set("X", terms.size() > 1 ? AddAll(terms) : terms.front());
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("spp")
              .Doc("Spatial pyramid pooling (He et al.): level p cuts each channel of X into 2^p "
                   "by 2^p bins of ceil(in / 2^p) elements along an axis, with half of the padding "
                   "(rounded up) before, and pools each bin. Padding is ignored, a bin without "
                   "elements gives 0, and the maximum of a bin with a nan is nan. A row of Out has "
                   "the bins of all channels, level after level.")
              .Constraint("C1", "X must have rank 4")
              .Constraint("C2", "X must not be empty in height or width")
              .Constraint("C3", "pyramid_height must lie in [1, 15]")
              .Input("X", "[n, c, h, w]")
              .Output("Out", "[n, c (4^P - 1) / 3]")
              .Attr<int32_t>("pyramid_height", "P, the number of levels")
              .Attr<std::string>("pooling_type", "max or avg")
              .OneOf({"max", "avg"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferSpp)
              .Gradient(SppGradient)
              .Reference(Spp<float>, Spp<double>));
}

}  // namespace coracle::spp_op
