// sequence_pad, sequence_unpad: convert sequences to rows of one length, and back.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace coracle::sequence_pad_op {

// --- sequence_pad ---

// [sequences, length, ...]; in an exact context, only the length is unknown.
Shape PaddedShape(InferContext& ctx, int64_t length) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() >= 1, x);
  const auto sizes = ctx.LevelSizes("X");
  if (sizes) ctx.Require("C2", sizes->size() == 1, "levels", sizes->size());
  std::vector<int64_t> dims = x.shape.ToVector();
  dims[0] = length;
  dims.insert(dims.begin(), sizes ? sizes->front() : -1);
  return ToShape(ctx, "C1", dims);
}

void InferPad(InferContext& ctx) {
  const int32_t length = ctx.Attr<int32_t>("padded_length");
  ctx.Require("C4", length >= -1, "padded_length", length);
  const bool by_tensor = ctx.HasInput("PaddedLengthTensor");
  if (by_tensor) {
    RequireIndexType(ctx, "C5", "PaddedLengthTensor");
    const VarMeta& tensor = ctx.Input("PaddedLengthTensor");
    ctx.Require("C5", NumelOf(tensor.shape) == 1 || !tensor.shape.IsKnown(), "PaddedLengthTensor",
                tensor);
  }
  const Shape out = PaddedShape(ctx, by_tensor ? -1 : length);
  const VarMeta &x = ctx.Input("X"), &pad = ctx.Input("PadValue");
  Shape row;
  for (int i = 1; i < x.shape.rank(); ++i) row.Append(x.shape[i]);
  ctx.Require("C3",
              pad.dtype == x.dtype && (NumelOf(pad.shape) == 1 || pad.shape.CompatibleWith(row) ||
                                       (!pad.shape.IsKnown() && !ctx.exact())),
              "PadValue", pad, "X", x);
  ctx.SetOutput("Out", x.dtype, out);
  ctx.SetOutput("Length", DType::kInt64, {out[0]});
}

void WriteLengths(Workspace& ws, const TensorArg& length, const Sequences& s) {
  if (!length) return;
  for (int64_t i = 0; i < s.count(); ++i) ws.Data<int64_t>(length)[i] = s.length(i);
}

Kernel Pad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), pad = ctx.Input("PadValue");
  const TensorArg out = ctx.Output("Out"), length = ctx.Output("Length");
  const TensorArg by_tensor = ctx.Input("PaddedLengthTensor");
  const SequencesArg sequences(ctx, "X", "C2");
  const RunConstraint fits(ctx, "C4");
  const int64_t by_attr = ctx.Attr<int32_t>("padded_length"), width = RowWidth(x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    int64_t longest = 0;
    for (int64_t i = 0; i < s.count(); ++i) longest = std::max(longest, s.length(i));
    const int64_t padded = by_tensor ? IndexReader(ws, by_tensor)[0] : by_attr;
    const int64_t steps = padded == -1 ? longest : padded;
    fits.Require(steps >= longest && steps <= INT32_MAX, "padded_length", steps, "longest",
                 longest);
    Shape shape{s.count(), steps};
    for (int i = 1; i < x.shape.rank(); ++i) shape.Append(x.shape[i]);
    Tensor& result = ResizeOutput(ws, out, x.dtype, shape);
    if (width == 0) return WriteLengths(ws, length, s);
    const size_t row_bytes = RowBytes(x.dtype, x.shape);
    const RowCopy copy(ws.Data<const void>(x), result.raw(), row_bytes);
    const RowCopy copy_pad(ws.Data<const void>(pad), result.raw(), row_bytes);
    for (int64_t i = 0; i < s.count(); ++i) {
      const int64_t n = s.length(i);
      copy(s.begin(i), i * steps, n);
      if (pad.numel == 1) {
        FillElements(
            static_cast<char*>(result.raw()) + static_cast<size_t>(i * steps + n) * row_bytes,
            (steps - n) * width, ws.Data<const void>(pad), SizeOf(x.dtype));
      } else {
        for (int64_t k = n; k < steps; ++k) copy_pad(0, i * steps + k, 1);
      }
    }
    WriteLengths(ws, length, s);
  };
}

void InferPadGrad(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  Shape out = PaddedShape(ctx, -1);
  ctx.Require("C5", dout.dtype == x.dtype && dout.shape.CompatibleWith(out), "Out@GRAD", dout, "X",
              x);
  ctx.SetOutput("X@GRAD", x);
}

Kernel PadGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const SequencesArg sequences(ctx, "X", "C2");
  const RunConstraint fits(ctx, "C5");
  const size_t bytes = RowBytes(x.dtype, x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const int64_t steps = dout.shape[1];
    const RowCopy copy(ws.Data<const void>(dout), ws.Data<void>(dx), bytes);
    for (int64_t i = 0; i < s.count(); ++i) {
      fits.Require(s.length(i) <= steps, "Out@GRAD", dout.shape, "sequence of", s.length(i));
      copy(i * steps, s.begin(i), s.length(i));
    }
  };
}

// --- sequence_unpad ---

// The shape of the rows of X or Out for one step.
Shape StepShape(const Shape& x, int64_t rows) {
  Shape shape{rows};
  for (int i = 2; i < x.rank(); ++i) shape.Append(x[i]);
  if (x.rank() == 2) shape.Append(1);
  return shape;
}

void RequireUnpad(const InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() >= 2, x);
  if (!ctx.HasInput("Length")) return;  // in the gradient op
  const Shape& length = ctx.InputShape("Length");
  RequireIndexType(ctx, "C2", "Length");
  const bool column = length.rank() == 2 && InferContext::Matches(length[1], 1);
  ctx.Require("C2", (length.rank() == 1 || column) && InferContext::Matches(length[0], x[0]),
              "Length", length, "X", x);
}

void InferUnpad(InferContext& ctx) {
  RequireUnpad(ctx);
  ctx.SetOutput("Out",
                {VarType::kLoDTensor, ctx.InputDType("X"), StepShape(ctx.InputShape("X"), -1), 1});
}

// The positions in Out of the rows of each sequence of X, from Length or the LoD of Out@GRAD.
class Unpadding {
 public:
  explicit Unpadding(const PrepareContext& ctx)
      : x_(ctx.Input("X")), length_(ctx.Input("Length")), fits_(ctx, "C3") {
    if (!length_) sequences_.emplace(ctx, "Out@GRAD", "C5");
  }
  std::vector<uint64_t> Offsets(Workspace& ws) const {
    if (sequences_) return OffsetsOf((*sequences_)(ws));
    const IndexReader lengths(ws, length_);
    std::vector<uint64_t> offsets{0};
    for (int64_t i = 0; i < x_.shape[0]; ++i) {
      const int64_t n = lengths[i];
      fits_.Require(n >= 0 && n <= x_.shape[1], "length", n, "X", x_.shape);
      offsets.push_back(offsets.back() + static_cast<uint64_t>(n));
    }
    return offsets;
  }

 private:
  std::vector<uint64_t> OffsetsOf(const Sequences& s) const {
    fits_.Require(s.count() == x_.shape[0], "sequences", s.count(), "X", x_.shape);
    std::vector<uint64_t> offsets{0};
    for (int64_t i = 0; i < s.count(); ++i) {
      fits_.Require(s.length(i) <= x_.shape[1], "length", s.length(i), "X", x_.shape);
      offsets.push_back(static_cast<uint64_t>(s.end(i)));
    }
    return offsets;
  }

  TensorArg x_, length_;
  RunConstraint fits_;
  std::optional<SequencesArg> sequences_;
};

Kernel Unpad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Unpadding unpadding(ctx);
  return [=](Workspace& ws) {
    std::vector<uint64_t> offsets = unpadding.Offsets(ws);
    const Shape shape = StepShape(x.shape, static_cast<int64_t>(offsets.back()));
    Tensor& result = ResizeOutput(ws, out, x.dtype, shape);
    const RowCopy copy(ws.Data<const void>(x), result.raw(), RowBytes(x.dtype, shape));
    const Sequences s(offsets);
    for (int64_t i = 0; i < s.count(); ++i) copy(i * x.shape[1], s.begin(i), s.length(i));
    result.lod() = {std::move(offsets)};
  };
}

void InferUnpadGrad(InferContext& ctx) {
  RequireUnpad(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C4", dout.dtype == x.dtype && dout.shape.CompatibleWith(StepShape(x.shape, -1)),
              "Out@GRAD", dout, "X", x);
  ctx.SetOutput("X@GRAD", x);
}

Kernel UnpadGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Unpadding unpadding(ctx);
  const RunConstraint fits(ctx, "C4");
  return [=](Workspace& ws) {
    const std::vector<uint64_t> offsets = unpadding.Offsets(ws);
    const Sequences s(offsets);
    fits.Require(s.begin(s.count()) == dout.shape[0], "Out@GRAD", dout.shape, "rows",
                 s.begin(s.count()));
    FillZeroBytes(ws.Data<void>(dx), dx.nbytes());
    const RowCopy copy(ws.Data<const void>(dout), ws.Data<void>(dx),
                       RowBytes(dout.dtype, dout.shape));
    for (int64_t i = 0; i < s.count(); ++i) copy(s.begin(i), i * x.shape[1], s.length(i));
  };
}

RowEffect PadRows(const RowQuery& query) {
  const bool given = query.op.HasInput("PaddedLengthTensor") ||
                     query.spec.AttrOf<int32_t>(query.op, "padded_length") >= 0;
  return given ? RowRule::kEach : RowRule::kMixes;
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("sequence_pad")
          .Doc("Out[i] = the rows of sequence i of X, then rows of PadValue; Length[i] = the "
               "number of its rows.")
          .Constraint("C1", "X must have rows")
          .Constraint("C2", "X must have LoD of one level")
          .Constraint("C3", "PadValue must be one element, or one row, of X's dtype")
          .Constraint("C4",
                      "padded_length must be -1, or at least the length of the longest sequence")
          .Constraint("C5", "PaddedLengthTensor must hold one int32 or int64")
          .Input("X", "tensor with LoD, of any dtype")
          .Input("PadValue", "tensor of one element or of the shape of a row")
          .OptionalInput("PaddedLengthTensor", "tensor [1]; replaces padded_length")
          .Output("Out", "tensor [sequences, length, ...]")
          .Output("Length", "int64 tensor [sequences]")
          .Attr<int32_t>("padded_length", -1, "the length; -1: the length of the longest sequence")
          .RunTimeShape()
          .NoLod()
          .NoGradientTo({"PadValue", "PaddedLengthTensor"})
          .Rows(PadRows, "each by itself, if a length is given")
          .Infer(InferPad)
          .GradientOp({"X"})
          .Reference(Pad));
  ops.Add(OpDef("sequence_pad_grad")
              .Doc("Gradient of sequence_pad: X@GRAD = Out@GRAD without the padding.")
              .ConstraintsOf("sequence_pad", {"C1", "C2"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "the value in the forward op; only its shape and LoD are used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("sequence_pad")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferPadGrad)
              .Reference(PadGrad));
  ops.Add(OpDef("sequence_unpad")
              .Doc("Out = the first Length[i] rows of each X[i], one after the other, as sequences "
                   "of a batch. X of rank 2 gives Out one column.")
              .Constraint("C1", "X must be [sequences, length, ...]")
              .Constraint("C2", "Length must hold one int32 or int64 for each sequence")
              .Constraint("C3", "Length must lie in [0, length of X]")
              .Input("X", "tensor [sequences, length, ...] of any dtype")
              .Input("Length", "int32 or int64 tensor [sequences] or [sequences, 1]")
              .Output("Out", "tensor with LoD")
              .RunTimeShape()
              .NoGradientTo({"Length"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferUnpad)
              .GradientOp({"X", "Length"})
              .Reference(Unpad));
  ops.Add(OpDef("sequence_unpad_grad")
              .Doc("Gradient of sequence_unpad: X@GRAD = Out@GRAD, and zeros in the padding.")
              .ConstraintsOf("sequence_unpad", {"C1", "C2", "C3"})
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Constraint("C5", "without Length, Out@GRAD must have LoD of one level")
              .Input("X", "the value in the forward op; only its shape is used")
              .OptionalInput("Length",
                             "Length of the forward op; without it, the LoD of Out@GRAD is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"Length"})
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer(InferUnpadGrad)
              .Reference(UnpadGrad));
}

}  // namespace coracle::sequence_pad_op
