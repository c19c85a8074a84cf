#include <coracle/distribute/error_clips.h>
#include <coracle/distribute/exchange_ops.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle::inline internal {
namespace {

constexpr int32_t kClipExponent = 64;
constexpr double kLeastScaled = 1e-280;

bool ClipsNorm(const OpSpec& spec) { return spec.FindAttr("max_norm") != nullptr; }

// A clip of a gradient, in place, and not a clip of the model that is computed again.
bool IsErrorClip(const OpDesc& op, const OpSpec& spec) {
  const bool by_value = spec.elementwise && spec.FindAttr("min") && spec.FindAttr("max");
  return (by_value || ClipsNorm(spec)) && IsBackward(op) && !op.HasAttr(kRecomputedFromAttr) &&
         op.Input("X") == op.Output("Out");
}

// The variable whose gradient the op clips; in programs without marks, by the gradient's name.
std::string ClippedVariable(const OpDesc& op) {
  const std::string of = MarkOf(op).of;
  const std::string& grad = op.Input("X").at(0);
  return of.empty() ? grad.substr(0, grad.find(kGradSuffix)) : of;
}

[[noreturn]] void RefuseClip(const OpDesc& op, const std::string& why) {
  ThrowInvalid(
      fmt::format("distribute: the error clip of {} {}, so it would clip a part of what one "
                  "rank clips; leave out that error clip",
                  Quote(op.Input("X").at(0)), why),
      "  " + Locate(op));
}

// Whether the limit is a constant that loses digits when it is divided by 2^64.
bool IsSmallLimit(const BlockDesc& root, const OpDesc& op) {
  if (!op.HasInput("MaxNorm")) return false;  // an attr is a float32
  const auto writers = root.Uses(op.Input("MaxNorm")[0]).writers;
  if (writers.size() != 1 || !IsConstant(*writers[0])) return false;
  double limit = 0;
  return ParseDouble(writers[0]->GetAttr<std::string>("str_value", ""), &limit) && limit > 0 &&
         limit <= kLeastScaled;
}

// The norm over all ranks, divided by 2^exponent.
Variable NormOfAll(const Writer& w, const std::string& grad, int32_t exponent,
                   const WholeValueOptions& options) {
  const Variable own = w.Make("total_norm", {{"X", {grad}}}, {{"exponent", exponent}});
  const Variable all =
      w.Make("c_allgather", {{"X", {own.name()}}},
             {{"ring_id", int32_t{options.ring_id}}, {"nranks", int32_t{options.nranks}}});
  return w.Make("total_norm", {{"X", {all.name()}}});
}

// Norms of float64 gradients may exceed every float64, so `norm` is divided by 2^exponent. With a
// small limit it is not, and a larger norm is infinite: the gradient becomes zeros. The factor may
// be smaller than every number with all digits. It is therefore a product: the gradient is
// multiplied by one factor here, which is 1 except for extreme gradients, and the other is
// returned. Limits that are computed are assumed to be at least 4.1e-289.
Variable SplitFactor(const Writer& w, const std::string& grad, const Variable& norm,
                     const Variable& limit, int32_t exponent) {
  using Double = std::numeric_limits<double>;
  Variable small = limit;
  if (exponent != 0) small = Max(limit * std::ldexp(1, -exponent), Double::min());
  const Variable larger = Max(norm, small);
  const Variable reach = Min(small * std::ldexp(1, 1000), Double::max());
  const Variable rest = 1.0 / Max(larger / reach, 1.0);
  ScaleInPlace(w, grad, rest);
  return small / Min(larger, reach);
}

// Replaces the clip by a scale by limit / max(norm, limit), in float64, for the norm of all ranks.
void ClipByNormOfAll(OpDesc& op, const VarDesc& grad, const WholeValueOptions& options,
                     OpInserter* inserter) {
  const bool is_double = grad.dtype() == DType::kFloat64;
  const int32_t exponent = is_double && !IsSmallLimit(*op.block(), op) ? kClipExponent : 0;
  const Variable factor = inserter->Before(op, RoleOf(op), [&](const Writer& w) {
    const Variable norm = NormOfAll(w, grad.name(), exponent, options);
    const Variable limit =
        op.HasInput("MaxNorm")
            ? Cast(w.Var(op.Input("MaxNorm")[0]), DType::kFloat64)
            : FillConstant(w, DType::kFloat64, double{op.GetAttr<float>("max_norm", 0)});
    if (is_double) return SplitFactor(w, grad.name(), norm, limit, exponent);
    return limit / Max(limit, norm);
  });
  op.SetType("scale");
  op.RemoveAttr("max_norm");
  op.RemoveAttr("axis");
  op.SetInput("MaxNorm", {});
  op.SetInput("ScaleTensor", {factor.name()});
}

// Each rank clips the sum over the ranks and goes on with its share. The ops that count the clip,
// directly around it, see the sum too.
void ClipSum(const OpDesc& op, const VarDesc& grad, const Part& part, const WholeWriter& writer,
             const WholeValueOptions& options, OpInserter* inserter) {
  const BlockDesc& block = *op.block();
  const OpDesc *first = &op, *last = &op;
  for (size_t i = block.IndexOf(op); i-- > 0;) {
    const OpDesc& before = block.op(i);
    if (MarkOf(before).stage != TrainingStage::kErrorClip || before.Writes(grad.name())) break;
    if (before.Reads(grad.name())) first = &before;
  }
  const size_t next = block.IndexOf(op) + 1;
  if (next < block.NumOps() && MarkOf(block.op(next)).part == TrainingPart::kStatistics)
    last = &block.op(next);
  inserter->Before(*first, kBackward,
                   [&](const Writer& w) { SumInPlace(w, {grad.name()}, options.ring_id); });
  inserter->After(*last, kBackward, [&](const Writer& w) {
    if (const auto share = writer.Factor(w, part, grad.dtype()))
      ScaleInPlace(w, grad.name(), *share);
  });
}

}  // namespace

void ClipAsOneRank(ProgramDesc& main, const PartValues& parts, const WholeWriter& writer,
                   const WholeValueOptions& options, bool declared, OpInserter* inserter) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  main.ForEachOp([&](OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !IsErrorClip(op, *spec)) return;
    const VarDesc& grad = VarOf(*op.block(), op.Input("X").at(0));
    const std::string name = ClippedVariable(op);
    const VarDesc* var = op.block()->FindVarRecursive(name);
    if (!var || !(var->shape() == grad.shape()))
      RefuseClip(op, fmt::format("does not name a variable of its shape, but {}", Quote(name)));
    const bool by_norm = ClipsNorm(*spec), is_open = !var->shape().IsKnown();
    const Part& part = parts.Of(name);
    if (op.block() != &main.Root()) {
      if (by_norm || !is_open) RefuseClip(op, "is in a block");
    } else if (grad.type() != VarType::kLoDTensor) {
      RefuseClip(op, "is for selected rows");
    } else if (part.kind == PartKind::kRows || (part.kind == PartKind::kUnknown && is_open)) {
      const int32_t axis = by_norm ? op.GetAttr<int32_t>("axis", -1) : -1;
      const bool of_each_row = part.kind == PartKind::kRows && axis == part.place.axis;
      if (axis >= 0 && !of_each_row) RefuseClip(op, "is for slices along an axis without the rows");
      if (by_norm && axis < 0) ClipByNormOfAll(op, grad, options, inserter);
    } else if (part.kind == PartKind::kSame || part.kind == PartKind::kMean) {
      if (is_open) RefuseClip(op, "is for a value of open shape without rows");
      ClipSum(op, grad, part, writer, options, inserter);
    } else if (part.kind != PartKind::kSum || declared) {
      RefuseClip(op, "is for a value whose weight is unknown");
    }
  });
}

}  // namespace coracle::inline internal
