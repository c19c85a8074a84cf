// Sequence ops fused with the ops that follow them, as used in inference programs.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rnn/gate_activation.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/sequence/sequences.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace coracle::fusion_sequence_op {

constexpr const char* kNoGradient = "it is made for inference; train with the ops that it joins";

// Whether the shape is a vector of n elements, possibly as a row.
bool IsRowOf(const Shape& shape, int64_t n) {
  return shape.CompatibleWith(Shape{n}) || shape.CompatibleWith(Shape{1, n});
}

// --- fusion_seqconv_eltadd_relu ---

void InferConv(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const VarMeta &filter = ctx.Input("Filter"), &bias = ctx.Input("Bias");
  ctx.Require("C1", x.shape.rank() == 2, "X", x);
  const int64_t length = ctx.Attr<int32_t>("contextLength");
  ctx.Require("C2", length >= 1 && ctx.Attr<int32_t>("contextStride") == 1, "contextLength", length,
              "contextStride", ctx.Attr<int32_t>("contextStride"));
  const int64_t columns = MulDims(length, x.shape[1]);
  ctx.Require("C3",
              filter.dtype == x.dtype && filter.shape.rank() == 2 &&
                  InferContext::Matches(filter.shape[0], columns) && bias.dtype == x.dtype &&
                  IsRowOf(bias.shape, filter.shape[1]),
              "X", x, "Filter", filter, "Bias", bias);
  x.shape[1] = columns;
  ctx.SetOutput("ColMat", x);
  x.shape[1] = filter.shape[1];
  ctx.SetOutput("Out", x);
}

template <class T>
Kernel Conv(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), filter = ctx.Input("Filter"), bias = ctx.Input("Bias");
  const TensorArg out = ctx.Output("Out");
  const int64_t length = ctx.Attr<int32_t>("contextLength");
  const int64_t start = ctx.Attr<int32_t>("contextStart");
  const int64_t rows = x.shape[0], depth = x.shape[1], filters = filter.shape[1];
  const int64_t width = length * depth;
  TensorArg columns = ctx.Output("ColMat");
  if (!columns) columns = ctx.Scratch(x.dtype, {rows, width});
  const Gemm<T> gemm = MakeGemm<T>({.m = rows, .n = filters, .k = width}, mode);
  const GateFunction<T> relu(GateActivation::kRelu, mode);
  const SequencesArg sequences(ctx, "X", "C4");
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    if (columns.numel == 0 && out.numel == 0) return;  // the number of empty rows may be huge
    T* col = ws.Data<T>(columns);
    std::fill_n(col, columns.numel, T(0));
    const RowCopy copy(ws.Data<const T>(x), col, static_cast<size_t>(depth) * sizeof(T));
    for (int64_t i = 0; i < s.count(); ++i) {
      for (int64_t t = s.begin(i); t < s.end(i); ++t) {
        // Copies the rows t + start to t + start + length - 1, as far as they are in the sequence.
        const int64_t from = std::max(t + start, s.begin(i));
        const int64_t to = std::min(t + start + length, s.end(i));
        copy(from, t * length + from - (t + start), to - from);
      }
    }
    T* o = ws.Data<T>(out);
    const T* b = ws.Data<const T>(bias);
    gemm(col, ws.Data<const T>(filter), o);
    ParallelFor(rows, 1 + 16384 / (1 + filters), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t m = 0; m < filters; ++m) o[t * filters + m] += b[m];
        relu(o + t * filters, filters);
      }
    });
  };
}

// --- fusion_seqexpand_concat_fc ---

void InferExpand(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const VarMeta& weight = ctx.Input("FCWeight");
  ctx.Require("C1", ctx.NumInputs("X") >= 2, "inputs", ctx.NumInputs("X"));
  int64_t columns = 0;
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& part = ctx.Input("X", i);
    ctx.Require("C2",
                part.dtype == x.dtype && part.shape.rank() == 2 &&
                    (i < 2 || InferContext::Matches(part.shape[0], ctx.InputShape("X", 1)[0])),
                "X", part);
    columns = AddDims(columns, part.shape[1]);
  }
  ctx.Require("C3",
              weight.dtype == x.dtype && weight.shape.rank() == 2 &&
                  InferContext::Matches(weight.shape[0], columns),
              "FCWeight", weight, "columns", columns);
  if (ctx.HasInput("FCBias"))
    ctx.Require(
        "C3",
        ctx.InputDType("FCBias") == x.dtype && IsRowOf(ctx.InputShape("FCBias"), weight.shape[1]),
        "FCBias", ctx.Input("FCBias"));
  x.shape[1] = weight.shape[1];
  ctx.SetOutput("Out", x);
  ctx.SetOutput("FCOut", x.dtype, {ctx.InputShape("X", 1)[0], weight.shape[1]});
}

// The summand from the other inputs is computed once for each sequence.
template <class T>
Kernel Expand(const PrepareContext& ctx, KernelMode mode) {
  const std::vector<TensorArg> x = ctx.Inputs("X");
  const TensorArg weight = ctx.Input("FCWeight"), bias = ctx.Input("FCBias");
  const TensorArg out = ctx.Output("Out");
  const int64_t count = x[1].shape[0], n = weight.shape[1];
  TensorArg shared = ctx.Output("FCOut");
  if (!shared) shared = ctx.Scratch(weight.dtype, {count, n});
  const GateFunction<T> activate(GateActivationOf(ctx.Attr<std::string>("fc_activation")), mode);
  const SequencesArg sequences(ctx, "X", "C4");
  const RunConstraint same(ctx, "C5");
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    same.Require(s.count() == count, "sequences", s.count(), "rows", count);
    if (n == 0) return;
    const T* w = ws.Data<const T>(weight);
    T *o = ws.Data<T>(out), *add = ws.Data<T>(shared);
    const T* b = bias ? ws.Data<const T>(bias) : nullptr;
    for (int64_t k = 0; k < count * n; ++k) add[k] = b ? b[k % n] : T(0);
    RunGemm({.m = x[0].shape[0], .n = n, .k = x[0].shape[1]}, mode, ws.Data<const T>(x[0]), w, o);
    int64_t row = x[0].shape[1];
    for (size_t i = 1; i < x.size(); ++i) {
      RunGemm({.m = count, .n = n, .k = x[i].shape[1], .beta = 1.0f}, mode, ws.Data<const T>(x[i]),
              w + row * n, add);
      row += x[i].shape[1];
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t t = s.begin(i); t < s.end(i); ++t) {
        for (int64_t k = 0; k < n; ++k) o[t * n + k] += add[i * n + k];
      }
    }
    activate(o, out.numel);
  };
}

// --- fusion_seqpool_concat, fusion_seqpool_cvm_concat ---

bool HasCvm(const std::string& type) { return type == "fusion_seqpool_cvm_concat"; }

void InferPool(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", ctx.Attr<int32_t>("axis") == 1, "axis", ctx.Attr<int32_t>("axis"));
  const bool cvm = HasCvm(ctx.op().type());
  if (cvm) ctx.Require("C5", ctx.Attr<bool>("use_cvm"), "use_cvm", false);
  int64_t columns = 0, count = -1;
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& x = ctx.Input("X", i);
    const bool wide = !cvm || x.shape.rank() != 2 || x.shape[1] < 0 || x.shape[1] >= 2;
    ctx.Require("C2", x.dtype == out.dtype && x.shape.rank() == 2 && wide, "X", x);
    columns = AddDims(columns, x.shape[1]);
    const auto sizes = ctx.LevelSizes("X", i);
    if (!sizes) continue;
    ctx.Require("C3", sizes->size() == 1, "levels", sizes->size());
    ctx.Require("C4", i == 0 || sizes->back() == count, "sequences", sizes->back(), "of the first",
                count);
    count = sizes->back();
  }
  out.shape = {count, columns};
  out.lod_level = 1;
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Pool(const PrepareContext& ctx) {
  const std::vector<TensorArg> x = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  std::vector<SequencesArg> sequences;
  for (size_t i = 0; i < x.size(); ++i) sequences.emplace_back(ctx, "X", "C3", 1, i);
  const std::string type = ctx.Attr<std::string>("pooltype");
  const bool cvm = HasCvm(ctx.op().type());
  const int64_t count = out.shape[0], columns = out.shape[1];
  return [=](Workspace& ws) {
    LoD& lod = ws.OutputLod(out);
    lod.assign(1, std::vector<uint64_t>(static_cast<size_t>(count) + 1));
    std::iota(lod[0].begin(), lod[0].end(), uint64_t{0});
    T* to = ws.Data<T>(out);
    std::fill_n(to, out.numel, T(0));
    for (size_t j = 0; j < x.size(); ++j) {
      const Sequences s = sequences[j](ws);
      const T* from = ws.Data<const T>(x[j]);
      const int64_t width = x[j].shape[1];
      if (width == 0) continue;
      ParallelFor(count, 1 + 16384 / (1 + width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          T* y = to + i * columns;
          for (int64_t t = s.begin(i); t < s.end(i); ++t) {
            for (int64_t k = 0; k < width; ++k) y[k] += from[t * width + k];
          }
          const T n = static_cast<T>(std::max<int64_t>(1, s.length(i)));
          const T divisor = type == "AVERAGE" ? n : type == "SQRT" ? std::sqrt(n) : T(1);
          for (int64_t k = 0; k < width; ++k) y[k] /= divisor;
          if (cvm) {
            y[0] = std::log(y[0] + 1);
            y[1] = std::log(y[1] + 1) - y[0];
          }
        }
      });
      if (to) to += width;  // null for an empty batch
    }
  };
}

// --- registration ---

template <class Make>
void AddKernels(OpDef& def, Make make) {
  def.NoGradient(kNoGradient)
      .Reference<float, double>([make]<class T>(const PrepareContext& c) {
        return make.template operator()<T>(c, KernelMode::kReference);
      })
      .Fast([make](const PrepareContext& c) -> Kernel {
        if (c.Input("X").dtype != DType::kFloat32) return {};
        return make.template operator()<float>(c, KernelMode::kAuto);
      });
}

void AddPool(OpRegistry& ops, const std::string& type) {
  const bool cvm = HasCvm(type);
  OpDef def(type);
  def.Doc(std::string("Out = for each sequence the sums, averages or sums divided by the square "
                      "root of the length of its rows in every X, side by side; zeros for a "
                      "sequence without rows.") +
          (cvm ? " In the part y of each X, y0 becomes log(y0 + 1) and y1 becomes log(y1 + 1) - "
                 "log(y0 + 1)."
               : ""))
      .Constraint("C1", "axis must be 1")
      .Constraint("C2", cvm ? "X must be matrices of one dtype, of two columns or more"
                            : "X must be matrices of one dtype")
      .Constraint("C3", "every X must have LoD of one level")
      .Constraint("C4", "all X must have the same number of sequences");
  if (cvm) def.Constraint("C5", "use_cvm must be true");
  def.VariadicInput("X", "floating-point tensors [rows, W] with LoD");
  if (cvm) def.Input("CVM", "not read");
  def.Output("Out", "tensor with a row for each sequence; each row is a sequence")
      .Attr<std::string>("pooltype", "SUM", "the function to compute")
      .OneOf({"SUM", "AVERAGE", "SQRT"})
      .Attr<int32_t>("axis", 1, "1");
  if (cvm) def.Attr<bool>("use_cvm", true, "true");
  def.MakesLod().NoGradient(kNoGradient).Infer(InferPool).Reference(Pool<float>, Pool<double>);
  ops.Add(std::move(def));
}

void AddConv(OpRegistry& ops) {
  OpDef def("fusion_seqconv_eltadd_relu");
  def.Doc("Out = max(sequence_conv(X, Filter) + Bias, 0), rows outside of a sequence being zero.")
      .Constraint("C1", "X must be a matrix")
      .Constraint("C2", "contextLength must be positive and contextStride 1")
      .Constraint("C3",
                  "Filter must be [contextLength * columns of X, M] and Bias [M] or [1, M], of X's "
                  "dtype")
      .Constraint("C4", "X must have LoD of one level")
      .Input("X", "floating-point tensor [rows, D] with LoD")
      .Input("Filter", "tensor [contextLength * D, M]")
      .Input("Bias", "tensor [M] or [1, M]")
      .Output("Out", "tensor [rows, M]")
      .IntermediateOutput("ColMat", "the contexts [rows, contextLength * D]")
      .Attr<int32_t>("contextLength", "number of rows of a context")
      .Attr<int32_t>("contextStart", 0, "first row of a context, relative to t")
      .Attr<int32_t>("contextStride", 1, "1")
      .Infer(InferConv);
  AddKernels(def, []<class T>(const PrepareContext& c, KernelMode m) { return Conv<T>(c, m); });
  ops.Add(std::move(def));
}

void AddExpand(OpRegistry& ops) {
  OpDef def("fusion_seqexpand_concat_fc");
  def.Doc(
         "Out = act([X0, X1, ...] FCWeight + FCBias), where each row of X0 is joined with the row "
         "of X1, ... for its sequence.")
      .Constraint("C1", "X must be two or more tensors")
      .Constraint(
          "C2",
          "X must be matrices of one dtype, all except the first with the same number of rows")
      .Constraint("C3", "FCWeight must be [columns of all X, D] and FCBias [D] or [1, D]")
      .Constraint("C4", "the first X must have LoD of one level")
      .Constraint("C5", "the other X must have a row for each sequence of the first")
      .VariadicInput("X",
                     "a floating-point tensor [rows, M] with LoD, then tensors with a row for each "
                     "of its sequences")
      .Input("FCWeight", "tensor [columns of all X, D]")
      .OptionalInput("FCBias", "tensor [D] or [1, D]")
      .Output("Out", "tensor [rows, D]")
      .IntermediateOutput("FCOut",
                          "the summand of a sequence's rows from FCBias and all X except the first")
      .Attr<std::string>("fc_activation", "identity", "act")
      .OneOf(GateActivationNames())
      .Infer(InferExpand);
  AddKernels(def, []<class T>(const PrepareContext& c, KernelMode m) { return Expand<T>(c, m); });
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddConv(ops);
  AddExpand(ops);
  AddPool(ops, "fusion_seqpool_concat");
  AddPool(ops, "fusion_seqpool_cvm_concat");
}

}  // namespace coracle::fusion_sequence_op
