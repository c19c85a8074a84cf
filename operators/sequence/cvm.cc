#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::cvm_op {

constexpr int64_t kCounts = 2;  // the columns for show and click

Shape CvmOut(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &cvm = ctx.Input("CVM");
  const Shape& shape = x.shape;
  ctx.Require("C1", shape.rank() == 2 && (shape[1] < 0 || shape[1] >= kCounts), shape);
  const bool fits = cvm.shape.rank() == 2 && InferContext::Matches(cvm.shape[1], kCounts);
  ctx.Require("C2", fits && cvm.dtype == x.dtype, "CVM", cvm, "X", x);
  const bool shorter = !ctx.Attr<bool>("use_cvm") && shape[1] >= 0;
  return {shape[0], shorter ? shape[1] - kCounts : shape[1]};
}

template <class T>
KernelOf<T> Cvm(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Output("Y");
  const bool use = ctx.Attr<bool>("use_cvm");
  const int64_t width = x.shape[1], skipped = use ? 0 : kCounts;
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* out = ws.Data<T>(y);
    for (int64_t i = 0; i < x.shape[0]; ++i, in += width, out += width - skipped) {
      std::copy(in + skipped, in + width, out);
      if (!use) continue;
      out[0] = std::log(in[0] + 1);
      out[1] = std::log(in[1] + 1) - out[0];
    }
  };
}

void InferCvmGrad(InferContext& ctx) {
  const Shape out = CvmOut(ctx);
  const VarMeta &x = ctx.Input("X"), &dy = ctx.Input("Y@GRAD");
  ctx.Require("C4", dy.dtype == x.dtype && dy.shape.CompatibleWith(out), dy, out);
  ctx.SetOutput("X@GRAD", x);
}

template <class T>
KernelOf<T> CvmGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), cvm = ctx.Input("CVM"), dy = ctx.Input("Y@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const int64_t width = x.shape[1], skipped = ctx.Attr<bool>("use_cvm") ? 0 : kCounts;
  const RunConstraint fits(ctx, "C3");
  return [=](Workspace& ws) {
    const T *counts = ws.Data<const T>(cvm), *g = ws.Data<const T>(dy);
    T* to = ws.Data<T>(dx);
    const auto write = [&](int64_t row, int64_t of) {
      const T* from = g + row * (width - skipped);
      T* target = to + row * width;
      std::copy_n(counts + of * kCounts, kCounts, target);
      std::copy(from + kCounts - skipped, from + width - skipped, target + kCounts);
    };
    const LoD& lod = ws.LodOf(x);
    if (lod.empty()) {
      fits.Require(cvm.shape[0] == x.shape[0], "CVM", cvm.shape, "X", x.shape);
      for (int64_t i = 0; i < x.shape[0]; ++i) write(i, i);
      return;
    }
    const Sequences sequences(lod.back());
    fits.Require(cvm.shape[0] == sequences.count(), "CVM", cvm.shape, "sequences",
                 sequences.count());
    for (int64_t s = 0; s < sequences.count(); ++s) {
      for (int64_t i = sequences.begin(s); i < sequences.end(s); ++i) write(i, s);
    }
  };
}

void DeclareCvm(OpDef& def) {
  def.Input("X", "[n, d]; the first two columns are the counts show and click")
      .Input("CVM", "[n, 2], or a row for each sequence of X: the gradient of the counts")
      .Attr<bool>("use_cvm", true, "whether Y has the counts")
      .NoGradientTo({"CVM"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("cvm")
          .Doc("Y = X with the counts show and click in its first two columns replaced by log(show "
               "+ 1) and log(click + 1) - log(show + 1), or, without use_cvm, X without these "
               "columns. The gradient of the counts is defined as CVM.")
          .Constraint("C1", "X must be a matrix of at least two columns")
          .Constraint("C2", "CVM must be a matrix of two columns, of X's dtype")
          .Apply(DeclareCvm)
          .Output("Y", "matrix")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer([](InferContext& ctx) { ctx.SetOutput("Y", ctx.InputDType("X"), CvmOut(ctx)); })
          .GradientOp({"X", "CVM"})
          .Reference(Cvm<float>, Cvm<double>));
  ops.Add(OpDef("cvm_grad")
              .Doc("X@GRAD = CVM in the first two columns, Y@GRAD in the others.")
              .ConstraintsOf("cvm", {"C1", "C2"})
              .Constraint("C3", "CVM must have a row for each row (or sequence) of X")
              .Constraint("C4", "Y@GRAD must have Y's shape and dtype")
              .Apply(DeclareCvm)
              .Input("Y@GRAD", "gradient of Y")
              .Output("X@GRAD", "gradient of X")
              .NoGradient("the gradient of the counts is not a derivative")
              .Rows(RowRule::kSum)  // X@GRAD has the counts of the rows
              .Infer(InferCvmGrad)
              .Reference(CvmGrad<float>, CvmGrad<double>));
}

}  // namespace coracle::cvm_op
