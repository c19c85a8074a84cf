#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/control/add_value.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/lane_kernel.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/operators.h>

#include <algorithm>

namespace coracle::sum_op {

bool IsArray(const VarMeta& meta) { return meta.type == VarType::kLoDTensorArray; }

void InferSumOfArrays(InferContext& ctx) {
  VarMeta meta = ctx.Input("X", 0);
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& other = ctx.Input("X", i);
    ctx.Require("C3", IsArray(other), other);
    if (ctx.exact() && !(other.shape == meta.shape)) meta.shape = Shape{-1};
  }
  ctx.SetOutput("Out", meta);
}

void InferSum(InferContext& ctx) {
  VarMeta meta = ctx.Input("X", 0);
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    if (IsArray(ctx.Input("X", i))) return InferSumOfArrays(ctx);
  }
  for (size_t i = 1; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& other = ctx.Input("X", i);
    if (other.type == VarType::kLoDTensor) meta.type = VarType::kLoDTensor;
    ctx.Require("C1", meta.shape.CompatibleWith(other.shape), meta.shape, other.shape);
    ctx.Require("C2", meta.dtype == other.dtype, meta.dtype, other.dtype);
    for (int d = 0; d < meta.shape.rank(); ++d) {
      meta.shape[d] = std::max(meta.shape[d], other.shape[d]);
    }
  }
  ctx.SetOutput("Out", meta);
}

// Concatenates all stored rows, one X after the other. The result is built separately, since Out
// may be one of X.
Kernel ConcatenateRows(const PrepareContext& ctx) {
  std::vector<RowsInput> xs;
  const RowsOutput out(ctx, "Out");
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i)
    xs.emplace_back(ctx, "X", i, ctx.Output("Out").shape);
  return [=](Workspace& ws) {
    SelectedRows& to = out.Of(ws);
    int64_t count = 0, height = 0;
    bool in_place = false;
    Shape shape;
    for (const RowsInput& x : xs) {
      const RowsView rows = x(ws);
      count += rows.count();
      height = std::max(height, rows.height);
      if (count > rows.count() && rows.width != shape.Product(1, shape.rank()))
        ThrowInvalid("sum: the rows of X differ in length");
      shape = rows.value->shape();
      in_place |= rows.value == &to.value;
    }
    SelectedRows aside;
    SelectedRows& made = in_place ? aside : to;
    shape[0] = count;
    made.value.Resize(out.dtype(), shape);
    made.rows.resize(static_cast<size_t>(count));
    auto row = made.rows.begin();
    char* at = static_cast<char*>(made.value.raw());
    for (const RowsInput& x : xs) {
      const RowsView rows = x(ws);
      row = std::copy(rows.rows.begin(), rows.rows.end(), row);
      CopyBytes(rows.value->raw(), at, static_cast<int64_t>(rows.value->nbytes()));
      at += rows.value->nbytes();
    }
    made.height = height;
    if (in_place) to = std::move(aside);
  };
}

// The dense X first, then the rows of the sparse ones, each in order.
template <class T>
Kernel SumOfDenseAndRows(const PrepareContext& ctx) {
  std::vector<TensorArg> dense;
  std::vector<RowsInput> sparse;
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const TensorArg x = ctx.Input("X", i);
    if (IsSparse(x))
      sparse.emplace_back(ctx, "X", i, ctx.Output("Out").shape);
    else
      dense.push_back(x);
  }
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    ParallelFor(out.numel, 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T sum = ws.Data<const T>(dense[0])[i];
        for (size_t k = 1; k < dense.size(); ++k) sum = WrapAdd(sum, ws.Data<const T>(dense[k])[i]);
        o[i] = sum;
      }
    });
    for (const RowsInput& rows : sparse) AddRows(rows(ws), o);
  };
}

Kernel SumOfArrays(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    VarValue& sum = ws.ValueOf(out);
    VarValue aside;  // used if Out is a later X
    for (size_t i = 1; i < xs.size(); ++i) {
      if (&ws.ValueOf(xs[i]) == &sum) CopyValue(sum, &aside);
    }
    CopyValue(ws.ValueOf(xs[0]), &sum);
    for (size_t i = 1; i < xs.size(); ++i) {
      const VarValue& x = ws.ValueOf(xs[i]);
      AddValue(&x == &sum ? aside : x, &sum);
    }
  };
}

template <class T>
Kernel SumReference(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  if (out.type == VarType::kLoDTensorArray) return SumOfArrays(ctx);
  if (IsSparse(out)) return ConcatenateRows(ctx);
  if (std::any_of(xs.begin(), xs.end(), IsSparse)) return SumOfDenseAndRows<T>(ctx);
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < out.numel; ++i) {
      T sum = ws.Data<const T>(xs[0])[i];
      for (size_t k = 1; k < xs.size(); ++k) sum = WrapAdd(sum, ws.Data<const T>(xs[k])[i]);
      o[i] = sum;
    }
  };
}

// Sums of 16-bit floats in float32, rounded once.
Kernel SumOfHalves(const std::vector<TensorArg>& xs, const TensorArg& out) {
  const auto add = simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  return [=](Workspace& ws) {
    const auto half = [&](const TensorArg& arg, int64_t at) { return ws.Data<uint16_t>(arg) + at; };
    ParallelFor(out.numel, 32768, [&](int64_t begin, int64_t end) {
      constexpr int64_t kBlock = 2048;  // fits into the first-level cache
      float sum[kBlock], term[kBlock];
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t n = std::min(kBlock, end - at);
        HalfToFloat(out.dtype, half(xs[0], at), sum, n);
        for (size_t k = 1; k < xs.size(); ++k) {
          HalfToFloat(out.dtype, half(xs[k], at), term, n);
          add(sum, term, sum, n);
        }
        FloatToHalf(sum, out.dtype, half(out, at), n);
      }
    });
  };
}

Kernel SumFast(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  if (out.type != VarType::kLoDTensor || std::any_of(xs.begin(), xs.end(), IsSparse)) return {};
  if (IsHalf(out.dtype)) return SumOfHalves(xs, out);
  if (out.dtype != DType::kFloat32) return {};
  const auto add = simd::FindBinary(simd::Binary::kAdd, simd::Form::kVectorVector);
  Kernel loop = [=](Workspace& ws) {
    float* o = ws.Data<float>(out);
    const float* first = ws.Data<const float>(xs[0]);
    if (xs.size() == 1 && o == first) return;
    ParallelFor(out.numel, 32768, [&](int64_t begin, int64_t end) {
      // Blocks stay in the first-level cache while the inputs are added.
      for (int64_t at = begin; at < end; at += 2048) {
        const int64_t n = std::min<int64_t>(2048, end - at);
        if (xs.size() == 1) {
          std::copy_n(first + at, n, o + at);
          continue;
        }
        add(first + at, ws.Data<const float>(xs[1]) + at, o + at, n);
        for (size_t k = 2; k < xs.size(); ++k)
          add(o + at, ws.Data<const float>(xs[k]) + at, o + at, n);
      }
    });
  };
  std::vector<LaneFormula> formulas;
  if (xs.size() == 1) formulas.push_back({{}, {}, xs[0], {}, out});
  for (size_t k = 1; k < xs.size(); ++k)
    formulas.push_back({simd::FindLanes(simd::Binary::kAdd), {}, k == 1 ? xs[0] : out, xs[k], out});
  return LaneKernel{std::move(formulas), std::move(loop)};
}

// Each dX[i] = dOut, computed by scale.
void SumGradient(GradientContext& g) {
  for (size_t i = 0; i < g.Inputs("X").size(); ++i) {
    if (g.NeedsInputGrad("X", i)) g.Set("X", 1.0 * g.Grad("Out"), i);
  }
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("sum")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = X[0] + X[1] + ..., element by element. Selected rows are added to a dense "
               "Out; if all X are selected rows, Out holds all their rows, not merged. Tensor "
               "arrays are added element by element; an unwritten element counts as zero.")
          .Constraint("C1", "all X must have one shape")
          .Constraint("C2", "all X must have one dtype")
          .Constraint("C3", "with a tensor array all X must be tensor arrays")
          .VariadicInput("X", "one or more tensors or selected rows")
          .Output("Out", "tensor of their shape and dtype; selected rows if all X are")
          .Takes(VarType::kSelectedRows, {"X"})
          .Takes(VarType::kLoDTensorArray, {"X"})
          .Inplace("X", "Out")
          .Elementwise()
          .Linear({"X"})
          .Infer(InferSum)
          .Gradient(SumGradient)
          .Reference<float, double, int32_t, int64_t, int16_t, int8_t, uint8_t, float16, bfloat16,
                     complex64, complex128>(
              []<class T>(const PrepareContext& c) { return SumReference<T>(c); })
          .Fast(SumFast));
}

}  // namespace coracle::sum_op
