// sequence_slice: a part of each sequence.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::sequence_slice_op {

void RequireSlice(const InferContext& ctx) {
  ctx.Require("C1", ctx.InputShape("X").rank() >= 1, ctx.Input("X"));
  for (const char* slot : {"Offset", "Length"}) {
    RequireIndexType(ctx, "C3", slot);
    const Shape& shape = ctx.InputShape(slot);
    const bool column = shape.rank() == 2 && InferContext::Matches(shape[1], 1);
    ctx.Require("C3", shape.rank() == 1 || column, slot, shape);
  }
}

void InferSlice(InferContext& ctx) {
  RequireSlice(ctx);
  VarMeta out = ctx.Input("X");
  out.shape[0] = -1;
  ctx.SetOutput("Out", out);
}

// The rows that each sequence keeps.
class Parts {
 public:
  explicit Parts(const PrepareContext& ctx)
      : offset_(ctx.Input("Offset")),
        length_(ctx.Input("Length")),
        sequences_(ctx, "X", "C2"),
        one_each_(ctx, "C3"),
        inside_(ctx, "C4") {}

  // Calls part(first row of X, rows) for each sequence.
  template <class Part>
  void ForEach(Workspace& ws, const Part& part) const {
    const Sequences s = sequences_(ws);
    one_each_.Require(offset_.numel == s.count() && length_.numel == s.count(), "Offset",
                      offset_.shape, "Length", length_.shape, "sequences", s.count());
    const IndexReader offsets(ws, offset_), lengths(ws, length_);
    for (int64_t i = 0; i < s.count(); ++i) {
      const int64_t begin = offsets[i], n = lengths[i], most = s.length(i);
      inside_.Require(begin >= 0 && n >= 0 && begin <= most && n <= most - begin, "offset", begin,
                      "length", n, "sequence of", most);
      part(s.begin(i) + begin, n);
    }
  }
  std::vector<uint64_t> Offsets(Workspace& ws) const {
    std::vector<uint64_t> offsets{0};
    ForEach(ws, [&](int64_t, int64_t rows) {
      offsets.push_back(offsets.back() + static_cast<uint64_t>(rows));
    });
    return offsets;
  }

 private:
  TensorArg offset_, length_;
  SequencesArg sequences_;
  RunConstraint one_each_, inside_;
};

Kernel Slice(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Parts parts(ctx);
  return [=](Workspace& ws) {
    std::vector<uint64_t> offsets = parts.Offsets(ws);
    const auto rows = static_cast<int64_t>(offsets.back());
    Tensor& result = ResizeOutput(ws, out, x.dtype, WithRows(x.shape, rows));
    const RowCopy copy(ws.Data<const void>(x), result.raw(), RowBytes(x.dtype, x.shape));
    int64_t to = 0;
    parts.ForEach(ws, [&](int64_t from, int64_t n) {
      copy(from, to, n);
      to += n;
    });
    result.lod() = {std::move(offsets)};
  };
}

void InferSliceGrad(InferContext& ctx) {
  RequireSlice(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C5", SameRows(x.shape, dout.shape) && x.dtype == dout.dtype, "Out@GRAD", dout, "X",
              x);
  ctx.SetOutput("X@GRAD", x);
}

Kernel SliceGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Parts parts(ctx);
  const RunConstraint fits(ctx, "C5");
  return [=](Workspace& ws) {
    const auto rows = static_cast<int64_t>(parts.Offsets(ws).back());
    fits.Require(rows == dout.shape[0], "Out@GRAD", dout.shape, "rows", rows);
    FillZeroBytes(ws.Data<void>(dx), dx.nbytes());
    const RowCopy copy(ws.Data<const void>(dout), ws.Data<void>(dx), RowBytes(x.dtype, x.shape));
    int64_t from = 0;
    parts.ForEach(ws, [&](int64_t to, int64_t n) {
      copy(from, to, n);
      from += n;
    });
  };
}

void DeclareSlice(OpDef& def) {
  def.Input("X", "tensor with LoD, of any dtype")
      .Input("Offset", "int32 or int64 tensor [sequences] or [sequences, 1]")
      .Input("Length", "int32 or int64 tensor with the same number of elements")
      .NoGradientTo({"Offset", "Length"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_slice")
              .Doc("Sequence i of Out = Length[i] rows of sequence i of X, starting at its row "
                   "Offset[i].")
              .Constraint("C1", "X must have rows")
              .Constraint("C2", "X must have LoD of one level")
              .Constraint("C3", "Offset and Length must hold one int32 or int64 for each sequence")
              .Constraint("C4", "the parts must lie inside their sequences")
              .Apply(DeclareSlice)
              .Output("Out", "tensor with LoD")
              .RunTimeShape()
              .Rows(RowRule::kEach)
              .Infer(InferSlice)
              .GradientOp({"X", "Offset", "Length"})
              .Reference(Slice));
  ops.Add(OpDef("sequence_slice_grad")
              .Doc("Gradient of sequence_slice: X@GRAD = Out@GRAD in the parts, else 0.")
              .ConstraintsOf("sequence_slice", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareSlice)
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferSliceGrad)
              .Reference(SliceGrad));
}

}  // namespace coracle::sequence_slice_op
