// Removes ops that return their input: readers of their output read the input instead. Most of
// these ops cost no time, but they hide patterns from other passes.

#include <coracle/framework/op/op_def.h>
#include <coracle/passes/identity_rules.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <optional>

namespace coracle::inline internal {
namespace {

using Ints = std::vector<int32_t>;

// Whether `var` is Out, not XShape, which programs may also read.
bool IsOutOf(const OpDesc& op, const std::string& var) {
  const auto& out = op.Output("Out");
  return out.size() == 1 && out[0] == var;
}

bool IsReshape(const OpDesc& op) { return op.type() == "reshape" || op.type() == "reshape2"; }

// Whether the second op copies no dimension, or only the rows, which both inputs share. (Without
// rows, a list of fixed numbers may change the product of the other dimensions.)
bool OnlyItsShapeCounts(const OpDesc& first, const OpDesc& second, const OpRegistry& ops) {
  const auto shape_of = [&](const OpDesc& op) {
    return ops.Get(op.type()).AttrOf<Ints>(op, "shape");
  };
  const Ints shape = shape_of(second);
  if (shape.empty() || std::count(shape.begin() + 1, shape.end(), 0) > 0) return false;
  if (shape[0] != 0 || !IsReshape(first)) return true;
  const Ints between = shape_of(first);
  return std::count(between.begin(), between.end(), -1) == 1;
}

// Whether the op is reshape-like and keeps the number of rows, so that LoD passes.
bool KeepsRows(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  if (!spec) return false;
  const auto after_rows = [](const Ints& axes) {
    return !axes.empty() && std::all_of(axes.begin(), axes.end(), [](int32_t a) { return a > 0; });
  };
  const std::string& type = op.type();
  if (IsReshape(op)) {
    const Ints shape = spec->AttrOf<Ints>(op, "shape");
    return !shape.empty() && shape[0] == 0;
  }
  if (type == "unsqueeze" || type == "unsqueeze2" || type == "squeeze" || type == "squeeze2")
    return after_rows(spec->AttrOf<Ints>(op, "axes"));
  if (type == "flatten" || type == "flatten2") return spec->AttrOf<int32_t>(op, "axis") == 1;
  return type == "flatten_contiguous_range" && spec->AttrOf<int32_t>(op, "start_axis") > 0;
}

// Whether the second op removes the dimensions that the first one inserts.
bool IsUnsqueezeAndSqueeze(const OpDesc& first, const OpDesc& second, const OpRegistry& ops) {
  if (first.type() != "unsqueeze" && first.type() != "unsqueeze2") return false;
  if (second.type() != "squeeze" && second.type() != "squeeze2") return false;
  const Ints in = ops.Get(first.type()).AttrOf<Ints>(first, "axes");
  Ints out = ops.Get(second.type()).AttrOf<Ints>(second, "axes");
  std::sort(out.begin(), out.end());
  // In ascending order, each axis is the final position of its dimension.
  return std::adjacent_find(in.begin(), in.end(), std::greater_equal<>()) == in.end() && in == out;
}

class IdentityRemover {
 public:
  IdentityRemover(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()), flow_(program, context) {}

  void Run() {
    const VariableFacts facts = {[this](const std::string& var) { return flow_.CertainRank(var); },
                                 [this](const std::string& var) { return DTypeOf(var); }};
    block_.ForEachOp([&](OpDesc& op) {
      const OpSpec* spec = context_.ops.Find(op.type());
      if (!spec || flow_.IsRecomputed(op)) return;
      const std::string input = ReturnedInput(op, *spec, facts);
      if (!input.empty() && Redirect(op, input)) return;
      if (!MakeScale(op, *spec)) JoinReshapes(op);
    });
    flow_.Apply();
  }

 private:
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

  // In a test, dropout that does not scale in training is a scale with a float factor.
  bool MakeScale(const OpDesc& op, const OpSpec& spec) {
    const std::optional<float> factor = TestDropoutFactor(op, spec);
    if (!factor) return false;
    const auto &in = op.Input("X"), &out = op.Output("Out");
    if (in.size() != 1 || out.size() != 1 || !flow_.IsOnlyOutput(op, out[0])) return false;
    if (DTypeOf(in[0]) != DType::kFloat32) return false;
    OpDesc scale("scale", {{"X", in}}, {{"Out", out}}, {{"scale", *factor}});
    CopyRemarks(op, scale);
    flow_.Replace(op, scale);
    return true;
  }

  // Joins a reshape-like op with reshape-like ops before it if no other op reads their results:
  // only the last shape counts.
  void JoinReshapes(const OpDesc& op) {
    if (HasOtherInput(op, "X") || op.Input("X").size() != 1 || op.Output("Out").size() != 1 ||
        !flow_.IsOnlyOutput(op, op.Output("Out")[0]))
      return;
    std::string between = op.Input("X")[0];
    const OpDesc* before = ReshapeThatWrites(between);
    if (before && IsUnsqueezeAndSqueeze(*before, op, context_.ops)) {
      const std::string& x = before->Input("X")[0];
      if (flow_.IsSame(flow_.Source(x), *before, op)) Redirect(op, x);
      return;
    }
    while (before && IsReshape(op) && OnlyItsShapeCounts(*before, op, context_.ops) &&
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
                   !flow_.IsRecomputed(*op) && KeepsRows(*op, context_.ops)
               ? op
               : nullptr;
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

}  // namespace coracle::inline internal
