// masked_select and where_index: the elements, or positions, that a condition selects. Their number
// is known only at run time.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/rules/rows.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::masked_select_op {

void CheckMask(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &mask = ctx.Input("Mask");
  ctx.Require("C1", mask.dtype == DType::kBool, mask.dtype);
  ctx.Require("C2", mask.shape.CompatibleWith(x.shape), mask.shape, x.shape);
}

void InferMaskedSelect(InferContext& ctx) {
  CheckMask(ctx);
  ctx.SetOutput("Y", ctx.InputDType("X"), {-1});
}

constexpr int64_t kBlock = 4096;

// The number of elements that a mask selects before each block, and in total.
class MaskBlocks {
 public:
  MaskBlocks(const PrepareContext& ctx, const TensorArg& mask)
      : mask_(mask),
        blocks_((mask.numel + kBlock - 1) / kBlock),
        starts_(ctx.Scratch(DType::kInt64, {blocks_ + 1})) {}

  int64_t Count(Workspace& ws) const {
    const bool* chosen = ws.Data<const bool>(mask_);
    int64_t* starts = ws.Data<int64_t>(starts_);
    starts[0] = 0;
    ParallelFor(blocks_, 16, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        starts[b + 1] = std::count(chosen + b * kBlock, chosen + End(b), true);
    });
    for (int64_t b = 0; b < blocks_; ++b) starts[b + 1] += starts[b];
    return starts[blocks_];
  }
  // Calls body(begin, end, selected before begin, selected) for every block. REQUIRES: Count.
  template <class Body>
  void ForEach(Workspace& ws, const Body& body) const {
    const int64_t* starts = ws.Data<int64_t>(starts_);
    ParallelFor(blocks_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        body(b * kBlock, End(b), starts[b], starts[b + 1] - starts[b]);
    });
  }

 private:
  int64_t End(int64_t block) const { return std::min((block + 1) * kBlock, mask_.numel); }

  TensorArg mask_;
  int64_t blocks_;
  TensorArg starts_;
};

// Copies the `count` chosen elements of a block. To avoid a branch, every element is written to the
// position of the next chosen one.
template <class T>
void Compress(const T* from, const bool* chosen, int64_t n, T* to, int64_t count) {
  int64_t i = 0, k = 0;
  for (; i < n && k < count; ++i) {
    to[k] = from[i];
    k += chosen[i] ? 1 : 0;
  }
}

template <class T>
Kernel SelectOf(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), mask = ctx.Input("Mask"), y = ctx.Output("Y");
  const MaskBlocks blocks(ctx, mask);
  return [=](Workspace& ws) {
    Tensor& out = ResizeOutput(ws, y, x.dtype, {blocks.Count(ws)});
    const bool* chosen = ws.Data<const bool>(mask);
    const T* from = ws.Data<const T>(x);
    auto* to = static_cast<T*>(out.raw());
    blocks.ForEach(ws, [&](int64_t begin, int64_t end, int64_t before, int64_t count) {
      if (count == end - begin)
        std::copy(from + begin, from + end, to + before);
      else
        Compress(from + begin, chosen + begin, end - begin, to + before, count);
    });
  };
}

// Moves elements, so only their size matters.
Kernel MaskedSelect(const PrepareContext& ctx) {
  struct Sixteen {
    uint64_t words[2];
  };
  switch (SizeOf(ctx.Input("X").dtype)) {
    case 1:
      return SelectOf<uint8_t>(ctx);
    case 2:
      return SelectOf<uint16_t>(ctx);
    case 4:
      return SelectOf<uint32_t>(ctx);
    case 8:
      return SelectOf<uint64_t>(ctx);
    default:
      return SelectOf<Sixteen>(ctx);
  }
}

void InferMaskedSelectGrad(InferContext& ctx) {
  CheckMask(ctx);
  const VarMeta &x = ctx.Input("X"), &dy = ctx.Input("Y@GRAD");
  ctx.Require("C3", dy.shape.rank() == 1 && dy.dtype == x.dtype, dy, x);
  ctx.SetOutput("X@GRAD", x);
}

template <class T>
KernelOf<T> MaskedSelectGrad(const PrepareContext& ctx) {
  const TensorArg mask = ctx.Input("Mask"), dy = ctx.Input("Y@GRAD"), dx = ctx.Output("X@GRAD");
  const std::string failure = ctx.Failure("C4");
  const MaskBlocks blocks(ctx, mask);
  return [=](Workspace& ws) {
    const bool* chosen = ws.Data<const bool>(mask);
    const int64_t count = blocks.Count(ws);
    if (count != dy.numel) ThrowInvalid(fmt::format("{}, got {} vs {}", failure, dy.numel, count));
    const T* from = ws.Data<const T>(dy);
    T* to = ws.Data<T>(dx);
    blocks.ForEach(ws, [&](int64_t begin, int64_t end, int64_t before, int64_t selected) {
      const int64_t last = before + selected;
      int64_t k = before;
      int64_t i = begin;
      for (; i < end && k < last; ++i) {
        to[i] = chosen[i] ? from[k] : T(0);
        k += chosen[i] ? 1 : 0;
      }
      std::fill(to + i, to + end, T(0));
    });
  };
}

void MaskedSelectGradGradient(GradientContext& g) {
  g.Set("Y@GRAD", g.Make("masked_select",
                         {{"X", {g.OutputGrad("X@GRAD")}}, {"Mask", {g.Input("Mask")}}}, {}, "Y"));
}

// ---- where_index ----

void InferWhereIndex(InferContext& ctx) {
  ctx.SetOutput("Out", DType::kInt64, {-1, ctx.InputShape("Condition").rank()});
}

// One row of Out for each element that is not zero (a nan is not).
template <class T>
KernelOf<T> WhereIndex(const PrepareContext& ctx) {
  const TensorArg condition = ctx.Input("Condition"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* c = ws.Data<const T>(condition);
    const int64_t count = condition.numel - std::count(c, c + condition.numel, T(0));
    const int rank = condition.shape.rank();
    auto* to = static_cast<int64_t*>(ResizeOutput(ws, out, DType::kInt64, {count, rank}).raw());
    for (int64_t i = 0; i < condition.numel; ++i) {
      if (c[i] == T(0)) continue;
      int64_t rest = i;
      for (int axis = rank - 1; axis >= 0; --axis) {
        to[axis] = rest % condition.shape[axis];
        rest /= condition.shape[axis];
      }
      to += rank;
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("masked_select")
              .Doc("Y = the elements of X where Mask is true, row by row.")
              .Constraint("C1", "Mask must be bool")
              .Constraint("C2", "Mask must have X's shape")
              .Input("X", "tensor of any dtype")
              .Input("Mask", "bool tensor")
              .Output("Y", "vector [n]")
              .NoGradientTo({"Mask"})
              .RunTimeShape()
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferMaskedSelect)
              .GradientOp({"X", "Mask"})
              .Reference(MaskedSelect));
  ops.Add(OpDef("masked_select_grad")
              .Doc("Gradient of masked_select: X@GRAD = the elements of Y@GRAD in order where Mask "
                   "is true, else 0.")
              .ConstraintsOf("masked_select", {"C1", "C2"})
              .Constraint("C3", "Y@GRAD must be a vector of X's dtype")
              .Constraint("C4", "Y@GRAD must have one element for each that Mask selects")
              .Input("X", "only its shape is used")
              .Input("Mask", "bool tensor")
              .Input("Y@GRAD", "gradient of Y")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"X", "Mask"})
              .KernelTypeFrom("Y@GRAD")
              .Infer(InferMaskedSelectGrad)
              .Gradient(MaskedSelectGradGradient)
              .Reference(MaskedSelectGrad<float>, MaskedSelectGrad<double>,
                         MaskedSelectGrad<float16>, MaskedSelectGrad<bfloat16>,
                         MaskedSelectGrad<complex64>, MaskedSelectGrad<complex128>));
  ops.Add(OpDef("where_index")
              .Doc("Out = one row for each element of Condition that is not zero, with its "
                   "indices, in the order of the elements.")
              .Input("Condition", "tensor of bools or numbers")
              .Output("Out", "int64 tensor [n, rank of Condition]")
              .RunTimeShape()
              .NotDifferentiable("indices are integers")
              .Rows(RowRule::kMixes)
              .Infer(InferWhereIndex)
              .Reference(WhereIndex<bool>, WhereIndex<float>, WhereIndex<double>,
                         WhereIndex<int32_t>, WhereIndex<int64_t>));
}

}  // namespace coracle::masked_select_op
