// Removes ops that return their input: readers of their output read the input instead. Most of
// these ops cost no time, but they hide patterns from other passes.

#include <coracle/framework/op/op_spec.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace coracle {
namespace {

using Ints = std::vector<int32_t>;

bool AllAre(const Ints& list, int32_t value) {
  return std::all_of(list.begin(), list.end(), [&](int32_t i) { return i == value; });
}

class IdentityRemover {
 public:
  IdentityRemover(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()), flow_(program, context) {}

  void Run() {
    block_.ForEachOp([&](OpDesc& op) {
      const OpSpec* spec = context_.ops.Find(op.type());
      if (!spec || flow_.IsRecomputed(op)) return;
      if (!RemoveIdentity(op, *spec) && !MakeScale(op, *spec)) JoinReshapes(op, *spec);
    });
    flow_.Apply();
  }

 private:
  // For a type of op: when its output is its input.
  struct Rule {
    const char* input;
    bool (IdentityRemover::*holds)(const OpDesc& op, const OpSpec& spec);
  };
  static const std::unordered_map<std::string, Rule>& Rules() {
    using R = IdentityRemover;
    static const std::unordered_map<std::string, Rule> rules = {
        {"assign", {"X", &R::Always}},
        {"share_data", {"X", &R::Always}},
        {"memcpy", {"X", &R::Always}},
        {"stop_gradient", {"X", &R::Always}},
        {"scale", {"X", &R::IsScaleByOne}},
        {"cast", {"X", &R::IsCastToItself}},
        {"dropout", {"X", &R::DropsNothing}},
        {"concat", {"X", &R::Always}},  // of one input
        {"sum", {"X", &R::Always}},
        {"pad", {"X", &R::PadsNothing}},
        {"pad2d", {"X", &R::PadsNothing}},
        {"pad3d", {"X", &R::PadsNothing}},
        {"slice", {"Input", &R::IsWholeSlice}},
        {"expand", {"X", &R::RepeatsOnce}},
        {"expand_v2", {"X", &R::KeepsAllDims}},
        {"reshape", {"X", &R::IsSameShape}},
        {"reshape2", {"X", &R::IsSameShape}},
        {"unsqueeze", {"X", &R::InsertsNothing}},
        {"unsqueeze2", {"X", &R::InsertsNothing}},
        {"flatten_contiguous_range", {"X", &R::MergesOneDim}},
        {"transpose2", {"X", &R::KeepsOrder}},
    };
    return rules;
  }

  bool RemoveIdentity(const OpDesc& op, const OpSpec& spec) {
    auto rule = Rules().find(op.type());
    if (rule == Rules().end()) return false;
    const auto &in = op.Input(rule->second.input), &out = op.Output("Out");
    if (in.size() != 1 || out.size() != 1 || IsEmptyName(in[0]) || IsEmptyName(out[0]))
      return false;
    // It must also pass on the LoD.
    const std::string* lod = spec.LodSource(op, "Out", 0);
    if (!lod || *lod != in[0] || !(this->*rule->second.holds)(op, spec)) return false;
    return Redirect(op, in[0]);
  }

  bool Redirect(const OpDesc& op, const std::string& in) {
    const std::string& out = op.Output("Out")[0];
    const std::string source = flow_.Source(in);
    if (!IsDense(source) || !flow_.IsOnlyOutput(op, out) || !flow_.MayStandFor(source, op, out))
      return false;
    flow_.Forward(out, source);
    flow_.Remove(op);
    return true;
  }

  bool IsDense(const std::string& var) const {
    const VarDesc* desc = block_.FindVarRecursive(var);
    return desc && desc->type() == VarType::kLoDTensor;
  }

  // --- rules ---

  bool Always(const OpDesc&, const OpSpec&) { return true; }

  bool IsScaleByOne(const OpDesc& op, const OpSpec& spec) {
    return !HasOtherInput(op, "X") && spec.AttrOf<float>(op, "scale") == 1 &&
           spec.AttrOf<float>(op, "bias") == 0;
  }

  bool IsCastToItself(const OpDesc& op, const OpSpec& spec) {
    const std::optional<DType> x = DTypeOf(op.Input("X")[0]);
    return x && static_cast<int32_t>(*x) == spec.AttrOf<int32_t>(op, "out_dtype");
  }

  // The factor is rounded to X's dtype. A factor of 1 in double is 1 in all dtypes.
  bool DropsNothing(const OpDesc& op, const OpSpec& spec) {
    if (!spec.AttrOf<bool>(op, "is_test")) return false;
    if (Upscales(op, spec) || KeptShare(op, spec) == 1) return true;
    return static_cast<float>(KeptShare(op, spec)) == 1 &&
           DTypeOf(op.Input("X")[0]) == DType::kFloat32;
  }
  static bool Upscales(const OpDesc& op, const OpSpec& spec) {
    return spec.AttrOf<std::string>(op, "dropout_implementation") == "upscale_in_train";
  }
  static double KeptShare(const OpDesc& op, const OpSpec& spec) {
    return 1 - static_cast<double>(spec.AttrOf<float>(op, "dropout_prob"));
  }

  bool PadsNothing(const OpDesc& op, const OpSpec& spec) {
    return !HasOtherInput(op, "X") && AllAre(spec.AttrOf<Ints>(op, "paddings"), 0);
  }

  // A slice of axis 0 has no LoD.
  bool IsWholeSlice(const OpDesc& op, const OpSpec& spec) {
    const Ints axes = spec.AttrOf<Ints>(op, "axes");
    return !HasOtherInput(op, "Input") && spec.AttrOf<Ints>(op, "decrease_axis").empty() &&
           std::all_of(axes.begin(), axes.end(), [](int32_t axis) { return axis > 0; }) &&
           AllAre(spec.AttrOf<Ints>(op, "starts"), 0) &&
           AllAre(spec.AttrOf<Ints>(op, "ends"), std::numeric_limits<int32_t>::max());
  }

  bool RepeatsOnce(const OpDesc& op, const OpSpec& spec) {
    return !HasOtherInput(op, "X") && AllAre(spec.AttrOf<Ints>(op, "expand_times"), 1);
  }

  // More numbers than dimensions are an error.
  bool KeepsAllDims(const OpDesc& op, const OpSpec& spec) {
    return !HasOtherInput(op, "X") && AllAre(spec.AttrOf<Ints>(op, "shape"), -1);
  }

  // All dimensions are copied, except one that is inferred and so stays the same.
  bool IsSameShape(const OpDesc& op, const OpSpec& spec) {
    const Ints shape = spec.AttrOf<Ints>(op, "shape");
    const auto inferred = std::count(shape.begin(), shape.end(), -1);
    const auto copied = std::count(shape.begin(), shape.end(), 0);
    return !HasOtherInput(op, "X") && !shape.empty() && inferred <= 1 &&
           copied + inferred == static_cast<std::ptrdiff_t>(shape.size()) &&
           flow_.CertainRank(op.Input("X")[0]) == static_cast<int>(shape.size());
  }

  bool InsertsNothing(const OpDesc& op, const OpSpec& spec) {
    return !HasOtherInput(op, "X") && spec.AttrOf<Ints>(op, "axes").empty();
  }

  bool MergesOneDim(const OpDesc& op, const OpSpec& spec) {
    return spec.AttrOf<int32_t>(op, "start_axis") == spec.AttrOf<int32_t>(op, "stop_axis") &&
           flow_.CertainRank(op.Input("X")[0]) > 0;
  }

  bool KeepsOrder(const OpDesc& op, const OpSpec& spec) {
    const Ints axis = spec.AttrOf<Ints>(op, "axis");
    for (size_t i = 0; i < axis.size(); ++i) {
      if (axis[i] != static_cast<int32_t>(i)) return false;
    }
    return true;
  }

  // --- other rewrites ---

  // In a test, dropout that does not scale in training is a scale with a float factor.
  bool MakeScale(const OpDesc& op, const OpSpec& spec) {
    if (op.type() != "dropout" || !spec.AttrOf<bool>(op, "is_test") || Upscales(op, spec))
      return false;
    const auto &in = op.Input("X"), &out = op.Output("Out");
    if (in.size() != 1 || out.size() != 1 || !flow_.IsOnlyOutput(op, out[0])) return false;
    if (DTypeOf(in[0]) != DType::kFloat32) return false;
    OpDesc scale("scale", {{"X", in}}, {{"Out", out}},
                 {{"scale", static_cast<float>(KeptShare(op, spec))}});
    CopyRemarks(op, scale);
    flow_.Replace(op, scale);
    return true;
  }

  // Joins a reshape-like op with reshape-like ops before it if no other op reads their results:
  // only the last shape counts.
  void JoinReshapes(const OpDesc& op, const OpSpec& spec) {
    if (HasOtherInput(op, "X") || op.Input("X").size() != 1 || op.Output("Out").size() != 1 ||
        !flow_.IsOnlyOutput(op, op.Output("Out")[0]))
      return;
    std::string between = op.Input("X")[0];
    const OpDesc* before = ReshapeThatWrites(between);
    if (before && IsUnsqueezeAndSqueeze(*before, op, spec)) {
      const std::string& x = before->Input("X")[0];
      if (flow_.IsSame(flow_.Source(x), *before, op)) Redirect(op, x);
      return;
    }
    while (before && IsReshape(op) && OnlyItsShapeCounts(*before, op) &&
           flow_.NumReaders(between) == 1 && flow_.IsOnlyOutput(*before, between)) {
      const std::string& x = before->Input("X")[0];
      if (!flow_.IsSame(flow_.Source(x), *before, op)) return;
      flow_.Forward(between, x);
      flow_.Remove(*before);
      between = x;
      before = ReshapeThatWrites(between);
    }
  }

  // The op that writes `var`, if it is reshape-like and keeps the rows and so their LoD.
  const OpDesc* ReshapeThatWrites(const std::string& var) const {
    const OpDesc* op = flow_.WriterOf(var);
    return op && IsOutOf(*op, var) && !HasOtherInput(*op, "X") && op->Input("X").size() == 1 &&
                   !flow_.IsRecomputed(*op) && KeepsRows(*op)
               ? op
               : nullptr;
  }

  // Whether `var` is Out, not XShape, which programs may also read.
  static bool IsOutOf(const OpDesc& op, const std::string& var) {
    const auto& out = op.Output("Out");
    return out.size() == 1 && out[0] == var;
  }

  static bool IsReshape(const OpDesc& op) {
    return op.type() == "reshape" || op.type() == "reshape2";
  }

  // Whether the second op copies no dimension, or only the rows, which both inputs share. (Without
  // rows, a list of fixed numbers may change the product of the other dimensions.)
  bool OnlyItsShapeCounts(const OpDesc& first, const OpDesc& second) const {
    const auto shape_of = [&](const OpDesc& op) {
      return context_.ops.Get(op.type()).AttrOf<Ints>(op, "shape");
    };
    const Ints shape = shape_of(second);
    if (shape.empty() || std::count(shape.begin() + 1, shape.end(), 0) > 0) return false;
    if (shape[0] != 0 || !IsReshape(first)) return true;
    const Ints between = shape_of(first);
    return std::count(between.begin(), between.end(), -1) == 1;
  }

  // Whether the op is reshape-like and keeps the number of rows, so that LoD passes.
  bool KeepsRows(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec) return false;
    const auto behind_rows = [](const Ints& axes) {
      return !axes.empty() &&
             std::all_of(axes.begin(), axes.end(), [](int32_t a) { return a > 0; });
    };
    const std::string& type = op.type();
    if (IsReshape(op)) {
      const Ints shape = spec->AttrOf<Ints>(op, "shape");
      return !shape.empty() && shape[0] == 0;
    }
    if (type == "unsqueeze" || type == "unsqueeze2" || type == "squeeze" || type == "squeeze2")
      return behind_rows(spec->AttrOf<Ints>(op, "axes"));
    if (type == "flatten" || type == "flatten2") return spec->AttrOf<int32_t>(op, "axis") == 1;
    return type == "flatten_contiguous_range" && spec->AttrOf<int32_t>(op, "start_axis") > 0;
  }

  // Whether the second op removes the dimensions that the first one inserts.
  bool IsUnsqueezeAndSqueeze(const OpDesc& first, const OpDesc& second, const OpSpec& spec) const {
    if (first.type() != "unsqueeze" && first.type() != "unsqueeze2") return false;
    if (second.type() != "squeeze" && second.type() != "squeeze2") return false;
    const Ints in = context_.ops.Get(first.type()).AttrOf<Ints>(first, "axes");
    Ints out = spec.AttrOf<Ints>(second, "axes");
    std::sort(out.begin(), out.end());
    // In ascending order, each axis is the final position of its dimension.
    return std::adjacent_find(in.begin(), in.end(), std::greater_equal<>()) == in.end() &&
           in == out;
  }

  // The dtype of a variable that does not change during a run.
  std::optional<DType> DTypeOf(const std::string& var) {
    if (!flow_.IsConstantInARun(var)) return std::nullopt;
    if (!types_) types_.emplace(program_, context_);
    return types_->Find(var);
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  ValueFlow flow_;
  std::optional<CertainDTypes> types_;
};

}  // namespace

void RemoveIdentities(ProgramDesc& program, const PassContext& context) {
  IdentityRemover(program, context).Run();
}

}  // namespace coracle
