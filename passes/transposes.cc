#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/transposes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
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
  const bool had_edits = flow.HasEdits();
  flow.Apply();
  if (!had_edits) return false;
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
