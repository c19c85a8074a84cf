// Lets ops that give the same numbers in any floating-point type compute in float32 between ops
// that do. A float16 convolution of an importer computes in float32 and rounds once:
//
//   h = cast(y) float16, r = relu(h), p = max pool(r), x = cast(p) float32
//
// is replaced by
//
//   a = relu(y), b = cast(a) float16, c = cast(b) float32, x = max pool(c)
//
// so that the convolution applies relu, and one sweep instead of four rounds and widens.

#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

constexpr DType kHalf = DType::kFloat16;

bool IsCastTo(const OpDesc& op, DType dtype) {
  return op.type() == "cast" && op.Input("X").size() == 1 && op.Output("Out").size() == 1 &&
         op.GetAttr<int32_t>("out_dtype", -1) == static_cast<int32_t>(dtype);
}

// Ops that only move or select elements.
bool Selects(const OpDesc& op, const OpSpec& spec) {
  static constexpr std::string_view kTypes[] = {"relu",
                                                "concat",
                                                "transpose",
                                                "transpose2",
                                                "reshape",
                                                "reshape2",
                                                "squeeze",
                                                "squeeze2",
                                                "unsqueeze",
                                                "unsqueeze2",
                                                "flatten",
                                                "flatten2",
                                                "flatten_contiguous_range"};
  if (op.type() == "pool2d") return spec.AttrOf<std::string>(op, "pooling_type") == "max";
  return std::find(std::begin(kTypes), std::end(kTypes), op.type()) != std::end(kTypes);
}

// Functions that never fall, and that change a float16 number only to a bound or not at all. So
// rounding before and after them gives the same as rounding only after them, also if float16 does
// not hold the bound.
bool MayRoundLater(const OpDesc& op) {
  return (op.type() == "relu" || op.type() == "relu6" || op.type() == "clip") &&
         !HasOtherInput(op, "X");
}

class HalfWidener {
 public:
  HalfWidener(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()), flow_(program, context) {}

  void Run() {
    std::vector<const OpDesc*> ops;
    std::as_const(block_).ForEachOp([&](const OpDesc& op) { ops.push_back(&op); });
    for (size_t i = ops.size(); i-- > 0;) Classify(*ops[i]);
    if (widened_.empty()) return;
    for (const OpDesc* op : ops) NoteRounded(*op);
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) Emit(std::move(op));
    for (const std::unique_ptr<OpDesc>& op : made_) {
      op->RenameInputs([&](const std::string& name) {
        const auto renamed = renamed_.find(name);
        return renamed == renamed_.end() ? name : renamed->second;
      });
    }
    block_.SetOps(std::move(made_));
    EliminateDeadCode(program_, context_);
  }

 private:
  // Called from the last op to the first. Two kinds of ops are widened: those that may compute
  // before their input is rounded, and those whose result is only read by casts to float32 and by
  // widened ops.
  void Classify(const OpDesc& op) {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || op.Output("Out").size() != 1 || flow_.IsRecomputed(op)) return;
    const std::string& out = op.Output("Out")[0];
    if (!flow_.IsTemporary(out) || !flow_.IsOnlyOutput(op, out)) return;
    if (IsCastTo(op, DType::kFloat32)) {
      const std::string& half = op.Input("X")[0];
      if (IsHalf(half) && flow_.IsConstantInARun(half)) casts_.insert(&op);
      return;
    }
    if (HasOtherInput(op, "X") || !IsHalf(out) || !InputsAreHalf(op)) return;
    if (RoundsLater(op)) return void(widened_.insert(&op));
    const bool takes = Selects(op, *spec);
    const auto readers = std::as_const(block_).Uses(out).readers;
    if (takes && !readers.empty() &&
        std::all_of(readers.begin(), readers.end(),
                    [&](const OpDesc* r) { return casts_.count(r) > 0 || widened_.count(r) > 0; }))
      widened_.insert(&op);
  }

  bool IsHalf(const std::string& var) const { return DTypeOfTensor(block_, var) == kHalf; }
  bool InputsAreHalf(const OpDesc& op) const {
    return !op.AnyInput(
        [&](const std::string& name) { return !IsHalf(name) || !flow_.IsConstantInARun(name); });
  }

  // Whether the op may compute before its input is rounded.
  bool RoundsLater(const OpDesc& op) const {
    if (!MayRoundLater(op) || op.Input("X").size() != 1) return false;
    const std::string& h = op.Input("X")[0];
    const OpDesc* cast = flow_.WriterOf(h);
    return cast && IsCastTo(*cast, kHalf) && flow_.NumReaders(h) == 1 &&
           DTypeOfTensor(block_, cast->Input("X")[0]) == DType::kFloat32 &&
           flow_.IsConstantInARun(cast->Input("X")[0]) && !flow_.IsRecomputed(*cast);
  }

  // Of a widened op that rounds later: the value that is not yet rounded.
  void NoteRounded(const OpDesc& op) {
    if (widened_.count(&op) && RoundsLater(op))
      unrounded_[&op] = flow_.WriterOf(op.Input("X")[0])->Input("X")[0];
  }

  void Emit(std::unique_ptr<OpDesc> op) {
    if (casts_.count(op.get())) {
      const std::string& wide = op->Output("Out")[0];
      const auto [twin, added] = twins_.try_emplace(op->Input("X")[0], wide);
      if (!added) return void(renamed_[wide] = twin->second);
    }
    if (!widened_.count(op.get())) return void(made_.push_back(std::move(op)));
    const std::string out = op->Output("Out")[0];
    const auto unrounded = unrounded_.find(op.get());
    if (unrounded == unrounded_.end()) {
      op->RenameInputs([&](const std::string& name) { return TwinOf(name, *op); });
      twins_[out] = Widened(out);
      op->SetOutput("XShape", {});  // unread, and float16
      op->RenameOutputs(
          [&](const std::string& name) { return name == out ? twins_.at(out) : name; });
      made_.push_back(std::move(op));
      return;
    }
    const OpDesc given(*op);
    const std::string wide = Widened(out);
    op->SetInput("X", {unrounded->second});
    op->SetOutput("Out", {wide});
    made_.push_back(std::move(op));
    Cast(wide, out, kHalf, given);
  }

  // The value in float32.
  std::string TwinOf(const std::string& half, const OpDesc& reader) {
    const auto [it, added] = twins_.try_emplace(half);
    if (added) {
      it->second = Widened(half);
      Cast(half, it->second, DType::kFloat32, reader);
    }
    return it->second;
  }

  void Cast(const std::string& from, const std::string& to, DType dtype, const OpDesc& given) {
    const DType before = dtype == kHalf ? DType::kFloat32 : kHalf;
    made_.push_back(std::make_unique<OpDesc>("cast", SlotList{{"X", {from}}},
                                             SlotList{{"Out", {to}}},
                                             AttrList{{"in_dtype", static_cast<int32_t>(before)},
                                                      {"out_dtype", static_cast<int32_t>(dtype)}}));
    AddOrigins(given, *made_.back());
  }

  std::string Widened(const std::string& half) const {
    return context_.AddForm(program_, half, "@WIDE", DType::kFloat32);
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  // Casts to float32 of values that do not change; ops that will compute in float32.
  std::unordered_set<const OpDesc*> casts_, widened_;
  std::unordered_map<const OpDesc*, std::string> unrounded_;
  std::unordered_map<std::string, std::string> twins_, renamed_;
  std::vector<std::unique_ptr<OpDesc>> made_;
};

}  // namespace

void WidenHalves(ProgramDesc& program, const PassContext& context) {
  const auto narrows = [](const OpDesc& op) { return IsCastTo(op, kHalf); };
  if (AnyOp(program.Root(), narrows)) HalfWidener(program, context).Run();
}

}  // namespace coracle::inline internal
