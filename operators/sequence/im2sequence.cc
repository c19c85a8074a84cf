// im2sequence: the patches of each image as the rows of a sequence.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace coracle::im2sequence_op {

using Ints = std::vector<int32_t>;

template <class Context>
Ints List(const Context& ctx, const char* attr) {
  return ctx.template Attr<Ints>(attr);
}

// Number of patches along a dimension of `size` elements; negative: unknown. 0: none fits.
int64_t Patches(int64_t size, int64_t before, int64_t behind, int64_t kernel, int64_t stride) {
  if (size < 0) return -1;
  const int64_t padded = size + before + behind;
  return padded < kernel ? 0 : (padded - kernel) / stride + 1;
}

// The rows and columns of patches of a whole image.
std::array<int64_t, 2> WholeGrid(const Shape& x, const Ints& kernels, const Ints& strides,
                                 const Ints& paddings) {
  return {Patches(x[2], paddings[0], paddings[2], kernels[0], strides[0]),
          Patches(x[3], paddings[1], paddings[3], kernels[1], strides[1])};
}

void RequireImages(const InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x);
  const auto all = [&](const char* attr, size_t size, int32_t least) {
    const Ints list = List(ctx, attr);
    const bool fits = list.size() == size &&
                      std::all_of(list.begin(), list.end(), [&](int32_t v) { return v >= least; });
    ctx.Require("C2", fits, attr, list);
  };
  all("kernels", 2, 1);
  all("strides", 2, 1);
  all("paddings", 4, 0);
  all("out_stride", 2, 1);
  if (ctx.HasInput("Y")) {
    const VarMeta& y = ctx.Input("Y");
    ctx.Require("C3",
                y.dtype == x.dtype && y.shape.rank() == 2 && InferContext::Matches(y.shape[1], 2) &&
                    (y.shape[0] < 0 || x.shape[0] < 0 || y.shape[0] >= x.shape[0]),
                "Y", y, "X", x);
  }
}

Shape PatchRows(const InferContext& ctx) {
  RequireImages(ctx);
  const Shape& x = ctx.InputShape("X");
  const Ints kernels = List(ctx, "kernels");
  const int64_t width = MulDims(x[1], MulDims(kernels[0], kernels[1]));
  if (ctx.HasInput("Y")) return {-1, width};
  const auto [rows, columns] = WholeGrid(x, kernels, List(ctx, "strides"), List(ctx, "paddings"));
  return {MulDims(x[0], MulDims(rows, columns)), width};
}

// The positions of the elements of patches in the images.
class PatchGrid {
 public:
  explicit PatchGrid(const PrepareContext& ctx)
      : x_(ctx.Input("X").shape),
        y_(ctx.Input("Y")),
        kernels_(List(ctx, "kernels")),
        strides_(List(ctx, "strides")),
        paddings_(List(ctx, "paddings")),
        out_stride_(List(ctx, "out_stride")),
        sizes_(ctx, "C4") {}

  // The rows and columns of patches of image i.
  template <class T>
  std::array<int64_t, 2> Grid(Workspace& ws, int64_t i) const {
    if (!y_) return WholeGrid(x_, kernels_, strides_, paddings_);
    Shape image = x_;
    for (int k = 0; k < 2; ++k) {
      const double size = static_cast<double>(ws.Data<const T>(y_)[2 * i + k]);
      const double real = std::ceil(size / out_stride_[static_cast<size_t>(k)]);
      sizes_.Require(real >= 0 && real <= std::numeric_limits<int32_t>::max(), "Y", size);
      image[2 + k] = static_cast<int64_t>(real);
    }
    return WholeGrid(image, kernels_, strides_, paddings_);
  }
  template <class T>
  std::vector<uint64_t> Offsets(Workspace& ws) const {
    std::vector<uint64_t> offsets{0};
    int64_t patches = 0;
    for (int64_t i = 0; i < x_[0]; ++i) {
      const auto [rows, columns] = Grid<T>(ws, i);
      patches = CheckedAdd(patches, CheckedMul(rows, columns));
      offsets.push_back(static_cast<uint64_t>(patches));
    }
    CheckedMul(patches, CheckedMul(x_[1], CheckedMul(kernels_[0], kernels_[1])));
    return offsets;
  }
  // Calls visit(element of the patches, element of the images, or -1 in the padding), in the order
  // of the patches.
  template <class T, class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    int64_t to = 0;
    for (int64_t i = 0; i < x_[0]; ++i) {
      const auto [rows, columns] = Grid<T>(ws, i);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) to = Patch(i, r, c, to, visit);
      }
    }
  }

 private:
  template <class Visit>
  int64_t Patch(int64_t image, int64_t r, int64_t c, int64_t to, const Visit& visit) const {
    for (int64_t channel = 0; channel < x_[1]; ++channel) {
      const int64_t plane = (image * x_[1] + channel) * x_[2];
      for (int64_t ky = 0; ky < kernels_[0]; ++ky) {
        const int64_t y = r * strides_[0] - paddings_[0] + ky;
        for (int64_t kx = 0; kx < kernels_[1]; ++kx, ++to) {
          const int64_t x = c * strides_[1] - paddings_[1] + kx;
          const bool inside = y >= 0 && y < x_[2] && x >= 0 && x < x_[3];
          visit(to, inside ? (plane + y) * x_[3] + x : int64_t{-1});
        }
      }
    }
    return to;
  }

  Shape x_;
  TensorArg y_;
  Ints kernels_, strides_, paddings_, out_stride_;
  RunConstraint sizes_;
};

template <class T>
KernelOf<T> ToSequence(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const PatchGrid grid(ctx);
  const int64_t width = out.shape[1];
  return [=](Workspace& ws) {
    std::vector<uint64_t> offsets = grid.Offsets<T>(ws);
    const auto rows = static_cast<int64_t>(offsets.back());
    T* to = ResizeOutput(ws, out, x.dtype, {rows, width}).template data<T>();
    const T* from = ws.Data<const T>(x);
    if (width > 0)
      grid.ForEach<T>(ws, [&](int64_t k, int64_t at) { to[k] = at < 0 ? T(0) : from[at]; });
    ws.OutputLod(out) = {std::move(offsets)};
  };
}

void InferToSequenceGrad(InferContext& ctx) {
  const Shape out = PatchRows(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C5", dout.dtype == x.dtype && dout.shape.CompatibleWith(out), "Out@GRAD", dout, "X",
              x);
  ctx.SetOutput("X@GRAD", x);
}

template <class T>
KernelOf<T> ToSequenceGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const PatchGrid grid(ctx);
  const RunConstraint fits(ctx, "C5");
  return [=](Workspace& ws) {
    const auto rows = static_cast<int64_t>(grid.Offsets<T>(ws).back());
    fits.Require(rows == dout.shape[0], "Out@GRAD", dout.shape, "rows", rows);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    std::fill_n(to, dx.numel, T(0));
    if (dout.numel == 0) return;
    grid.ForEach<T>(ws, [&](int64_t k, int64_t at) {
      if (at >= 0) to[at] += from[k];
    });
  };
}

void DeclareImages(OpDef& def) {
  def.Input("X", "floating-point tensor [N, C, H, W]")
      .OptionalInput("Y",
                     "tensor [N or more, 2] of X's dtype: height and width of each image; they may "
                     "exceed those of X, and the rest is zero")
      .NoGradientTo({"Y"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("im2sequence")
              .Doc("Out = the patches of kernels of each image of X, from left to right and from "
                   "top to bottom, as the rows of a sequence; a row holds channel after channel, "
                   "zero in the padding. With Y, image i has the patches of an image of Y[i] / "
                   "out_stride (rounded up) rows and columns; elements outside of X are 0.")
              .Constraint("C1", "X must be [N, C, H, W]")
              .Constraint("C2",
                          "kernels, strides and out_stride must be two positive numbers, "
                          "paddings four that are not negative")
              .Constraint("C3", "Y must be [N or more, 2], of X's dtype")
              .Constraint("C4", "Y / out_stride must lie in [0, 2^31)")
              .Apply(DeclareImages)
              .Output("Out", "tensor [patches, C * kernel height * kernel width] with LoD")
              .Attr<Ints>("kernels", "height and width of a patch")
              .Attr<Ints>("strides", {1, 1}, "steps from patch to patch")
              .Attr<Ints>("paddings", {0, 0, 0, 0},
                          "rows and columns of zeros: up, left, down, "
                          "right")
              .Attr<Ints>("out_stride", {1, 1}, "divisors of Y")
              .RunTimeShape()
              .MakesLod()
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) {
                const Shape out = PatchRows(ctx);
                ctx.SetOutput("Out", {VarType::kLoDTensor, ctx.InputDType("X"), out, 1});
              })
              .GradientOp({"X", "Y"})
              .Reference(ToSequence<float>, ToSequence<double>));
  ops.Add(OpDef("im2sequence_grad")
              .Doc("Gradient of im2sequence: X@GRAD = the sum over the patches.")
              .ConstraintsOf("im2sequence", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareImages)
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("im2sequence")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferToSequenceGrad)
              .Reference(ToSequenceGrad<float>, ToSequenceGrad<double>));
}

}  // namespace coracle::im2sequence_op
