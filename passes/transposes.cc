#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/certain_dims.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/transposes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace coracle::inline internal {

bool IsTranspose(const OpDesc& op) {
  return (op.type() == "transpose" || op.type() == "transpose2") && op.Input("X").size() == 1 &&
         op.Output("Out").size() == 1 && !op.HasAttr(kRecomputedFromAttr);
}

Ints AxesOf(const OpDesc& op) { return op.GetAttr<Ints>("axis", {}); }
bool KeepsLod(const OpDesc& op) {
  return op.type() == "transpose2" && op.GetAttr<bool>("keeps_lod", false);
}

bool IsPermutation(const Ints& axes) {
  Ints sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

Ints Composed(const Ints& first, const Ints& second) {
  Ints axes;
  for (int32_t axis : second) axes.push_back(first[static_cast<size_t>(axis)]);
  return axes;
}

Ints Inverse(const Ints& axes) {
  Ints inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i)
    inverse[static_cast<size_t>(axes[i])] = static_cast<int32_t>(i);
  return inverse;
}

Shape Permuted(const Shape& shape, const Ints& axes) {
  Shape permuted(std::vector<int64_t>(axes.size(), -1));
  if (shape.rank() != permuted.rank()) return permuted;
  for (size_t i = 0; i < axes.size(); ++i) permuted[static_cast<int>(i)] = shape[axes[i]];
  return permuted;
}

bool IsIdentity(const Ints& axes) { return std::is_sorted(axes.begin(), axes.end()); }

bool JoinTransposes(ProgramDesc& program, const PassContext& context) {
  BlockDesc& block = program.Root();
  ValueFlow flow(program, context);
  const LodFlow lods(block, context);
  block.ForEachOp([&](OpDesc& op) {
    if (!IsTranspose(op) || !flow.IsOnlyOutput(op, op.Output("Out")[0])) return;
    const std::string between = op.Input("X")[0], out = op.Output("Out")[0];
    const auto writers = std::as_const(block).Uses(between).writers;
    const OpDesc* first = writers.size() == 1 ? writers[0] : nullptr;
    if (!first || !flow.IsConstantInARun(between) || flow.IsRemoved(*first) ||
        flow.IsReplaced(*first) || !IsTranspose(*first) || first->Output("Out")[0] != between ||
        AxesOf(op).empty() || AxesOf(*first).size() != AxesOf(op).size() ||
        !IsPermutation(AxesOf(*first)) || !IsPermutation(AxesOf(op)))
      return;
    const std::string source = flow.Source(first->Input("X")[0]);
    const Ints axes = Composed(AxesOf(*first), AxesOf(op));
    // If both keep LoD, so does the result; rows that stay in place pass LoD in any case.
    const bool keeps = KeepsLod(*first) && KeepsLod(op);
    if (keeps && (AxesOf(*first)[0] != 0 || AxesOf(op)[0] != 0)) return;
    if (!flow.IsConstantInARun(source)) return;
    if (IsIdentity(axes) && (keeps || !lods.MayHaveLod(source)) &&
        flow.MayStandFor(source, op, out)) {
      flow.Forward(out, source);
      flow.Remove(op);
      return;
    }
    if (!flow.IsTemporary(between) || flow.NumReaders(between) != 1 ||
        !flow.IsOnlyOutput(*first, between))
      return;
    OpDesc both("transpose2", {{"X", {source}}}, {{"Out", {out}}},
                {{"axis", axes}, {"keeps_lod", keeps}});
    CopyRemarks(op, both);
    AddOrigins(*first, both);
    flow.Remove(*first);
    flow.Replace(op, both);
  });
  if (!flow.Apply()) return false;
  // Removes transposes that no op reads any more.
  ValueFlow now(program, context);
  block.ForEachOp([&](OpDesc& op) {
    if (IsTranspose(op) && now.IsTemporary(op.Output("Out")[0]) &&
        !op.AnyOutput([&](const std::string& name) { return !now.IsUnread(name); }))
      now.Remove(op);
  });
  now.Apply();
  return true;
}

namespace {

// The axis that an op drops (squeeze) or inserts (unsqueeze); 0 if it is not one that is known, or
// if it is the axis of the rows.
int32_t AxisOf(const OpDesc& op, const char* type, const char* newer) {
  const Ints axes = op.GetAttr<Ints>("axes", {});
  const bool is = (op.type() == type || op.type() == newer) && axes.size() == 1 && axes[0] > 0;
  return is && !HasOtherInput(op, "X") && op.Input("X").size() == 1 ? axes[0] : 0;
}

// The axes without axis `at` of the result.
Ints Without(const Ints& axes, size_t at) {
  Ints rest;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i != at) rest.push_back(axes[i] > axes[at] ? axes[i] - 1 : axes[i]);
  }
  return rest;
}

bool KeepsRowsFirst(const Ints& axes) {
  return axes.size() > 1 && axes[0] == 0 && IsPermutation(axes);
}

class SqueezeExchanger {
 public:
  SqueezeExchanger(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()), flow_(program, context) {}

  bool Run() {
    std::vector<const OpDesc*> ops;
    std::as_const(block_).ForEachOp([&](const OpDesc& op) { ops.push_back(&op); });
    for (const OpDesc* op : ops) {
      if (const int32_t axis = AxisOf(*op, "squeeze", "squeeze2")) SqueezeFirst(*op, axis);
      if (IsTranspose(*op)) TransposeFirst(*op);
    }
    return flow_.Apply();
  }

 private:
  // The op that writes the only input of `op`, which no other op reads; nullptr if it may not be
  // exchanged with it.
  const OpDesc* Before(const OpDesc& op) const {
    const std::string& between = op.Input("X")[0];
    const OpDesc* first = flow_.WriterOf(between);
    const bool may =
        first && flow_.NumReaders(between) == 1 && flow_.IsOnlyOutput(*first, between) &&
        flow_.IsOnlyOutput(op, op.Output("Out")[0]) && !flow_.IsRecomputed(*first) &&
        !flow_.IsRecomputed(op) && !flow_.IsReplaced(*first) && !flow_.IsReplaced(op) &&
        first->Input("X").size() == 1 && flow_.IsConstantInARun(first->Input("X")[0]);
    return may ? first : nullptr;
  }

  // v = transpose(u), y = squeeze(v): w = squeeze(u), y = transpose(w).
  void SqueezeFirst(const OpDesc& squeeze, int32_t axis) {
    const OpDesc* transpose = Before(squeeze);
    if (!transpose || !IsTranspose(*transpose)) return;
    const Ints axes = AxesOf(*transpose);
    const auto at = static_cast<size_t>(axis);
    const std::string &u = transpose->Input("X")[0], &y = squeeze.Output("Out")[0];
    if (!KeepsRowsFirst(axes) || at >= axes.size() ||
        !IsCertainlyOne(block_, context_, flow_, u, axes[at]))
      return;
    const Ints rest = Without(axes, at);
    const std::string w = NewForm(y, Inverse(rest), squeeze);
    flow_.Replace(*transpose,
                  OpDesc("squeeze2", {{"X", {u}}}, {{"Out", {w}}}, {{"axes", Ints{axes[at]}}}));
    flow_.Replace(squeeze, Transposed(squeeze, *transpose, w, y, rest));
  }

  // v = unsqueeze(x), y = transpose(v): w = transpose(x), y = unsqueeze(w).
  void TransposeFirst(const OpDesc& transpose) {
    const OpDesc* unsqueeze = Before(transpose);
    const int32_t axis = unsqueeze ? AxisOf(*unsqueeze, "unsqueeze", "unsqueeze2") : 0;
    const Ints axes = AxesOf(transpose);
    const auto at = static_cast<size_t>(std::find(axes.begin(), axes.end(), axis) - axes.begin());
    if (axis == 0 || !KeepsRowsFirst(axes) || at >= axes.size()) return;
    const std::string &x = unsqueeze->Input("X")[0], &y = transpose.Output("Out")[0];
    const Ints rest = Without(axes, at);
    const std::string w = NewForm(x, rest, *unsqueeze);
    flow_.Replace(*unsqueeze, Transposed(*unsqueeze, transpose, x, w, rest));
    flow_.Replace(transpose, OpDesc("unsqueeze2", {{"X", {w}}}, {{"Out", {y}}},
                                    {{"axes", Ints{static_cast<int32_t>(at)}}}));
  }

  // The transpose `like`, with other axes, in place of `replaced`. It drops LoD if `like` does;
  // squeezes and unsqueezes keep it.
  OpDesc Transposed(const OpDesc& replaced, const OpDesc& like, const std::string& from,
                    const std::string& to, const Ints& axes) const {
    OpDesc op("transpose2", {{"X", {from}}}, {{"Out", {to}}},
              {{"axis", axes}, {"keeps_lod", KeepsLod(like)}});
    CopyRemarks(replaced, op);
    return op;
  }

  // A variable with the axes of `of` in another order: axis i is axis axes[i] of it.
  std::string NewForm(const std::string& of, const Ints& axes, const OpDesc& writer) {
    VarMeta meta = block_.FindVarRecursive(of)->meta();
    meta.shape = Permuted(meta.shape, axes);
    return context_.AddForm(program_, of, "@MOVED", meta, axes,
                            std::make_shared<const OpDesc>(writer));
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  ValueFlow flow_;
};

}  // namespace

bool ExchangeSqueezes(ProgramDesc& program, const PassContext& context) {
  return SqueezeExchanger(program, context).Run();
}

namespace {

// The attr by which a product exchanges the last two axes of Y; nullptr for other ops.
const char* TransposesY(const OpDesc& op) {
  if (op.type() == "matmul_v2") return "trans_y";
  return op.type() == "matmul" && op.GetAttr<int32_t>("head_number", 1) == 1 ? "transpose_Y"
                                                                             : nullptr;
}

bool ExchangesLastTwo(Ints axes) {
  if (axes.size() < 2) return false;
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return IsPermutation(axes) && IsIdentity(axes);
}

}  // namespace

void AbsorbTransposes(ProgramDesc& program, const PassContext& context) {
  BlockDesc& block = program.Root();
  ValueFlow flow(program, context);
  block.ForEachOp([&](OpDesc& op) {
    if (!IsTranspose(op) || !ExchangesLastTwo(AxesOf(op))) return;
    const std::string &u = op.Input("X")[0], &v = op.Output("Out")[0];
    if (!flow.IsOnlyOutput(op, v) || !flow.MayStandFor(u, op, v)) return;
    const auto readers = std::as_const(block).Uses(v).readers;
    const bool all = std::all_of(readers.begin(), readers.end(), [&](const OpDesc* reader) {
      return TransposesY(*reader) && !flow.IsRecomputed(*reader) && !flow.IsReplaced(*reader) &&
             reader->Input("Y") == std::vector<std::string>{v} &&
             reader->Input("X") != reader->Input("Y");
    });
    if (!all) return;
    for (const OpDesc* reader : readers) {
      OpDesc product(*reader);
      product.SetInput("Y", {u});
      product.SetAttr(TransposesY(*reader), !reader->GetAttr<bool>(TransposesY(*reader), false));
      flow.Replace(*reader, product);
    }
    flow.Remove(op);
  });
  flow.Apply();
}

}  // namespace coracle::inline internal
