#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>

namespace coracle::lrn_op {

void CheckLrn(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 4, x);
  const int32_t n = ctx.Attr<int32_t>("n");
  ctx.Require("C2", n > 0 && n % 2 == 1, n);
}

// Computes x^-beta.
struct Power {
  double beta;
  template <class T>
  T operator()(T x) const {
    if (beta != 0.75) return static_cast<T>(std::pow(static_cast<double>(x), -beta));
    const T root = std::sqrt(x);
    return 1 / (root * std::sqrt(root));
  }
};

// X as [outer, channels, inner]; the windows run over the channels.
struct Windows {
  static constexpr int64_t kBlock = 128;

  int64_t outer, channels, inner, half;
  double k, alpha, beta;
  Power power;

  Windows(const PrepareContext& ctx, const Shape& x) {
    const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
    channels = x[layout.channel()];
    const int64_t area = x[layout.height()] * x[layout.width()];
    inner = layout.channels_last ? 1 : area;
    outer = layout.channels_last ? x[0] * area : x[0];
    half = (ctx.Attr<int32_t>("n") - 1) / 2;
    k = static_cast<double>(ctx.Attr<float>("k"));
    alpha = static_cast<double>(ctx.Attr<float>("alpha"));
    beta = static_cast<double>(ctx.Attr<float>("beta"));
    power = {beta};
  }

  // The sum of g over the window around element i.
  template <class G>
  double Around(int64_t i, G&& g) const {
    const int64_t c = i / inner % channels;
    const int64_t last = std::min(half, channels - 1 - c);
    double sum = 0;
    for (int64_t j = -std::min(half, c); j <= last; ++j) sum += g(i + j * inner);
    return sum;
  }
  // Calls f(offset, sum of g(offset) over the channels around it) for all elements, in blocks of
  // adjacent elements: elements of one channel, or all channels of a pixel.
  template <class G, class F>
  void ForEach(G&& g, F&& f) const {
    const bool last = inner == 1;
    const int64_t row = last ? channels : inner, rows = last ? outer : outer * channels;
    const int64_t blocks = (row + kBlock - 1) / kBlock;
    ParallelFor(rows * blocks, 1 + 4096 / std::clamp<int64_t>(row, 1, kBlock),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t r = i / blocks, first = i % blocks * kBlock;
                    const int64_t n = std::min(kBlock, row - first), at = r * row + first;
                    const int64_t c = last ? first : r % channels;
                    double sums[kBlock] = {};
                    const int64_t below = std::min(half, last ? c + n - 1 : c);
                    const int64_t above = std::min(half, channels - 1 - c);
                    for (int64_t j = -below; j <= above; ++j) {
                      // Channels last: only elements whose neighbour is in the pixel.
                      const int64_t from = last ? std::max<int64_t>(0, -j - c) : 0;
                      const int64_t to = last ? std::min(n, channels - c - j) : n;
                      for (int64_t e = from; e < to; ++e) sums[e] += g(at + e + j * inner);
                    }
                    for (int64_t e = 0; e < n; ++e) f(at + e, sums[e]);
                  }
                });
  }
};

template <class T>
KernelOf<T> Lrn(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), mid = ctx.Output("MidOut");
  const Windows windows(ctx, x.shape);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T *o = ws.Data<T>(out), *m = ws.Data<T>(mid);
    const auto squared = [&](int64_t i) {
      return static_cast<double>(in[i]) * static_cast<double>(in[i]);
    };
    windows.ForEach(squared, [&](int64_t i, double sum) {
      const double middle = windows.k + windows.alpha * sum;
      m[i] = static_cast<T>(middle);
      // MidOut may overflow where Out does not.
      o[i] = std::isinf(m[i]) ? static_cast<T>(static_cast<double>(in[i]) * windows.power(middle))
                              : in[i] * windows.power(m[i]);
    });
  };
}

// dX = dOut Mid^-beta + 2 alpha X times the sum of dMid - beta dOut Out / Mid over the channels
// around it.
template <class T>
KernelOf<T> LrnGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Input("Out"), mid = ctx.Input("MidOut");
  const TensorArg dout = ctx.Input("Out@GRAD"), dmid = ctx.Input("MidOut@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const Windows windows(ctx, x.shape);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *o = ws.Data<const T>(out), *m = ws.Data<const T>(mid);
    const T *g = ws.Data<const T>(dout), *h = dmid ? ws.Data<const T>(dmid) : nullptr;
    T* to = ws.Data<T>(dx);
    // MidOut, again from X where it overflowed.
    const auto middle = [&](int64_t k) {
      if (!std::isinf(m[k])) return static_cast<double>(m[k]);
      return windows.k + windows.alpha * windows.Around(k, [&](int64_t i) {
        return static_cast<double>(in[i]) * static_cast<double>(in[i]);
      });
    };
    // A gradient of 0 stays 0 where Out is not finite (for a negative MidOut).
    const auto share = [&](int64_t k) {
      const double through = static_cast<double>(g[k]) * static_cast<double>(o[k]);
      return (h ? static_cast<double>(h[k]) : 0) -
             (g[k] == 0 ? 0 : windows.beta * through / middle(k));
    };
    windows.ForEach(share, [&](int64_t i, double sum) {
      const double own = g[i] == 0 ? 0 : static_cast<double>(g[i]) * windows.power(middle(i));
      to[i] = static_cast<T>(own + 2 * windows.alpha * static_cast<double>(in[i]) * sum);
    });
  };
}

void InferLrnGrad(InferContext& ctx) {
  CheckLrn(ctx);
  for (const char* slot : {"Out", "MidOut", "Out@GRAD", "MidOut@GRAD"})
    RequireSameElements(ctx, "C3", slot, "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("lrn")
              .Doc("Local response normalisation across channels: MidOut = k + alpha times the sum "
                   "of X^2 over the n channels around each (alpha is not divided by n), Out = X "
                   "MidOut^-beta.")
              .Constraint("C1", "X must have rank 4")
              .Constraint("C2", "n must be positive and odd")
              .Input("X", "[N, C, H, W], or [N, H, W, C] for NHWC")
              .Output("Out", "tensor of X's shape")
              .Output("MidOut", "tensor of X's shape")
              .Attr<int32_t>("n", 5, "number of channels in a sum")
              .Attr<float>("k", 2.f, "summand of MidOut")
              .Attr<float>("alpha", 1e-4f, "factor of the sum")
              .Attr<float>("beta", 0.75f, "exponent")
              .Attr<std::string>("data_format", "AnyLayout", "NHWC: channels last; else axis 1")
              .OneOf({"NCHW", "NHWC", "AnyLayout"})
              .Attr<bool>("is_test", false, "accepted, no effect")
              .ImageLayout("data_format", {"X", "Out", "MidOut"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) {
                CheckLrn(ctx);
                ctx.SetOutput("Out", ctx.Input("X"));
                ctx.SetOutput("MidOut", ctx.Input("X"));
              })
              .GradientOp({"X", "Out", "MidOut"})
              .Reference(Lrn<float>, Lrn<double>));
  ops.Add(
      OpDef("lrn_grad")
          .Doc("Gradient of lrn: X@GRAD = Out@GRAD MidOut^-beta + 2 alpha X times the sum over "
               "the channels around each of MidOut@GRAD - beta Out@GRAD Out / MidOut.")
          .ConstraintsOf("lrn", {"C1", "C2"})
          .Constraint("C3", "Out, MidOut and the gradients must have X's shape and dtype")
          .Input("X", "lrn's X")
          .Input("Out", "lrn's Out")
          .Input("MidOut", "lrn's MidOut")
          .Input("Out@GRAD", "gradient of Out")
          .OptionalInput("MidOut@GRAD", "gradient of MidOut")
          .Output("X@GRAD", "gradient of X")
          .AttrsOf("lrn")
          .ImageLayout("data_format", {"X", "Out", "MidOut", "Out@GRAD", "MidOut@GRAD", "X@GRAD"})
          .NoGradient("second derivatives of lrn are not provided")
          .Infer(InferLrnGrad)
          .Reference(LrnGrad<float>, LrnGrad<double>));
}

}  // namespace coracle::lrn_op
