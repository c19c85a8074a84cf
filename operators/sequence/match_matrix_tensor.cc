// match_matrix_tensor: match scores for each pair of words of two texts.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::match_matrix_tensor_op {

void RequireMatch(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y"), &w = ctx.Input("W");
  const bool rows = x.shape.rank() == 2 && y.shape.rank() == 2 && x.dtype == y.dtype &&
                    InferContext::Matches(x.shape[1], y.shape[1]);
  ctx.Require("C1", rows, "X", x, "Y", y);
  const int64_t kinds = ctx.Attr<int32_t>("dim_t");
  ctx.Require("C2", w.dtype == x.dtype && w.shape.CompatibleWith({x.shape[1], kinds, x.shape[1]}),
              "W", w, "X", x, "dim_t", kinds);
}

int64_t TmpSize(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  return MulDims(MulDims(x[0], ctx.Attr<int32_t>("dim_t")), x[1]);
}

void InferMatch(InferContext& ctx) {
  RequireMatch(ctx);
  const DType dtype = ctx.InputDType("X");
  ctx.SetOutput("Out", {VarType::kLoDTensor, dtype, {-1, 1}, 1});
  ctx.SetOutput("Tmp", dtype, {TmpSize(ctx), 1});
}

// The samples of a run: pairs of sequences.
class Samples {
 public:
  explicit Samples(const PrepareContext& ctx)
      : x_(ctx, "X", "C3"),
        y_(ctx, "Y", "C3"),
        same_count_(ctx, "C4"),
        kinds_(ctx.Attr<int32_t>("dim_t")) {}
  // The first element of each sample.
  std::vector<uint64_t> Offsets(Workspace& ws) const {
    const Sequences x = x_(ws), y = y_(ws);
    same_count_.Require(x.count() == y.count(), "X", x.count(), "Y", y.count());
    std::vector<uint64_t> offsets{0};
    int64_t at = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      at = CheckedAdd(at, CheckedMul(kinds_, x.length(i), y.length(i)));
      offsets.push_back(static_cast<uint64_t>(at));
    }
    return offsets;
  }
  // Calls visit(element of Out, row of X, kind, row of Y) for each element, in order.
  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const Sequences x = x_(ws), y = y_(ws);
    int64_t at = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      CheckTimeLimit("matching texts");
      for (int64_t t = 0; t < kinds_; ++t) {
        for (int64_t p = x.begin(i); p < x.end(i); ++p) {
          for (int64_t q = y.begin(i); q < y.end(i); ++q) visit(at++, p, t, q);
        }
      }
    }
  }

 private:
  SequencesArg x_, y_;
  RunConstraint same_count_;
  int64_t kinds_;
};

template <class T>
Gemm<T> Projection(const PrepareContext& ctx) {
  const Shape &x = ctx.Input("X").shape, &w = ctx.Input("W").shape;
  return MakeGemm<T>({.m = x[0], .n = w[1] * w[2], .k = x[1]}, KernelMode::kReference);
}

template <class T>
KernelOf<T> Match(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), w = ctx.Input("W");
  const TensorArg out = ctx.Output("Out"), tmp = ctx.Output("Tmp");
  const Samples samples(ctx);
  const Gemm<T> project = Projection<T>(ctx);
  const int64_t depth = x.shape[1], kinds = w.shape[1];
  const TensorArg room = tmp ? tmp : ctx.Scratch(x.dtype, {x.shape[0], kinds, depth});
  return [=](Workspace& ws) {
    std::vector<uint64_t> offsets = samples.Offsets(ws);
    Tensor& result = ResizeOutput(ws, out, x.dtype, {static_cast<int64_t>(offsets.back()), 1});
    T *o = result.data<T>(), *projected = ws.Data<T>(room);
    const T* other = ws.Data<const T>(y);
    project(ws.Data<const T>(x), ws.Data<const T>(w), projected);
    samples.ForEach(ws, [&](int64_t at, int64_t p, int64_t t, int64_t q) {
      const T *a = projected + (p * kinds + t) * depth, *b = other + q * depth;
      T sum = 0;
      for (int64_t d = 0; d < depth; ++d) sum += a[d] * b[d];
      o[at] = sum;
    });
    result.lod() = {std::move(offsets)};
  };
}

void InferMatchGrad(InferContext& ctx) {
  RequireMatch(ctx);
  const VarMeta& dout = ctx.Input("Out@GRAD");
  ctx.Require("C5", dout.dtype == ctx.InputDType("X") && dout.shape.CompatibleWith({-1, 1}),
              "Out@GRAD", dout);
  for (const char* slot : {"X", "Y", "W"})
    ctx.SetOutput(std::string(slot) + "@GRAD", ctx.Input(slot));
}

template <class T>
KernelOf<T> MatchGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), w = ctx.Input("W");
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const TensorArg dy = ctx.Output("Y@GRAD"), dw = ctx.Output("W@GRAD");
  const Samples samples(ctx);
  const RunConstraint fits(ctx, "C5");
  const int64_t rows = x.shape[0], depth = x.shape[1], kinds = w.shape[1];
  const int64_t width = kinds * depth;
  const Gemm<T> project = Projection<T>(ctx);
  const Gemm<T> to_x =
      MakeGemm<T>({.m = rows, .n = depth, .k = width, .transpose_b = true}, KernelMode::kReference);
  const Gemm<T> to_w =
      MakeGemm<T>({.m = depth, .n = width, .k = rows, .transpose_a = true}, KernelMode::kReference);
  const TensorArg room = ctx.Scratch(x.dtype, {2, rows, kinds, depth});
  return [=](Workspace& ws) {
    const auto size = static_cast<int64_t>(samples.Offsets(ws).back());
    fits.Require(dout.shape[0] == size, "Out@GRAD", dout.shape, "elements of Out", size);
    const T *in = ws.Data<const T>(x), *other = ws.Data<const T>(y);
    const T* weights = ws.Data<const T>(w);
    const T* g = ws.Data<const T>(dout);
    T *projected = ws.Data<T>(room), *dprojected = projected + rows * width;
    project(in, weights, projected);
    std::fill_n(dprojected, rows * width, T(0));
    T* dother = dy ? ws.Data<T>(dy) : nullptr;
    if (dother) std::fill_n(dother, dy.numel, T(0));
    samples.ForEach(ws, [&](int64_t at, int64_t p, int64_t t, int64_t q) {
      const int64_t a = (p * kinds + t) * depth, b = q * depth;
      for (int64_t d = 0; d < depth; ++d) dprojected[a + d] += g[at] * other[b + d];
      for (int64_t d = 0; dother && d < depth; ++d) dother[b + d] += g[at] * projected[a + d];
    });
    if (dx) to_x(dprojected, weights, ws.Data<T>(dx));
    if (dw) to_w(in, dprojected, ws.Data<T>(dw));
  };
}

void DeclareMatch(OpDef& def) {
  def.Input("X", "floating-point tensor [rows, D] with LoD")
      .Input("Y", "tensor [rows, D] of X's dtype with LoD")
      .Input("W", "tensor [D, dim_t, D] of X's dtype");
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("match_matrix_tensor")
              .Doc("Sample i of Out, flattened, is [dim_t, rows p of sequence i of X, rows q of "
                   "sequence i of Y], with the element X[p] W[:, t, :] Y[q].")
              .Constraint("C1", "X and Y must be matrices of one dtype and width")
              .Constraint("C2", "W must be [width, dim_t, width], of X's dtype")
              .Constraint("C3", "X and Y must have LoD of one level")
              .Constraint("C4", "X and Y must have the same number of sequences")
              .Apply(DeclareMatch)
              .Output("Out", "tensor [elements, 1] with LoD: the elements of each sample")
              .IntermediateOutput("Tmp", "X W, as [elements, 1]")
              .Attr<int32_t>("dim_t", 1, "number of matrices in W")
              .Range(1, std::nullopt)
              .RunTimeShape()
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"W"})
              .Infer(InferMatch)
              .GradientOp({"X", "Y", "W"})
              .Reference(Match<float>, Match<double>));
  ops.Add(OpDef("match_matrix_tensor_grad")
              .Doc("Gradients of match_matrix_tensor.")
              .ConstraintsOf("match_matrix_tensor", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareMatch)
              .OptionalInput("Tmp", "not read: it is recomputed")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Y@GRAD", "gradient of Y")
              .OptionalOutput("W@GRAD", "gradient of W")
              .AttrsOf("match_matrix_tensor")
              .NoGradientTo({"Tmp"})
              .NoGradient("second derivatives of match_matrix_tensor are not provided")
              .Infer(InferMatchGrad)
              .Reference(MatchGrad<float>, MatchGrad<double>));
}

}  // namespace coracle::match_matrix_tensor_op
