// split_lod_tensor, merge_lod_tensor: distribute the sequences of a batch over two branches by a
// mask, and join them again.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/control/lod_parts.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::split_lod_tensor_op {

void RequireMask(const InferContext& ctx) {
  const VarMeta& mask = ctx.Input("Mask");
  const int rank = mask.shape.rank();
  const bool list = rank == 1 || (rank == 2 && InferContext::Matches(mask.shape[1], 1));
  ctx.Require("C1", mask.dtype == DType::kBool && list, mask);
  ctx.Require("C2", ctx.InputShape("X").rank() >= 1, ctx.Input("X"));
}

void DeclareMask(OpDef& def) {
  def.Constraint("C1", "Mask must be a bool tensor [sequences] or [sequences, 1]")
      .Constraint("C2", "X must have rows")
      .Constraint("C3",
                  "Mask must have an element for each sequence of the level of X (for each row if "
                  "X has no such level)")
      .Attr<int32_t>("level", 0, "level of X's LoD")
      .Range(0, std::nullopt)
      .RunTimeShape();
}

// An input that takes its LoD from another input with the same number of rows, if that is given. A
// gradient thus gets the LoD of its variable.
class LodArg {
 public:
  LodArg(const PrepareContext& ctx, const char* slot, const char* like)
      : x_(ctx.Input(slot)),
        lod_(ctx.Input(like) ? ctx.Input(like) : x_),
        name_(ctx.op().Input(slot)[0]) {}
  const LoD& operator()(Workspace& ws) const {
    Tensor x = Tensor::View(x_.dtype, x_.shape, nullptr);
    x.lod() = ws.LodOf(lod_);
    CheckLod(name_, x);
    return ws.LodOf(lod_);
  }

 private:
  TensorArg x_, lod_;
  std::string name_;
};

// The mask of a run, checked to have one element for each sequence of X.
class MaskArg {
 public:
  explicit MaskArg(const PrepareContext& ctx)
      : x_(ctx.Input("X")),
        lod_(ctx, "X", "Like"),
        mask_(ctx.Input("Mask")),
        level_(static_cast<size_t>(ctx.Attr<int32_t>("level"))),
        fits_(ctx, "C3") {}
  int64_t size() const { return mask_.numel; }
  size_t level() const { return level_; }
  const LoD& lod(Workspace& ws) const { return lod_(ws); }
  const bool* operator()(Workspace& ws) const {
    const int64_t count = CountAt(lod_(ws), level_, x_.shape[0]);
    fits_.Require(count == mask_.numel, "Mask", mask_.shape, "sequences", count);
    return ws.Data<const bool>(mask_);
  }

 private:
  TensorArg x_;
  LodArg lod_;
  TensorArg mask_;
  size_t level_;
  RunConstraint fits_;
};

// --- split_lod_tensor ---

void InferSplit(InferContext& ctx) {
  RequireMask(ctx);
  VarMeta out = ctx.Input("X");
  out.shape[0] = -1;
  ctx.SetOutput("OutTrue", out);
  ctx.SetOutput("OutFalse", out);
}

Kernel Split(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  const TensorArg outs[] = {ctx.Output("OutFalse"), ctx.Output("OutTrue")};
  const MaskArg mask(ctx);
  const size_t bytes = RowBytes(x.dtype, x.shape);
  return [=](Workspace& ws) {
    const bool* chosen = mask(ws);
    const LoD& lod = mask.lod(ws);
    const size_t levels = lod.size() - std::min(lod.size(), mask.level());
    for (const bool side : {false, true}) {
      if (!outs[side]) continue;
      LoD own = EmptyLevels(levels);
      int64_t rows = 0;
      const auto for_each = [&](const auto& visit) {
        for (int64_t i = 0; i < mask.size(); ++i) {
          if (chosen[i] == side) visit(i);
        }
      };
      for_each(
          [&](int64_t i) { rows += AppendSequences(lod, mask.level(), i, i + 1, &own).rows(); });
      Tensor& result = ResizeOutput(ws, outs[side], x.dtype, WithRows(x.shape, rows));
      const RowCopy copy(ws.Data<const void>(x), result.raw(), bytes);
      LoD again = EmptyLevels(levels);
      int64_t to = 0;
      for_each([&](int64_t i) {
        const RowRange range = AppendSequences(lod, mask.level(), i, i + 1, &again);
        copy(range.begin, to, range.rows());
        to += range.rows();
      });
      result.lod() = std::move(own);
    }
  };
}

// A branch that the program does not use is recomputed for its LoD; its gradient is 0.
void SplitGradient(GradientContext& g) {
  const auto like = [&](const char* slot) {
    if (g.HasOutput(slot)) return g.Output(slot);
    return g
        .Make("split_lod_tensor", g.ForwardInputs({"X", "Mask", "Like"}), g.ForwardAttrs({"level"}),
              slot)
        .name();
  };
  const auto grad = [&](const char* slot, const std::string& branch) {
    if (g.HasOutput(slot)) return g.OutputGrad(slot);
    return g.Make("fill_zeros_like", {{"X", {branch}}}).name();
  };
  const std::string like_true = like("OutTrue"), like_false = like("OutFalse");
  g.Append("merge_lod_tensor",
           {{"X", {g.Input("X")}},
            {"Mask", {g.Input("Mask")}},
            {"InTrue", {grad("OutTrue", like_true)}},
            {"InFalse", {grad("OutFalse", like_false)}},
            {"LikeTrue", {like_true}},
            {"LikeFalse", {like_false}}},
           {{"Out", {g.InputGrad("X")}}}, g.ForwardAttrs({"level"}));
}

// --- merge_lod_tensor ---

void InferMerge(InferContext& ctx) {
  RequireMask(ctx);
  VarMeta out = ctx.Input("InTrue");
  const VarMeta& other = ctx.Input("InFalse");
  ctx.Require("C4", out.dtype == other.dtype && SameRows(out.shape, other.shape), "InTrue", out,
              "InFalse", other);
  out.shape[0] = -1;
  out.lod_level = ctx.Input("X").lod_level;
  ctx.SetOutput("Out", out);
}

Kernel Merge(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const TensorArg ins[] = {ctx.Input("InFalse"), ctx.Input("InTrue")};
  const LodArg lod_args[] = {{ctx, "InFalse", "LikeFalse"}, {ctx, "InTrue", "LikeTrue"}};
  const MaskArg mask(ctx);
  const RunConstraint fits(ctx, "C5");
  const size_t bytes = RowBytes(ins[1].dtype, ins[1].shape);
  return [=](Workspace& ws) {
    const bool* chosen = mask(ws);
    const int64_t num_true = std::count(chosen, chosen + mask.size(), true);
    const LoD* lods[2] = {};
    size_t levels = 0;
    for (const bool side : {false, true}) {
      lods[side] = &lod_args[side](ws);
      const int64_t wanted = side ? num_true : mask.size() - num_true;
      const int64_t given = CountAt(*lods[side], 0, ins[side].shape[0]);
      fits.Require(given == wanted, side ? "InTrue" : "InFalse", given, "sequences in Mask",
                   wanted);
      levels = std::max(levels, lods[side]->size());
    }
    for (const bool side : {false, true}) {
      const bool rows = lods[side]->empty() && (levels == 1 || ins[side].shape[0] == 0);
      fits.Require(lods[side]->size() == levels || rows, "levels", lods[side]->size(), "and",
                   levels);
    }
    const int64_t rows = ins[0].shape[0] + ins[1].shape[0];
    Tensor& result = ResizeOutput(ws, out, ins[1].dtype, WithRows(ins[1].shape, rows));
    LoD below = EmptyLevels(levels);
    int64_t next[2] = {0, 0}, to = 0;
    for (int64_t i = 0; i < mask.size(); ++i) {
      const bool side = chosen[i];
      const int64_t at = next[side]++;
      const RowRange range = AppendSequences(*lods[side], 0, at, at + 1, &below);
      if (lods[side]->empty() && levels == 1) below[0].push_back(below[0].back() + 1);
      RowCopy(ws.Data<const void>(ins[side]), result.raw(), bytes)(range.begin, to, range.rows());
      to += range.rows();
    }
    const LoD& given = ws.LodOf(x);
    const size_t above = std::min(given.size(), mask.level());
    result.lod().assign(given.begin(), given.begin() + static_cast<ptrdiff_t>(above));
    result.lod().insert(result.lod().end(), below.begin(), below.end());
  };
}

void MergeGradient(GradientContext& g) {
  g.Append("split_lod_tensor",
           {{"X", {g.OutputGrad("Out")}}, {"Mask", {g.Input("Mask")}}, {"Like", {g.Output("Out")}}},
           {{"OutTrue", {g.InputGrad("InTrue")}}, {"OutFalse", {g.InputGrad("InFalse")}}},
           g.ForwardAttrs({"level"}));
}

void DeclareMerge(OpDef& def) {
  def.Doc(
         "Inverse of split_lod_tensor: sequence i of Out is the next sequence of InTrue if Mask[i] "
         "is true, else the next of InFalse. The levels of LoD above `level` come from X; a branch "
         "without LoD has sequences of one row.")
      .Apply(DeclareMask)
      .Constraint("C4", "InTrue and InFalse must have rows of one shape and dtype")
      .Constraint("C5",
                  "InTrue must have a sequence for each true element of Mask and InFalse one for "
                  "each false element, both with the same number of LoD levels")
      .Input("X", "input of the split; only its LoD is read")
      .Input("Mask", "bool tensor: for each sequence, whether it is in InTrue")
      .Input("InTrue", "tensor")
      .Input("InFalse", "tensor")
      .OptionalInput("LikeTrue", "tensor whose LoD replaces the LoD of InTrue's")
      .OptionalInput("LikeFalse", "tensor whose LoD replaces the LoD of InFalse's")
      .Output("Out", "tensor")
      .NoGradientTo({"X", "Mask", "LikeTrue", "LikeFalse"})
      .Rows(EachBatchRow, kEachBatchRow)
      .Infer(InferMerge);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("split_lod_tensor")
              .Doc("OutTrue = the sequences of the level of X (rows if X has no such level) whose "
                   "element of Mask is true, OutFalse = the other ones, both with their LoD from "
                   "that level on.")
              .Apply(DeclareMask)
              .Input("X", "tensor of any dtype")
              .Input("Mask", "bool tensor: for each sequence, whether it goes to OutTrue")
              .OptionalInput("Like", "tensor whose LoD replaces the LoD of X's")
              .OptionalOutput("OutTrue", "tensor; without rows if no element is true")
              .OptionalOutput("OutFalse", "tensor")
              .NoGradientTo({"Mask", "Like"})
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferSplit)
              .Gradient(SplitGradient)
              .Reference(Split));
  ops.Add(OpDef("merge_lod_tensor").Apply(DeclareMerge).Gradient(MergeGradient).Reference(Merge));
  ops.Add(OpDef("merge_lod_tensor_infer")
              .Apply(DeclareMerge)
              .NoGradient("the form of merge_lod_tensor for inference")
              .Reference(Merge));
}

}  // namespace coracle::split_lod_tensor_op
