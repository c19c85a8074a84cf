#include <coracle/clip/split_factor.h>
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

bool ClipsNorm(const OpSpec& spec) { return spec.FindAttr("max_norm") != nullptr; }

// A clip of a gradient, in place, and not a clip of the model that is computed again.
bool IsErrorClip(const OpDesc& op, const OpSpec& spec) {
  const bool by_value = spec.elementwise && spec.FindAttr("min") && spec.FindAttr("max");
  return (by_value || ClipsNorm(spec)) && IsBackward(op) && !op.HasAttr(kRecomputedFromAttr) &&
         op.Input("X") == op.Output("Out");
}

// The gradient that the op clips. Under loss scaling it may clip a copy, which is no gradient by
// its name.
std::string ClippedGradient(const OpDesc& op) {
  std::string name = op.Input("X").at(0);
  for (int copies = 0; copies < 2 && name.find(kGradSuffix) == name.npos; ++copies) {
    const auto writers = std::as_const(*op.block()).Uses(name).writers;
    const auto copy = std::find_if(writers.begin(), writers.end(), [&](const OpDesc* writer) {
      return writer->Input("X").size() == 1 && !writer->Reads(name);
    });
    if (copy == writers.end()) break;
    name = (*copy)->Input("X")[0];
  }
  return name;
}

// The variable whose gradient the op clips: by the op's mark, which may be wrong in a file; in
// programs without marks, by the gradient's name. "" if they do not agree.
std::string ClippedVariable(const OpDesc& op) {
  const std::string grad = ClippedGradient(op), of = MarkOf(op).of;
  if (of.empty()) return grad.substr(0, grad.find(kGradSuffix));
  return grad.starts_with(GradName(of)) ? of : "";
}

[[noreturn]] void RefuseClip(const OpDesc& op, const std::string& why) {
  Refuse(op, fmt::format("the error clip of {} {}, so it would clip a part of what one rank clips; "
                         "leave out that error clip",
                         Quote(op.Input("X").at(0)), why));
}

// Whether the limit is a constant that loses digits when it is divided by 2^64.
bool IsSmallLimit(const BlockDesc& root, const OpDesc& op) {
  if (!op.HasInput("MaxNorm")) return false;  // an attr is a float32
  const auto writers = root.Uses(op.Input("MaxNorm")[0]).writers;
  if (writers.size() != 1 || !IsConstant(*writers[0])) return false;
  double limit = 0;
  return ParseDouble(writers[0]->GetAttr<std::string>("str_value", ""), &limit) && limit > 0 &&
         limit <= kLeastScaledLimit;
}

// The norm over all ranks, divided by 2^exponent.
Variable NormOfAll(const Writer& w, const std::string& grad, int32_t exponent,
                   const AllReduceOptions& options) {
  const Variable own = w.Make("total_norm", {{"X", {grad}}}, {{"exponent", exponent}});
  const Variable all =
      w.Make("c_allgather", {{"X", {own.name()}}},
             {{"ring_id", int32_t{options.ring_id}}, {"nranks", int32_t{options.nranks}}});
  return w.Make("total_norm", {{"X", {all.name()}}});
}

// limit / max(norm, limit) for float64. With a small limit the norm is not divided by 2^exponent,
// and a larger norm is infinite: the gradient becomes zeros. Limits that are computed are assumed
// to be at least 4.1e-289.
SplitFactor FactorOfDouble(const Writer& w, const Variable& norm, Variable limit,
                           int32_t exponent) {
  using Double = std::numeric_limits<double>;
  if (exponent != 0) limit = Max(limit * std::ldexp(1, -exponent), Double::min());
  const Variable reach = Min(limit * std::ldexp(1, 1000), Double::max());
  return SplitQuotient(w, limit, Max(norm, limit), reach);
}

// Replaces the clip by a scale by limit / max(norm, limit), in float64, for the norm of all ranks.
void ClipByNormOfAll(OpDesc& op, const VarDesc& grad, const AllReduceOptions& options,
                     OpInserter* inserter) {
  const bool is_double = grad.dtype() == DType::kFloat64;
  const int32_t exponent = is_double && !IsSmallLimit(*op.block(), op) ? kNormExponent : 0;
  const Variable factor = inserter->Before(op, RoleOf(op), [&](const Writer& w) {
    const Variable norm = NormOfAll(w, grad.name(), exponent, options);
    const Variable limit =
        op.HasInput("MaxNorm")
            ? Cast(w.Var(op.Input("MaxNorm")[0]), DType::kFloat64)
            : FillConstant(w, DType::kFloat64, double{op.GetAttr<float>("max_norm", 0)});
    if (!is_double) return limit / Max(limit, norm);
    const auto [factor, rest] = FactorOfDouble(w, norm, limit, exponent);
    ScaleInPlace(w, grad.name(), rest);
    return factor;
  });
  op.SetType("scale");
  op.RemoveAttr("max_norm");
  op.RemoveAttr("axis");
  op.SetInput("MaxNorm", {});
  op.SetInput("ScaleTensor", {factor.name()});
}

// Checks an op that is marked as counting the clip: only such ops may read what it makes, or it
// updates statistics.
const OpDesc& RequireOfClip(const OpDesc& op, const OpDesc& clip) {
  const bool others_read = op.AnyOutput([&](const std::string& name) {
    const auto readers = op.block()->Uses(name).readers;
    return std::any_of(readers.begin(), readers.end(), [](const OpDesc* reader) {
      return MarkOf(*reader).stage != TrainingStage::kErrorClip;
    });
  });
  if (!others_read || op.HasOutput("StatisticsOut")) return op;
  RefuseClip(clip,
             fmt::format("has {} marked as its part, and other ops read the result", op.type()));
}

// Each rank clips the sum over the ranks and goes on with its share. The ops that count the clip,
// directly around it, see the sum too.
void ClipSum(const OpDesc& op, const VarDesc& grad, const Part& part, const WholeWriter& writer,
             const AllReduceOptions& options, OpInserter* inserter) {
  const BlockDesc& block = *op.block();
  const OpDesc *first = &op, *last = &op;
  for (size_t i = block.IndexOf(op); i-- > 0;) {
    const OpDesc& before = block.op(i);
    if (MarkOf(before).stage != TrainingStage::kErrorClip || before.Writes(grad.name())) break;
    if (before.Reads(grad.name())) first = &RequireOfClip(before, op);
  }
  const size_t next = block.IndexOf(op) + 1;
  if (next < block.NumOps() && MarkOf(block.op(next)).part == TrainingPart::kStatistics)
    last = &RequireOfClip(block.op(next), op);
  inserter->Before(*first, kBackward,
                   [&](const Writer& w) { SumInPlace(w, {grad.name()}, options.ring_id); });
  inserter->After(*last, kBackward, [&](const Writer& w) {
    if (const auto share = writer.Factor(w, part, grad.dtype()))
      ScaleInPlace(w, grad.name(), *share);
  });
}

}  // namespace

void ClipAsOneRank(ProgramDesc& main, const PartValues& parts, const WholeWriter& writer,
                   const AllReduceOptions& options, bool declared, OpInserter* inserter) {
  const OpRegistry& ops = OpsOf(options);
  main.ForEachOp([&](OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !IsErrorClip(op, *spec)) return;
    const VarDesc& grad = VarOf(*op.block(), op.Input("X").at(0));
    const std::string name = ClippedVariable(op);
    const VarDesc* var = op.block()->FindVarRecursive(name);
    if (!var || !(var->shape() == grad.shape())) {
      const std::string of = MarkOf(op).of;
      RefuseClip(op, of.empty() ? "is for an unknown variable"
                                : fmt::format("is marked as the clip of {}, whose gradient is "
                                              "another",
                                              Quote(of)));
    }
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
