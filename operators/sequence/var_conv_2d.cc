// var_conv_2d: convolution of images of different sizes.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::var_conv_2d_op {

void RequireVarConv(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &w = ctx.Input("W");
  const Shape& shape = x.shape;
  ctx.Require("C1", shape.rank() == 1 || (shape.rank() == 2 && InferContext::Matches(shape[1], 1)),
              x);
  const int64_t kernel =
      MulDims(MulDims(ctx.Attr<int32_t>("InputChannel"), ctx.Attr<int32_t>("KernelH")),
              ctx.Attr<int32_t>("KernelW"));
  ctx.Require(
      "C2",
      w.dtype == x.dtype && w.shape.CompatibleWith({ctx.Attr<int32_t>("OutputChannel"), kernel}),
      "W", w, "X", x);
}

void InferVarConv(InferContext& ctx) {
  RequireVarConv(ctx);
  const DType dtype = ctx.InputDType("X");
  ctx.SetOutput("Out", {VarType::kLoDTensor, dtype, {-1, 1}, 1});
  ctx.SetOutput("Col", {VarType::kLoDTensor, dtype, {-1, 1}, 1});
}

// One image, with its numbers of rows and columns per channel.
struct Image {
  int64_t x, out, col;  // first elements
  int64_t rows, columns, out_rows, out_columns;
  int64_t positions() const { return out_rows * out_columns; }
};

class Images {
 public:
  explicit Images(const PrepareContext& ctx)
      : numel_(ctx.Input("X").numel),
        rows_(ctx, "ROW", "C3"),
        columns_(ctx, "COLUMN", "C3"),
        fits_(ctx, "C4"),
        in_(ctx.Attr<int32_t>("InputChannel")),
        out_(ctx.Attr<int32_t>("OutputChannel")),
        kh_(ctx.Attr<int32_t>("KernelH")),
        kw_(ctx.Attr<int32_t>("KernelW")),
        sh_(ctx.Attr<int32_t>("StrideH")),
        sw_(ctx.Attr<int32_t>("StrideW")) {}

  int64_t outputs() const { return out_; }
  int64_t taps() const { return in_ * kh_ * kw_; }

  // Calls visit(image) for each image of a run. Returns an empty image that begins at the end of
  // the last one.
  template <class Visit>
  Image ForEach(Workspace& ws, const Visit& visit) const {
    const Sequences rows = rows_(ws), columns = columns_(ws);
    fits_.Require(rows.count() == columns.count(), "ROW", rows.count(), "COLUMN", columns.count());
    Image next{};
    for (int64_t i = 0; i < rows.count(); ++i) {
      next.rows = rows.length(i);
      next.columns = columns.length(i);
      next.out_rows = next.rows == 0 ? 0 : (next.rows - 1) / sh_ + 1;
      next.out_columns = next.columns == 0 ? 0 : (next.columns - 1) / sw_ + 1;
      visit(next);
      const int64_t positions = CheckedMul(next.out_rows, next.out_columns);
      next.x = CheckedAdd(next.x, CheckedMul(in_, next.rows, next.columns));
      next.out = CheckedAdd(next.out, CheckedMul(out_, positions));
      next.col = CheckedAdd(next.col, CheckedMul(CheckedMul(in_, kh_, kw_), positions));
    }
    return {next.x, next.out, next.col, 0, 0, 0, 0};
  }
  // The end of all images, which must be the end of X, and the largest part of Col.
  Image Sizes(Workspace& ws, int64_t* largest) const {
    *largest = 0;
    int64_t before = 0;
    const Image end = ForEach(ws, [&](const Image& image) {
      *largest = std::max(*largest, image.col - before);
      before = image.col;
    });
    fits_.Require(end.x == numel_, "X", numel_, "elements of the images", end.x);
    *largest = std::max(*largest, end.col - before);
    return end;
  }
  // Calls visit(element of Col of the image, element of X, or -1 outside of the image).
  template <class Visit>
  void ForEachTap(const Image& image, const Visit& visit) const {
    CheckTimeLimit("convolving images");
    int64_t at = 0;
    for (int64_t tap = 0; tap < taps(); ++tap) {
      const int64_t c = tap / (kh_ * kw_), u = tap / kw_ % kh_, v = tap % kw_;
      for (int64_t i = 0; i < image.out_rows; ++i) {
        const int64_t row = i * sh_ + u - kh_ / 2;
        for (int64_t j = 0; j < image.out_columns; ++j, ++at) {
          const int64_t column = j * sw_ + v - kw_ / 2;
          const bool inside = row >= 0 && row < image.rows && column >= 0 && column < image.columns;
          visit(at, inside ? image.x + (c * image.rows + row) * image.columns + column : -1);
        }
      }
    }
  }

 private:
  int64_t numel_;
  SequencesArg rows_, columns_;
  RunConstraint fits_;
  int64_t in_, out_, kh_, kw_, sh_, sw_;
};

// The elements of X that each tap reads: Col of an image, [taps, positions].
template <class T>
void Unfold(const Images& all, const Image& image, const T* x, T* col) {
  all.ForEachTap(image, [&](int64_t at, int64_t from) { col[at] = from < 0 ? T(0) : x[from]; });
}

// Out = W Col for each image.
template <class T>
KernelOf<T> VarConv(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), w = ctx.Input("W");
  const TensorArg out = ctx.Output("Out"), col = ctx.Output("Col");
  const Images all(ctx);
  const TensorArg memory = ctx.ScratchArray();
  return [=](Workspace& ws) {
    int64_t largest = 0;
    const Image end = all.Sizes(ws, &largest);
    const T *in = ws.Data<const T>(x), *weights = ws.Data<const T>(w);
    Tensor& unfolded = col ? ResizeOutput(ws, col, x.dtype, {end.col, 1})
                           : std::get<TensorArray>(ws.ValueOf(memory)).Write(0, x.dtype, {largest});
    Tensor& result = ResizeOutput(ws, out, x.dtype, {end.out, 1});
    LoD lod{{}}, col_lod{{}};
    const auto add = [&](const Image& image) {
      lod[0].push_back(static_cast<uint64_t>(image.out));
      col_lod[0].push_back(static_cast<uint64_t>(image.col));
    };
    all.ForEach(ws, [&](const Image& image) {
      add(image);
      T* taps = unfolded.data<T>() + (col ? image.col : 0);
      Unfold(all, image, in, taps);
      if (image.positions() > 0)
        RunGemm<T>({.m = all.outputs(), .n = image.positions(), .k = all.taps()}, mode, weights,
                   taps, result.data<T>() + image.out);
    });
    add(end);
    result.lod() = std::move(lod);
    if (col) unfolded.lod() = std::move(col_lod);
  };
}

void InferVarConvGrad(InferContext& ctx) {
  RequireVarConv(ctx);
  const VarMeta& dout = ctx.Input("Out@GRAD");
  ctx.Require("C5", dout.dtype == ctx.InputDType("X") && dout.shape.CompatibleWith({-1, 1}),
              "Out@GRAD", dout);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("W@GRAD", ctx.Input("W"));
}

// dW = the sum of dOut Col^T, dCol = W^T dOut.
template <class T>
KernelOf<T> VarConvGrad(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), w = ctx.Input("W"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dw = ctx.Output("W@GRAD");
  const Images all(ctx);
  const RunConstraint fits(ctx, "C5");
  const TensorArg memory = ctx.ScratchArray();
  return [=](Workspace& ws) {
    int64_t largest = 0;
    const Image end = all.Sizes(ws, &largest);
    fits.Require(dout.shape[0] == end.out, "Out@GRAD", dout.shape, "elements of Out", end.out);
    const T *in = ws.Data<const T>(x), *weights = ws.Data<const T>(w);
    const T* given = ws.Data<const T>(dout);
    T* to_x = dx ? ws.Data<T>(dx) : nullptr;
    T* to_w = dw ? ws.Data<T>(dw) : nullptr;
    if (to_x) std::fill_n(to_x, dx.numel, T(0));
    if (to_w) std::fill_n(to_w, dw.numel, T(0));
    auto& scratch = std::get<TensorArray>(ws.ValueOf(memory));
    T* taps = scratch.Write(0, x.dtype, {largest}).template data<T>();
    all.ForEach(ws, [&](const Image& image) {
      const int64_t positions = image.positions(), outputs = all.outputs();
      if (positions == 0) return;
      const T* g = given + image.out;
      if (to_w) {
        Unfold(all, image, in, taps);
        RunGemm<T>({.m = outputs, .n = all.taps(), .k = positions, .transpose_b = true, .beta = 1},
                   mode, g, taps, to_w);
      }
      if (!to_x) return;
      RunGemm<T>({.m = all.taps(), .n = positions, .k = outputs, .transpose_a = true}, mode,
                 weights, g, taps);
      all.ForEachTap(image, [&](int64_t at, int64_t from) {
        if (from >= 0) to_x[from] += taps[at];
      });
    });
  };
}

void DeclareVarConv(OpDef& def) {
  def.Input("X", "floating-point tensor [elements, 1]: the images, one after the other")
      .Input("ROW", "tensor with LoD: the numbers of rows; its elements are not read")
      .Input("COLUMN", "tensor with LoD: the numbers of columns; its elements are not read")
      .Input("W", "tensor [OutputChannel, InputChannel * KernelH * KernelW] of X's dtype")
      .NoGradientTo({"ROW", "COLUMN"});
}

void DeclareSizes(OpDef& def) {
  for (const char* name :
       {"InputChannel", "OutputChannel", "StrideH", "StrideW", "KernelH", "KernelW"})
    def.Attr<int32_t>(name, 1, "a size of the convolution").Range(1, 1 << 20);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("var_conv_2d")
              .Doc("Sample i of X is an image [InputChannel, rows, columns]; the numbers of rows "
                   "and columns are the lengths of sequence i of ROW and of COLUMN. Sample i of "
                   "Out, [OutputChannel, (rows - 1) / StrideH + 1, (columns - 1) / StrideW + 1], "
                   "is its convolution with W, centred on rows that are multiples of StrideH and "
                   "columns that are multiples of StrideW, with zeros around the image.")
              .Constraint("C1", "X must have one column")
              .Constraint("C2",
                          "W must be [OutputChannel, InputChannel * KernelH * KernelW], of "
                          "X's dtype")
              .Constraint("C3", "ROW and COLUMN must have LoD of one level")
              .Constraint("C4",
                          "ROW and COLUMN must have the same number of sequences, and X the "
                          "elements of their images")
              .Apply(DeclareVarConv)
              .Output("Out", "tensor [elements, 1] with LoD: the elements of each sample")
              .IntermediateOutput("Col",
                                  "tensor [elements, 1] with LoD: for each tap of W and each "
                                  "position of a sample, the element of X that the tap reads")
              .Apply(DeclareSizes)
              .RunTimeShape()
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"W"})
              .Infer(InferVarConv)
              .GradientOp({"X", "W", "ROW", "COLUMN"})
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return VarConv<T>(c, KernelMode::kReference);
              })
              .Fast([](const PrepareContext& c) -> Kernel {
                if (c.Input("X").dtype != DType::kFloat32) return {};
                return VarConv<float>(c, KernelMode::kAuto);
              }));
  ops.Add(OpDef("var_conv_2d_grad")
              .Doc("Gradients of var_conv_2d.")
              .ConstraintsOf("var_conv_2d", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareVarConv)
              .OptionalInput("Col", "not read")
              .OptionalInput("Out", "not read")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("W@GRAD", "gradient of W")
              .AttrsOf("var_conv_2d")
              .NoGradientTo({"Col", "Out"})
              .NoGradient("second derivatives of var_conv_2d are not provided")
              .Infer(InferVarConvGrad)
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return VarConvGrad<T>(c, KernelMode::kReference);
              })
              .Fast([](const PrepareContext& c) -> Kernel {
                if (c.Input("X").dtype != DType::kFloat32) return {};
                return VarConvGrad<float>(c, KernelMode::kAuto);
              }));
}

}  // namespace coracle::var_conv_2d_op
