#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/conv/bilinear.h>
#include <coracle/operators/kernels/vision_simd.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>

namespace coracle::grid_sampler_op {

VarMeta SamplerOut(const InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& grid = ctx.InputShape("Grid");
  ctx.Require("C1", x.shape.rank() == 4 && x.shape[2] != 0 && x.shape[3] != 0, x.shape);
  ctx.Require("C2",
              grid.rank() == 4 && InferContext::Matches(grid[3], 2) &&
                  InferContext::Matches(grid[0], x.shape[0]),
              "Grid", grid, "X", x.shape);
  RequireSameDType(ctx, "C3", "Grid", "X");
  x.shape[2] = grid[1];
  x.shape[3] = grid[2];
  return x;
}

// Maps a number of Grid to a position along an axis of X, with its derivative.
struct Axis {
  double size;
  bool align, border, reflect;

  struct Place {
    double at, slope;
  };
  Place operator()(double g) const {
    const double slope = (align ? size - 1 : size) / 2;
    Place p{(g + 1) * slope - (align ? 0 : 0.5), slope};
    if (reflect) {
      const double low = align ? 0 : -0.5, span = 2 * slope;
      if (span <= 0) return {0, 0};
      const double off = p.at - low, rest = std::fmod(std::abs(off), 2 * span);
      const bool back = rest > span;
      p.at = low + (back ? 2 * span - rest : rest);
      if ((off < 0) != back) p.slope = -p.slope;
    }
    if ((border || reflect) && (p.at < 0 || p.at > size - 1))
      p = {std::clamp(p.at, 0.0, size - 1), 0};
    return p;
  }
};

// The loops of both kernels.
struct Sampler {
  int64_t batch, channels, height, width, samples;
  bool nearest;
  Axis y, x;

  Sampler(const PrepareContext& ctx, const Shape& in, const Shape& grid)
      : batch(in[0]),
        channels(in[1]),
        height(in[2]),
        width(in[3]),
        samples(grid[1] * grid[2]),
        nearest(ctx.Attr<std::string>("mode") == "nearest") {
    const bool align = ctx.Attr<bool>("align_corners");
    const auto mode = ctx.Attr<std::string>("padding_mode");
    y = {static_cast<double>(height), align, mode == "border", mode == "reflection"};
    x = y;
    x.size = static_cast<double>(width);
  }
  int64_t plane() const { return height * width; }

  // Calls f(sample, weights of its neighbours, slopes along y and x) for samples [begin, end) of
  // image n.
  template <class T, class F>
  void ForSamples(const T* grid, int64_t n, int64_t begin, int64_t end, F&& f) const {
    for (int64_t k = begin; k < end; ++k) {
      const T* g = grid + (n * samples + k) * 2;
      Axis::Place px = x(static_cast<double>(g[0])), py = y(static_cast<double>(g[1]));
      if (nearest) {
        px = {std::round(px.at), 0};
        py = {std::round(py.at), 0};
      }
      f(k, Bilinear<T>(static_cast<T>(py.at), static_cast<T>(px.at), height, width), py.slope,
        px.slope);
    }
  }
};

template <class T>
KernelOf<T> GridSampler(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), grid = ctx.Input("Grid"), out = ctx.Output("Output");
  const Sampler s(ctx, x.shape, grid.shape);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *g = ws.Data<const T>(grid);
    T* o = ws.Data<T>(out);
    ParallelFor(s.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        s.ForSamples(g, n, 0, s.samples, [&](int64_t k, const Bilinear<T>& near, double, double) {
          for (int64_t c = n * s.channels; c < (n + 1) * s.channels; ++c)
            o[c * s.samples + k] = near.Of(in + c * s.plane());
        });
      }
    });
  };
}

template <class T>
KernelOf<T> GridSamplerGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), grid = ctx.Input("Grid"), dout = ctx.Input("Output@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dgrid = ctx.Output("Grid@GRAD");
  const Sampler s(ctx, x.shape, grid.shape);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *g = ws.Data<const T>(grid), *d = ws.Data<const T>(dout);
    T *to_x = dx ? ws.Data<T>(dx) : nullptr, *to_grid = dgrid ? ws.Data<T>(dgrid) : nullptr;
    ParallelFor(s.batch, 1, [&](int64_t begin, int64_t end) {
      const int64_t image = s.channels * s.plane();
      if (to_x) std::fill(to_x + begin * image, to_x + end * image, T(0));
      for (int64_t n = begin; n < end; ++n) {
        s.ForSamples(g, n, 0, s.samples,
                     [&](int64_t k, const Bilinear<T>& near, double y_slope, double x_slope) {
                       double along_y = 0, along_x = 0;
                       for (int64_t c = n * s.channels; c < (n + 1) * s.channels; ++c) {
                         const T value = d[c * s.samples + k];
                         if (to_x) near.AddTo(to_x + c * s.plane(), value);
                         along_y += static_cast<double>(value * near.DyOf(in + c * s.plane()));
                         along_x += static_cast<double>(value * near.DxOf(in + c * s.plane()));
                       }
                       if (!to_grid) return;
                       to_grid[(n * s.samples + k) * 2] = static_cast<T>(along_x * x_slope);
                       to_grid[(n * s.samples + k) * 2 + 1] = static_cast<T>(along_y * y_slope);
                     });
      }
    });
  };
}

// --- float32: tiles of samples, for which the channels are done one after the other ---

// Samples [begin, begin + size) of image n with the derivatives of their positions.
struct GridTile : SampleTile {
  double y_slope[kSize], x_slope[kSize];

  GridTile(const Sampler& s, const float* grid, int64_t n, int64_t begin) {
    const int64_t end = std::min(begin + kSize, s.samples);
    s.ForSamples(grid, n, begin, end,
                 [&](int64_t k, const Bilinear<float>& near, double y, double x) {
                   Set(k - begin, near);
                   y_slope[k - begin] = y;
                   x_slope[k - begin] = x;
                 });
    Finish(end - begin);
  }
};

bool HasFastPlanes(const TensorArg& x, const Sampler& s) {
  return x.dtype == DType::kFloat32 && x.numel > 0 && s.plane() < (int64_t{1} << 31);
}

Kernel GridSamplerFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), grid = ctx.Input("Grid"), out = ctx.Output("Output");
  const Sampler s(ctx, x.shape, grid.shape);
  if (!HasFastPlanes(x, s) || out.numel == 0) return {};
  const int64_t tiles = (s.samples + SampleTile::kSize - 1) / SampleTile::kSize;
  const int64_t grain = 1 + 8192 / (s.channels * SampleTile::kSize);
  return [=](Workspace& ws) {
    const float *in = ws.Data<const float>(x), *g = ws.Data<const float>(grid);
    float* o = ws.Data<float>(out);
    ParallelFor(s.batch * tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t n = i / tiles, first = i % tiles * SampleTile::kSize;
        const GridTile tile(s, g, n, first);
        for (int64_t c = n * s.channels; c < (n + 1) * s.channels; ++c)
          ReadSamples(tile, in + c * s.plane(), nullptr, o + c * s.samples + first);
      }
    });
  };
}

// The derivatives of the positions are sums over the channels, in float32, since channels are few.
Kernel GridSamplerGradFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), grid = ctx.Input("Grid"), dout = ctx.Input("Output@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dgrid = ctx.Output("Grid@GRAD");
  const Sampler s(ctx, x.shape, grid.shape);
  if (!HasFastPlanes(x, s) || s.channels > 8192) return {};
  const auto image = [=](const float* in, const float* g, const float* d, int64_t n, float* to_x,
                         float* to_grid) {
    if (to_x) std::fill_n(to_x + n * s.channels * s.plane(), s.channels * s.plane(), 0.f);
    for (int64_t first = 0; first < s.samples; first += SampleTile::kSize) {
      const GridTile tile(s, g, n, first);
      float y[SampleTile::kSize] = {}, x_sum[SampleTile::kSize] = {};
      for (int64_t c = n * s.channels; c < (n + 1) * s.channels; ++c) {
        const float* values = d + c * s.samples + first;
        if (to_x) SpreadSamples(tile, values, to_x + c * s.plane());
        if (to_grid) AddDerivatives(tile, in + c * s.plane(), values, nullptr, y, x_sum);
      }
      for (int64_t i = 0; to_grid && i < tile.size; ++i) {
        float* to = to_grid + (n * s.samples + first + i) * 2;
        to[0] = static_cast<float>(static_cast<double>(x_sum[i]) * tile.x_slope[i]);
        to[1] = static_cast<float>(static_cast<double>(y[i]) * tile.y_slope[i]);
      }
    }
  };
  return [=](Workspace& ws) {
    const float *in = ws.Data<const float>(x), *g = ws.Data<const float>(grid);
    const float* d = ws.Data<const float>(dout);
    float* to_x = dx ? ws.Data<float>(dx) : nullptr;
    float* to_grid = dgrid ? ws.Data<float>(dgrid) : nullptr;
    ParallelFor(s.batch, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) image(in, g, d, n, to_x, to_grid);
    });
  };
}

void DeclareSampler(OpDef& def) {
  def.Input("X", "[N, C, H, W]")
      .Input("Grid", "[N, h, w, 2]: positions (x, y); the corners of X are at -1 and 1")
      .Attr<bool>("align_corners", true,
                  "-1 and 1 are the centres of the outermost elements, else their outer edges")
      .Attr<std::string>("mode", "bilinear", "bilinear or nearest (halves away from 0)")
      .OneOf({"bilinear", "nearest"})
      .Attr<std::string>(
          "padding_mode", "zeros",
          "values outside of X: zeros; border: the nearest element; reflection: X mirrored at the "
          "centres of the outermost elements (at their edges without align_corners)")
      .OneOf({"zeros", "border", "reflection"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("grid_sampler")
              .Doc("Output[n, :, i, j] = X[n] interpolated at the position Grid[n, i, j]. With "
                   "padding_mode zeros, neighbours outside of X are 0.")
              .Constraint("C1", "X must have rank 4 and not be empty in height or width")
              .Constraint("C2", "Grid must be [N, h, w, 2] for the N images of X")
              .Constraint("C3", "X and Grid must have one dtype")
              .Apply(DeclareSampler)
              .Output("Output", "[N, C, h, w]")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Output", SamplerOut(ctx)); })
              .GradientOp({"X", "Grid"})
              .Reference(GridSampler<float>, GridSampler<double>)
              .Fast(GridSamplerFast));
  ops.Add(OpDef("grid_sampler_grad")
              .Doc("Gradient of grid_sampler: X@GRAD by the weights of the neighbours, Grid@GRAD "
                   "by their derivatives, which are 0 in mode nearest and where a position was "
                   "moved to the border.")
              .ConstraintsOf("grid_sampler", {"C1", "C2", "C3"})
              .Constraint("C4", "Output@GRAD must have Output's shape and dtype")
              .Apply(DeclareSampler)
              .Input("Output@GRAD", "gradient of Output")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Grid@GRAD", "gradient of Grid")
              .NoGradient("second derivatives of grid_sampler are not provided")
              .Infer([](InferContext& ctx) {
                const VarMeta out = SamplerOut(ctx), &dout = ctx.Input("Output@GRAD");
                ctx.Require("C4", dout.dtype == out.dtype && dout.shape.CompatibleWith(out.shape),
                            dout, out);
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
                ctx.SetOutput("Grid@GRAD", ctx.Input("Grid"));
              })
              .Reference(GridSamplerGrad<float>, GridSamplerGrad<double>)
              .Fast(GridSamplerGradFast));
}

}  // namespace coracle::grid_sampler_op
