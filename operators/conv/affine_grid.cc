#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

namespace coracle::affine_grid_op {

// Height and width of the grid, from attr output_shape, else from OutputShape.
void CheckSize(const InferContext& ctx, int64_t (&size)[2]) {
  const bool given = !ctx.Attr<std::vector<int32_t>>("output_shape").empty();
  ctx.Require("C2", given || ctx.HasInput("OutputShape"), "numbers", 0);
  const IntList shape =
      ReadIntList(ctx, "", given ? "" : "OutputShape", given ? "output_shape" : "", 4);
  ctx.Require("C2", shape.values.size() == 4, shape.values.size());
  for (size_t i = 0; i < 2; ++i) {
    size[i] = shape.known ? shape.values[2 + i] : -1;
    ctx.Require("C2", !shape.known || size[i] >= 0, shape.values);
  }
}

void InferAffineGrid(InferContext& ctx) {
  VarMeta theta = ctx.Input("Theta");
  const bool fits = theta.shape.rank() == 3 && theta.shape.CompatibleWith({-1, 2, 3});
  ctx.Require("C1", fits, theta.shape);
  int64_t size[2];
  CheckSize(ctx, size);
  theta.shape = {theta.shape[0], size[0], size[1], 2};
  ctx.SetOutput("Output", theta);
}

void InferAffineGridGrad(InferContext& ctx) {
  VarMeta dout = ctx.Input("Output@GRAD");
  ctx.Require("C3", dout.shape.rank() == 4 && InferContext::Matches(dout.shape[3], 2), dout.shape);
  dout.shape = {dout.shape[0], 2, 3};
  ctx.SetOutput("Theta@GRAD", dout);
}

// Calls f(offset of the pixel in Output, {x, y, 1}) for all pixels of grid n, [height, width].
template <class T>
struct Pixels {
  int64_t height, width;
  bool align;

  T Coordinate(int64_t i, int64_t n) const {
    if (align) return n > 1 ? T(-1) + T(2) * static_cast<T>(i) / static_cast<T>(n - 1) : T(-1);
    return (static_cast<T>(2 * i + 1) - static_cast<T>(n)) / static_cast<T>(n);
  }
  template <class F>
  void ForEach(int64_t n, F&& f) const {
    for (int64_t i = 0; i < height; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const T place[3] = {Coordinate(j, width), Coordinate(i, height), T(1)};
        f(((n * height + i) * width + j) * 2, place);
      }
    }
  }
};

template <class T>
KernelOf<T> AffineGrid(const PrepareContext& ctx) {
  const TensorArg theta = ctx.Input("Theta"), out = ctx.Output("Output");
  const Pixels<T> pixels{out.shape[1], out.shape[2], ctx.Attr<bool>("align_corners")};
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    ParallelFor(out.shape[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const T* m = ws.Data<const T>(theta) + n * 6;
        pixels.ForEach(n, [&](int64_t at, const T(&p)[3]) {
          for (int r = 0; r < 2; ++r)
            o[at + r] = m[3 * r] * p[0] + m[3 * r + 1] * p[1] + m[3 * r + 2] * p[2];
        });
      }
    });
  };
}

template <class T>
KernelOf<T> AffineGridGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Output@GRAD"), dtheta = ctx.Output("Theta@GRAD");
  const Pixels<T> pixels{dout.shape[1], dout.shape[2], ctx.Attr<bool>("align_corners")};
  return [=](Workspace& ws) {
    const T* g = ws.Data<const T>(dout);
    ParallelFor(dout.shape[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        double sums[6] = {};
        pixels.ForEach(n, [&](int64_t at, const T(&p)[3]) {
          for (int i = 0; i < 6; ++i) sums[i] += static_cast<double>(g[at + i / 3] * p[i % 3]);
        });
        for (int i = 0; i < 6; ++i) ws.Data<T>(dtheta)[n * 6 + i] = static_cast<T>(sums[i]);
      }
    });
  };
}

// The op is linear, so the gradient of the gradient is the op itself.
void AffineGridGradGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"OutputShape"});
  inputs.push_back({"Theta", {g.OutputGrad("Theta@GRAD")}});
  g.Set("Output@GRAD",
        g.Make("affine_grid", std::move(inputs), g.ForwardAttrs("affine_grid"), "Output"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("affine_grid")
              .Doc("Output[n, i, j] = Theta[n] (x_j, y_i, 1): the sampling positions of an affine "
                   "map, for grid_sampler. Along an axis of n elements, element i is at -1 + 2 i / "
                   "(n - 1) (-1 for n = 1) or, without align_corners, at (2 i + 1) / n - 1.")
              .Constraint("C1", "Theta must be [N, 2, 3]")
              .Constraint("C2",
                          "the output shape must be four numbers, and the size of the grid must "
                          "not be negative")
              .Input("Theta", "[N, 2, 3]")
              .OptionalInput("OutputShape", "int32 tensor {N, C, h, w}; used if the attr is empty")
              .Output("Output", "[N, h, w, 2]")
              .Attr<bool>("align_corners", true, "as for grid_sampler")
              .Attr<std::vector<int32_t>>("output_shape", {}, "{N, C, h, w}, or empty")
              .NoGradientTo({"OutputShape"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferAffineGrid)
              .Gradient([](GradientContext& g) {
                SlotList inputs = g.ForwardInputs({"OutputShape"});
                inputs.push_back({"Output@GRAD", {g.OutputGrad("Output")}});
                g.Set("Theta", g.Make("affine_grid_grad", std::move(inputs),
                                      g.ForwardAttrs("affine_grid"), "Theta@GRAD"));
              })
              .Reference(AffineGrid<float>, AffineGrid<double>));
  ops.Add(OpDef("affine_grid_grad")
              .Doc("Gradient of affine_grid: Theta@GRAD[n] = the sum of Output@GRAD[n, i, j] times "
                   "(x_j, y_i, 1).")
              .Constraint("C3", "Output@GRAD must be [N, h, w, 2]")
              .Input("Output@GRAD", "gradient of Output")
              .OptionalInput("OutputShape", "Theta of affine_grid; read by higher derivatives only")
              .Output("Theta@GRAD", "[N, 2, 3]")
              .AttrsOf("affine_grid")
              .NoGradientTo({"OutputShape"})
              .KernelTypeFrom("Output@GRAD")
              .Infer(InferAffineGridGrad)
              .Gradient(AffineGridGradGradient)
              .Reference(AffineGridGrad<float>, AffineGridGrad<double>));
}

}  // namespace coracle::affine_grid_op
