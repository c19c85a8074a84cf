// layer_norm fused with the preceding sum, as used in inference programs.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/norm/norm_def.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace coracle::fused_layer_norm_op {

constexpr const char* kNoGradient = "it is made for inference; train with the ops that it joins";

// --- the norm of a sum that is stored in the output ---

template <class T>
class NormInPlace {
 public:
  NormInPlace(const PrepareContext& ctx, const TensorArg& out, int begin_axis, const char* scale,
              const char* bias, KernelMode mode)
      : out_(out),
        scale_(ctx.Input(scale)),
        bias_(ctx.Input(bias)),
        mean_(ctx.Output("Mean")),
        variance_(ctx.Output("Variance")),
        rows_(out.shape.Product(0, begin_axis)),
        columns_(out.shape.Product(begin_axis, out.shape.rank())),
        epsilon_(ctx.Attr<float>("epsilon")),
        fast_(mode == KernelMode::kAuto) {
    if (fast_ && !mean_) mean_ = ctx.Scratch(DTypeOf<T>(), {rows_});
    if (fast_ && !variance_) variance_ = ctx.Scratch(DTypeOf<T>(), {rows_});
    if (!fast_) statistics_ = ctx.Scratch(DType::kFloat64, {3, rows_});
  }

  void operator()(Workspace& ws) const {
    T* x = ws.Data<T>(out_);
    const T *scale = DataOrNull<const T>(ws, scale_), *bias = DataOrNull<const T>(ws, bias_);
    if constexpr (std::is_same_v<T, float>) {
      if (fast_ && out_.numel > 0)
        return RowNorm(rows_, columns_, x, scale, bias, epsilon_, x, ws.Data<T>(mean_),
                       ws.Data<T>(variance_));
    }
    if (fast_) {  // no elements
      for (const TensorArg& arg : {mean_, variance_}) std::fill_n(ws.Data<T>(arg), rows_, T(0));
      return;
    }
    const NormView view = RowView(rows_, columns_);
    double* mean = ws.Data<double>(statistics_);
    double *inv = mean + rows_, *variance = inv + rows_;
    NormMoments(view, static_cast<const T*>(x), mean, variance);
    for (int64_t r = 0; r < rows_; ++r)
      inv[r] = 1 / std::sqrt(variance[r] + static_cast<double>(epsilon_));
    NormApply(view, static_cast<const T*>(x), mean, inv, scale, bias, x);
    for (int64_t r = 0; r < rows_; ++r) {
      if (mean_) ws.Data<T>(mean_)[r] = static_cast<T>(mean[r]);
      if (variance_) ws.Data<T>(variance_)[r] = static_cast<T>(variance[r]);
    }
  }

 private:
  TensorArg out_, scale_, bias_, mean_, variance_, statistics_;
  int64_t rows_, columns_;
  float epsilon_;
  bool fast_;
};

// Checks C1 (the axis) and C2 (scale and bias).
int64_t CheckNorm(const InferContext& ctx, const Shape& out, int axis, const char* scale,
                  const char* bias, DType dtype) {
  ctx.Require("C1", axis > 0 && axis < out.rank(), "begin_norm_axis", axis, "rank", out.rank());
  const int64_t columns = ProductOfDims(out, axis, out.rank());
  for (const char* slot : {scale, bias}) {
    if (!ctx.HasInput(slot)) continue;
    const VarMeta& got = ctx.Input(slot);
    ctx.Require("C2", got.dtype == dtype && got.shape.CompatibleWith(Shape{columns}), slot, got,
                "elements of a row", columns);
  }
  return ProductOfDims(out, 0, axis);
}

// --- skip_layernorm ---

void InferSkip(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &y = ctx.Input("Y");
  ctx.Require("C3", x.dtype == y.dtype && x.shape.CompatibleWith(y.shape), "X", x, "Y", y);
  CheckNorm(ctx, x.shape, ctx.Attr<int32_t>("begin_norm_axis"), "Scale", "Bias", x.dtype);
  ctx.SetOutput("Out", x);
}

template <class T>
Kernel Skip(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const NormInPlace<T> norm(ctx, out, ctx.Attr<int32_t>("begin_norm_axis"), "Scale", "Bias", mode);
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, 16384, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) o[k] = a[k] + b[k];
    });
    norm(ws);
  };
}

// --- fused_embedding_eltwise_layernorm ---

void InferEmbedding(InferContext& ctx) {
  const VarMeta& first = ctx.Input("Ids");
  VarMeta table = ctx.Input("Embs");
  ctx.Require("C3", ctx.NumInputs("Ids") == ctx.NumInputs("Embs"), "Ids", ctx.NumInputs("Ids"),
              "Embs", ctx.NumInputs("Embs"));
  for (size_t i = 0; i < ctx.NumInputs("Ids"); ++i) {
    const VarMeta &ids = ctx.Input("Ids", i), &emb = ctx.Input("Embs", i);
    const int rank = ids.shape.rank();
    ctx.Require("C4",
                IsIndexType(ids.dtype) && (rank == 2 || rank == 3) &&
                    (rank == 2 || InferContext::Matches(ids.shape[2], 1)) &&
                    InferContext::Matches(ids.shape[0], first.shape[0]) &&
                    InferContext::Matches(ids.shape[1], first.shape[1]),
                "Ids", ids);
    ctx.Require("C5",
                emb.dtype == table.dtype && emb.shape.rank() == 2 &&
                    InferContext::Matches(emb.shape[1], table.shape[1]),
                "Embs", emb);
  }
  table.shape = {first.shape[0], first.shape[1], table.shape[1]};
  CheckNorm(ctx, table.shape, 2, "Scale", "Bias", table.dtype);
  ctx.SetOutput("Out", table);
}

template <class T>
Kernel Embedding(const PrepareContext& ctx, KernelMode mode) {
  const std::vector<TensorArg> ids = ctx.Inputs("Ids"), tables = ctx.Inputs("Embs");
  const TensorArg out = ctx.Output("Out");
  const NormInPlace<T> norm(ctx, out, 2, "Scale", "Bias", mode);
  const int64_t width = out.shape[2], rows = out.shape[0] * out.shape[1];
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    std::fill_n(o, out.numel, T(0));
    for (size_t i = 0; i < ids.size(); ++i) {
      const IndexReader id(ws, ids[i]);
      const T* table = ws.Data<const T>(tables[i]);
      const int64_t limit = tables[i].shape[0];
      ParallelFor(rows, 1 + 16384 / (1 + width), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          if (id[r] < 0 || id[r] >= limit) ThrowIndexRange(name, "Ids", r, id[r], limit);
          const T* from = table + id[r] * width;
          for (int64_t k = 0; k < width; ++k) o[r * width + k] += from[k];
        }
      });
    }
    norm(ws);
  };
}

// --- fused_fc_elementwise_layernorm ---

void InferFc(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &w = ctx.Input("W"), &y = ctx.Input("Y");
  const int split = ctx.Attr<int32_t>("x_num_col_dims");
  ctx.Require("C3", split > 0 && split < x.shape.rank(), "x_num_col_dims", split, "X", x);
  ctx.Require("C4",
              w.dtype == x.dtype && w.shape.rank() == 2 &&
                  InferContext::Matches(w.shape[0], ProductOfDims(x.shape, split, x.shape.rank())),
              "W", w, "X", x);
  if (ctx.HasInput("Bias0")) {
    const VarMeta& bias = ctx.Input("Bias0");
    ctx.Require("C4", bias.dtype == x.dtype && bias.shape.CompatibleWith(Shape{w.shape[1]}),
                "Bias0", bias);
  }
  std::vector<int64_t> dims = x.shape.ToVector();
  dims.resize(static_cast<size_t>(split));
  dims.push_back(w.shape[1]);
  VarMeta out = x;
  out.shape = ToShape(ctx, "C4", dims);
  ctx.Require("C5", y.dtype == x.dtype && y.shape.CompatibleWith(out.shape), "Y", y, "wanted",
              out.shape);
  const int64_t rows =
      CheckNorm(ctx, out.shape, ctx.Attr<int32_t>("begin_norm_axis"), "Scale", "Bias1", x.dtype);
  ctx.SetOutput("Out", out);
  ctx.SetOutput("Mean", x.dtype, {rows});
  ctx.SetOutput("Variance", x.dtype, {rows});
}

template <class T>
Kernel Fc(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), w = ctx.Input("W"), y = ctx.Input("Y");
  const TensorArg bias = ctx.Input("Bias0"), out = ctx.Output("Out");
  const int split = ctx.Attr<int32_t>("x_num_col_dims");
  const int64_t rows = x.shape.Product(0, split), n = w.shape[1];
  const bool relu = ctx.Attr<std::string>("activation_type") == "relu";
  const Gemm<T> gemm = MakeGemm<T>({.m = rows, .n = n, .k = w.shape[0]}, mode);
  const NormInPlace<T> norm(ctx, out, ctx.Attr<int32_t>("begin_norm_axis"), "Scale", "Bias1", mode);
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    gemm(ws.Data<const T>(x), ws.Data<const T>(w), o);
    const T *b = DataOrNull<const T>(ws, bias), *added = ws.Data<const T>(y);
    ParallelFor(rows, 1 + 16384 / (1 + n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t k = 0; k < n; ++k) {
          const T z = o[r * n + k] + (b ? b[k] : T(0));
          o[r * n + k] = (relu && z < 0 ? T(0) : z) + added[r * n + k];
        }
      }
    });
    norm(ws);
  };
}

// --- registration ---

template <class Make>
void AddTo(OpRegistry& ops, OpDef& def, const char* type_slot, Make make) {
  def.NoGradient(kNoGradient)
      .KernelTypeFrom(type_slot)
      .Reference<float, double>([make]<class T>(const PrepareContext& c) {
        return make.template operator()<T>(c, KernelMode::kReference);
      })
      .Fast([make, type_slot](const PrepareContext& c) -> Kernel {
        if (c.Input(type_slot).dtype != DType::kFloat32) return {};
        return make.template operator()<float>(c, KernelMode::kAuto);
      });
  ops.Add(std::move(def));
}

constexpr const char* kAxis = "begin_norm_axis must lie in (0, rank of Out)";

void DeclareNorm(OpDef& def, const char* bias) {
  def.Constraint("C2",
                 "scale and bias must be vectors with an element for each element of a row, of the "
                 "input's dtype")
      .OptionalInput("Scale", "vector, an element for each element of a row; 1 if absent")
      .OptionalInput(bias,
                     "vector, an element for each element of a row, added at the end; 0 if absent");
}

void AddSkip(OpRegistry& ops) {
  OpDef def("skip_layernorm");
  def.Doc("Out = layer_norm(X + Y) over the dimensions from begin_norm_axis on.")
      .Input("X", "floating-point tensor of rank 2 or more")
      .Input("Y", "tensor like X")
      .Constraint("C1", kAxis)
      .Apply(DeclareNorm, "Bias")
      .Constraint("C3", "X and Y must have one shape and dtype")
      .Output("Out", "tensor like X")
      .Attr<float>("epsilon", "added to the variance")
      .Range(0, std::nullopt)
      .Attr<int32_t>("begin_norm_axis", "first dim of a row")
      .Infer(InferSkip);
  AddTo(ops, def, "X",
        []<class T>(const PrepareContext& c, KernelMode m) { return Skip<T>(c, m); });
}

void AddEmbedding(OpRegistry& ops) {
  OpDef def("fused_embedding_eltwise_layernorm");
  def.Doc(
         "Out = layer_norm of the sum of the rows Embs_k[Ids_k] over the last dimension. An id "
         "outside of the rows is an error.")
      .VariadicInput("Ids", "int32 or int64 tensors [B, S] or [B, S, 1]")
      .VariadicInput("Embs", "floating-point tensors [V, H], one for each of Ids")
      .Apply(DeclareNorm, "Bias")
      .Constraint("C3", "there must be one Embs for each Ids")
      .Constraint("C4", "Ids must be int32 or int64 [B, S] or [B, S, 1], all of one B and S")
      .Constraint("C5", "Embs must be matrices of one dtype and number of columns")
      .Output("Out", "tensor [B, S, H]")
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0, std::nullopt)
      .Infer(InferEmbedding);
  AddTo(ops, def, "Embs",
        []<class T>(const PrepareContext& c, KernelMode m) { return Embedding<T>(c, m); });
}

void AddFc(OpRegistry& ops) {
  OpDef def("fused_fc_elementwise_layernorm");
  def.Doc(
         "Out = layer_norm(act(X W + Bias0) + Y) over the dimensions from begin_norm_axis on, "
         "times Scale plus Bias1. X is taken as a matrix whose columns are the dimensions from "
         "x_num_col_dims on.")
      .Input("X", "floating-point tensor of rank 2 or more")
      .Input("W", "tensor [columns of X, N]")
      .OptionalInput("Bias0", "vector [N]; 0 when absent")
      .Input("Y", "tensor of Out's shape")
      .Constraint("C1", kAxis)
      .Apply(DeclareNorm, "Bias1")
      .Constraint("C3", "x_num_col_dims must lie in (0, rank of X)")
      .Constraint("C4", "W must be [columns of X, N] and Bias0 [N], of X's dtype")
      .Constraint("C5", "Y must have Out's shape and X's dtype")
      .Output("Out", "tensor of X's first x_num_col_dims dimensions and N")
      .OptionalOutput("Mean", "mean of each row")
      .OptionalOutput("Variance", "biased variance of each row")
      .Attr<int32_t>("x_num_col_dims", 1, "number of leading dims of X that become its rows")
      .Attr<std::string>("activation_type", "", "act: relu or none")
      .OneOf({"", "relu"})
      .Attr<float>("epsilon", 1e-5f, "added to the variance")
      .Range(0, std::nullopt)
      .Attr<int32_t>("begin_norm_axis", 1, "first dim of Out that belongs to a row")
      .Infer(InferFc);
  AddTo(ops, def, "X", []<class T>(const PrepareContext& c, KernelMode m) { return Fc<T>(c, m); });
}

void Register(OpRegistry& ops) {
  AddSkip(ops);
  AddEmbedding(ops);
  AddFc(ops);
}

}  // namespace coracle::fused_layer_norm_op
