// sequence_pool: one row for each sequence of a batch.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/output_grad.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace coracle::sequence_pool_op {

VarMeta PoolOut(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() >= 1, x);
  const auto sizes = ctx.LevelSizes("X");
  if (sizes) ctx.Require("C2", sizes->size() == 1 || sizes->size() == 2, "levels", sizes->size());
  x.shape[0] = sizes ? sizes->back() : -1;
  x.lod_level = std::max(0, x.lod_level - 1);
  return x;
}

void InferPool(InferContext& ctx) {
  VarMeta out = PoolOut(ctx);
  ctx.SetOutput("Out", out);
  out.dtype = DType::kInt32;
  ctx.SetOutput("MaxIndex", out);
}

// Calls visit(j, the first row with the largest value of column j) for each column. Processes some
// columns at a time, row by row.
template <class T, class Visit>
void ForEachMaxRow(const T* x, int64_t width, int64_t begin, int64_t end, const Visit& visit) {
  constexpr int64_t kColumns = 64;
  T best[kColumns];
  std::conditional_t<sizeof(T) == 4, int32_t, int64_t> row[kColumns];
  for (int64_t first = 0; first < width; first += kColumns) {
    const int64_t columns = std::min(kColumns, width - first);
    std::copy_n(x + begin * width + first, columns, best);
    std::fill_n(row, columns, 0);
    for (int64_t r = begin + 1; r < end; ++r) {
      const T* from = x + r * width + first;
      const auto at = static_cast<std::remove_reference_t<decltype(row[0])>>(r - begin);
      for (int64_t j = 0; j < columns; ++j) {
        const bool better = Exceeds(from[j], best[j]);
        best[j] = better ? from[j] : best[j];
        row[j] = better ? at : row[j];
      }
    }
    for (int64_t j = 0; j < columns; ++j) visit(first + j, begin + int64_t{row[j]});
  }
}

// The factor of a sum over n rows.
template <class T>
T Factor(const std::string& type, int64_t n) {
  if (type == "AVERAGE") return T(1) / static_cast<T>(n);
  return type == "SQRT" ? T(1) / std::sqrt(static_cast<T>(n)) : T(1);
}

// out = factor times the sum of the rows. Processes some columns at a time, in double.
template <class T>
void SumRows(const T* x, int64_t rows, int64_t width, double factor, T* out) {
  constexpr int64_t kColumns = 64;
  for (int64_t first = 0; first < width; first += kColumns) {
    const int64_t columns = std::min(kColumns, width - first);
    double sums[kColumns] = {};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j)
        sums[j] += static_cast<double>(x[r * width + first + j]);
    }
    for (int64_t j = 0; j < columns; ++j) out[first + j] = static_cast<T>(sums[j] * factor);
  }
}

template <class T>
void PoolOne(const std::string& type, const T* x, int64_t begin, int64_t end, int64_t width,
             T* out) {
  if (type == "FIRST" || type == "LAST") {
    std::copy_n(x + (type == "FIRST" ? begin : end - 1) * width, width, out);
  } else if (type == "MAX") {
    ForEachMaxRow(x, width, begin, end,
                  [&](int64_t j, int64_t row) { out[j] = x[row * width + j]; });
  } else {
    SumRows(x + begin * width, end - begin, width, Factor<double>(type, end - begin), out);
  }
}

template <class T>
KernelOf<T> Pool(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out"), index = ctx.Output("MaxIndex");
  const SequencesArg sequences(ctx, "X", "C2", 2);
  const std::string type = ctx.Attr<std::string>("pooltype");
  const T pad = static_cast<T>(ctx.Attr<float>("pad_value"));
  const int64_t width = RowWidth(x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const LoD& lod = ws.LodOf(x);
    ws.OutputLod(out).assign(lod.begin(), lod.end() - 1);
    const T* in = ws.Data<const T>(x);
    T* pooled = ws.Data<T>(out);
    int32_t* rows = index ? ws.Data<int32_t>(index) : nullptr;
    ParallelFor(s.count(), 1 + 16384 * s.count() / (1 + x.numel), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        T* to = pooled + i * width;
        int32_t* chosen = rows ? rows + i * width : nullptr;
        if (chosen && type == "MAX" && s.length(i) > 0) {
          ForEachMaxRow(in, width, s.begin(i), s.end(i), [&](int64_t j, int64_t row) {
            to[j] = in[row * width + j];
            chosen[j] = static_cast<int32_t>(row);
          });
          continue;
        }
        if (s.length(i) > 0)
          PoolOne(type, in, s.begin(i), s.end(i), width, to);
        else
          std::fill_n(to, width, pad);
        if (chosen) std::fill_n(chosen, width, -1);
      }
    });
  };
}

void InferPoolGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C3", PoolOut(ctx));
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

template <class T>
KernelOf<T> PoolGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const SequencesArg sequences(ctx, "X", "C2", 2);
  const std::string type = ctx.Attr<std::string>("pooltype");
  const int64_t width = RowWidth(x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const T *in = ws.Data<const T>(x), *given = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    const bool sum = type == "SUM" || type == "AVERAGE" || type == "SQRT";
    ParallelFor(s.count(), 1 + 16384 * s.count() / (1 + x.numel), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const T* g = given + i * width;
        if (sum) {
          const double factor = Factor<double>(type, s.length(i));
          for (int64_t r = s.begin(i); r < s.end(i); ++r) {
            for (int64_t j = 0; j < width; ++j)
              to[r * width + j] = static_cast<T>(factor * static_cast<double>(g[j]));
          }
          continue;
        }
        std::fill(to + s.begin(i) * width, to + s.end(i) * width, T(0));
        if (s.length(i) == 0) continue;
        if (type == "MAX") {
          ForEachMaxRow(in, width, s.begin(i), s.end(i),
                        [&](int64_t j, int64_t row) { to[row * width + j] = g[j]; });
        } else {
          std::copy_n(g, width, to + (type == "FIRST" ? s.begin(i) : s.end(i) - 1) * width);
        }
      }
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_pool")
              .Doc("Out = one row for each sequence of X: the sum, the average, the sum divided by "
                   "the square root of the length, the last, the first, or the largest elements of "
                   "its rows (nan if there is one). The sequences are those of the last level; "
                   "with two levels, Out has the first one.")
              .Constraint("C1", "X must have rows")
              .Constraint("C2", "X must have LoD of one or two levels")
              .Input("X", "floating-point tensor with LoD")
              .Output("Out", "tensor of a row for each sequence")
              .IntermediateOutput(
                  "MaxIndex",
                  "int32 tensor of Out's shape: the rows that MAX chose; -1 for other types")
              .Attr<std::string>("pooltype", "AVERAGE", "what to compute")
              .OneOf({"SUM", "AVERAGE", "SQRT", "LAST", "FIRST", "MAX"})
              .Attr<float>("pad_value", 0.f, "value of the row of a sequence without rows")
              .Attr<bool>("is_test", false, "changes nothing")
              .MakesLod()
              .Rows(RowRule::kEach)
              .Infer(InferPool)
              .GradientOp({"X"})
              .Reference(Pool<float>, Pool<double>));
  ops.Add(OpDef("sequence_pool_grad")
              .Doc("Gradient of sequence_pool. Among equal largest elements, the first gets the "
                   "gradient.")
              .ConstraintsOf("sequence_pool", {"C1", "C2"})
              .Constraint("C3", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "the value in the forward op")
              .OptionalInput("MaxIndex", "not read: the rows are searched again")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("sequence_pool")
              .NoGradientTo({"MaxIndex"})
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferPoolGrad)
              .Reference(PoolGrad<float>, PoolGrad<double>));
}

}  // namespace coracle::sequence_pool_op
