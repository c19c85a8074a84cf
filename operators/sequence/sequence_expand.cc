// sequence_expand, sequence_expand_as: repeat rows or sequences according to the LoD of
// another tensor.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>

#include <algorithm>

namespace coracle::sequence_expand_op {

// --- sequence_expand ---

void RequireExpand(const InferContext& ctx) {
  ctx.Require("C1", ctx.InputShape("X").rank() >= 1, ctx.Input("X"));
  ctx.Require("C2", ctx.Attr<int32_t>("ref_level") >= -1, "ref_level",
              ctx.Attr<int32_t>("ref_level"));
}

void InferExpand(InferContext& ctx) {
  RequireExpand(ctx);
  VarMeta out = ctx.Input("X");
  out.shape[0] = -1;
  ctx.SetOutput("Out", out);
}

// The parts of X and their numbers of repeats.
class Repeats {
 public:
  explicit Repeats(const PrepareContext& ctx)
      : x_(ctx.Input("X")),
        y_(ctx.Input("Y")),
        ref_level_(ctx.Attr<int32_t>("ref_level")),
        few_levels_(ctx, "C1"),
        level_exists_(ctx, "C2"),
        same_count_(ctx, "C3") {}

  // Calls part(begin, end, count) for each run of rows of X. Without sequences in Y, X is copied.
  template <class Part>
  void ForEach(Workspace& ws, const Part& part) const {
    const LoD &x = ws.LodOf(x_), &y = ws.LodOf(y_);
    few_levels_.Require(x.size() <= 1, "levels", x.size());
    const size_t level = ref_level_ < 0 ? y.size() - 1 : static_cast<size_t>(ref_level_);
    level_exists_.Require(!y.empty() && level < y.size(), "ref_level", ref_level_, "levels",
                          y.size());
    const Sequences counts(y[level]);
    const int64_t rows = x_.shape[0];
    const int64_t parts = x.empty() ? rows : Sequences(x[0]).count();
    if (counts.count() > 0)
      same_count_.Require(parts == counts.count(), "X", parts, "Y", counts.count());
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t count = counts.count() > 0 ? counts.length(i) : 1;
      if (x.empty())
        part(i, i + 1, count);
      else
        part(Sequences(x[0]).begin(i), Sequences(x[0]).end(i), count);
    }
  }
  // The number of rows of Out.
  int64_t Rows(Workspace& ws) const {
    int64_t rows = 0;
    ForEach(ws, [&](int64_t begin, int64_t end, int64_t count) {
      rows = CheckedAdd(rows, CheckedMul(end - begin, count));
    });
    return rows;
  }

 private:
  TensorArg x_, y_;
  int32_t ref_level_;
  RunConstraint few_levels_, level_exists_, same_count_;
};

Kernel Expand(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Repeats repeats(ctx);
  const size_t bytes = RowBytes(x.dtype, x.shape);
  return [=](Workspace& ws) {
    Tensor& result = ResizeOutput(ws, out, x.dtype, WithRows(x.shape, repeats.Rows(ws)));
    const RowCopy copy(ws.Data<const void>(x), result.raw(), bytes);
    // Parts of X are the sequences of Out only where X has sequences.
    const bool sequences = !ws.LodOf(x).empty();
    std::vector<uint64_t> offsets{0};
    int64_t to = 0;
    repeats.ForEach(ws, [&](int64_t begin, int64_t end, int64_t count) {
      for (int64_t k = 0; k < count; ++k) {
        copy(begin, to, end - begin);
        to += end - begin;
        if (sequences) offsets.push_back(static_cast<uint64_t>(to));
      }
    });
    if (sequences) result.lod() = {std::move(offsets)};
  };
}

void InferExpandGrad(InferContext& ctx) {
  RequireExpand(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C4", SameRows(x.shape, dout.shape) && x.dtype == dout.dtype, "Out@GRAD", dout, "X",
              x);
  ctx.SetOutput("X@GRAD", x);
}

template <class T>
KernelOf<T> ExpandGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Repeats repeats(ctx);
  const RunConstraint fits(ctx, "C4");
  const int64_t width = RowWidth(x.shape);
  return [=](Workspace& ws) {
    const int64_t rows = repeats.Rows(ws);
    fits.Require(rows == dout.shape[0], "Out@GRAD", dout.shape, "rows of Out", rows);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    std::fill_n(to, dx.numel, T(0));
    repeats.ForEach(ws, [&](int64_t begin, int64_t end, int64_t count) {
      const int64_t numel = (end - begin) * width;
      for (int64_t k = 0; k < count; ++k, from += numel) {
        for (int64_t j = 0; j < numel; ++j) to[begin * width + j] += from[j];
      }
    });
  };
}

// --- sequence_expand_as ---

VarMeta ExpandAsOut(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const Shape& y = ctx.InputShape("Y");
  ctx.Require("C1", out.shape.rank() >= 1 && y.rank() >= 1, "X", out, "Y", y);
  out.shape[0] = y[0];
  out.lod_level = 1;
  return out;
}

// The sequences of Y, one for each row of X.
class RowsOfY {
 public:
  explicit RowsOfY(const PrepareContext& ctx)
      : rows_(ctx.Input("X").shape[0]), sequences_(ctx, "Y", "C2"), same_count_(ctx, "C3") {}
  Sequences operator()(Workspace& ws) const {
    const Sequences s = sequences_(ws);
    same_count_.Require(s.count() == rows_, "X", rows_, "Y", s.count());
    return s;
  }

 private:
  int64_t rows_;
  SequencesArg sequences_;
  RunConstraint same_count_;
};

// Sequences per task, for `count` sequences with `numel` elements in total.
int64_t Grain(int64_t count, int64_t numel) { return 1 + count * 16384 / (1 + numel); }

Kernel ExpandAs(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const RowsOfY sequences(ctx);
  const size_t bytes = RowBytes(x.dtype, x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const RowCopy copy(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    ParallelFor(s.count(), Grain(s.count(), out.numel), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        for (int64_t r = s.begin(i); r < s.end(i); ++r) copy(i, r, 1);
      }
    });
  };
}

void InferExpandAsGrad(InferContext& ctx) {
  const VarMeta out = ExpandAsOut(ctx), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C4", dout.shape.CompatibleWith(out.shape) && dout.dtype == out.dtype, dout, out);
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
}

template <class T>
KernelOf<T> ExpandAsGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const RowsOfY sequences(ctx);
  const int64_t width = RowWidth(x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    ParallelFor(s.count(), Grain(s.count(), dout.numel), [&](int64_t first, int64_t last) {
      std::fill(to + first * width, to + last * width, T(0));
      for (int64_t i = first; i < last; ++i) {
        for (int64_t r = s.begin(i); r < s.end(i); ++r) {
          for (int64_t j = 0; j < width; ++j) to[i * width + j] += from[r * width + j];
        }
      }
    });
  };
}

OpDef Expanding(const std::string& type, bool gradient) {
  OpDef def(type + (gradient ? "_grad" : ""));
  def.Input("X", gradient ? "the value in the forward op" : "tensor of any dtype")
      .Input("Y", "tensor with LoD; its elements are not read")
      .Rows(RowRule::kEach)
      .NoGradientTo({"Y"});
  if (gradient) {
    def.Doc("Gradient of " + type + ": X@GRAD = the sum over the repeats.")
        .ConstraintsOf(type, {"C1", "C2", "C3"})
        .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
        .Input("Out@GRAD", "gradient of Out")
        .Output("X@GRAD", "gradient of X")
        .NoGradient("second derivatives of sequence ops are not provided");
  }
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(Expanding("sequence_expand", false)
              .Doc("Out = each row of X (or, if X has LoD, each sequence of X as a whole) repeated "
                   "as often as the matching sequence of Y's level ref_level is long. The repeated "
                   "sequences are the sequences of Out. If Y has no sequences, Out = X.")
              .Constraint("C1", "X must have rows and at most one level of LoD")
              .Constraint("C2", "ref_level must be a level of Y's LoD, or -1")
              .Constraint("C3", "X must have one row, or one sequence, for each sequence of Y")
              .Output("Out", "tensor of X's dtype")
              .Attr<int32_t>("ref_level", -1, "level of Y's LoD; -1: the last")
              .RunTimeShape()
              .Infer(InferExpand)
              .GradientOp({"X", "Y"})
              .Reference(Expand));
  ops.Add(Expanding("sequence_expand", true)
              .AttrsOf("sequence_expand")
              .Infer(InferExpandGrad)
              .KernelTypeFrom("Out@GRAD")
              .Reference(ExpandGrad<float>, ExpandGrad<double>));
  ops.Add(Expanding("sequence_expand_as", false)
              .Doc("Out = row i of X for each row of sequence i of Y. Out has Y's LoD.")
              .Constraint("C1", "X and Y must have rows")
              .Constraint("C2", "Y must have LoD of one level")
              .Constraint("C3", "X must have one row for each sequence of Y")
              .Output("Out", "tensor of X's dtype, with Y's number of rows")
              .LodFrom("Y")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ExpandAsOut(ctx)); })
              .GradientOp({"X", "Y"})
              .Reference(ExpandAs));
  ops.Add(Expanding("sequence_expand_as", true)
              .Infer(InferExpandAsGrad)
              .KernelTypeFrom("Out@GRAD")
              .Reference(ExpandAsGrad<float>, ExpandAsGrad<double>));
}

}  // namespace coracle::sequence_expand_op
