#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/whole_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

// The names under which copies compute the variable again.
std::set<std::string> CopiesOf(const std::string& name, const BlockDesc& block) {
  std::set<std::string> copies;
  block.ForEachOp([&](const OpDesc& op) {
    const auto from = op.GetAttr<Names>(kRecomputedFromAttr, {});
    if (from.empty()) return;
    const Names outputs = OutputNames(op);
    for (size_t i = 0; i < std::min(from.size(), outputs.size()); ++i)
      if (from[i] == name) copies.insert(outputs[i]);
  });
  return copies;
}

// The op, its gradient ops, and copies that compute it again read `now` instead of the variable.
void ReplaceRead(BlockDesc& root, const PartRead& read, const PartValues& parts,
                 const std::string& now) {
  const std::vector<const OpDesc*>& gradients = parts.GradientOpsOf(*read.op);
  const Names outputs = OutputNames(*read.op);
  std::set<std::string> names = CopiesOf(read.name, root);
  names.insert(read.name);
  for (const std::string& old : names) {
    const auto readers = root.Uses(old).readers;
    for (OpDesc* reader : std::vector<OpDesc*>(readers.begin(), readers.end())) {
      const bool is_copy = reader->type() == read.op->type() &&
                           reader->GetAttr<Names>(kRecomputedFromAttr, {}) == outputs;
      if (reader == read.op || is_copy || Contains(gradients, reader))
        reader->RenameInput(old, now);
    }
  }
}

// A declared weight: "ROWS", "SUM", or the name of the variable whose elements count.
Part DeclaredPart(const std::string& loss_weight) {
  if (loss_weight == "SUM") return {.kind = PartKind::kSum};
  return {.kind = PartKind::kMean, .weight = loss_weight == "ROWS" ? "" : loss_weight};
}

}  // namespace

// --- formulas ---

Variable WholeWriter::SumOverRanks(const Writer& w, const Variable& x) const {
  return w.Named(x.name() + "@WHOLE", w.Make("c_allreduce_sum", {{"X", {x.name()}}},
                                             {{"ring_id", int32_t{options_.ring_id}}}));
}

Variable WholeWriter::ShareOfRows(const Writer& w, DType dtype) const {
  return coracle::ShareOfRows(w, root_, options_.share, options_.nranks, dtype);
}

std::optional<Variable> WholeWriter::Counts(const Writer& w, DType dtype) const {
  if (options_.share.empty()) return std::nullopt;
  DeclareShareUnlessThere(root_, options_.share, IsFloating(dtype) ? dtype : DType::kFloat32);
  return Cast(w.Named("rank_has_rows", Sign(w.Var(options_.share))), dtype);
}

// If no rank has elements, all parts are equal: they weigh by rows, and the whole is what one rank
// would have.
Variable WholeWriter::ShareOfElements(const Writer& w, const std::string& weight,
                                      DType dtype) const {
  const DType exact = DType::kFloat64;
  const bool is_sum = parts_.Of(weight).kind == PartKind::kSum;
  Variable own = Cast(is_sum ? w.Var(weight) : w.Make("size", {{"Input", {weight}}}), exact);
  if (const auto counts = Counts(w, exact)) own = own * *counts;
  const Variable all = SumOverRanks(w, own);
  const Variable none = Equal(all, FillConstant(w, exact, 0));
  const Variable rows = ShareOfRows(w, exact), share = own / all;
  return Cast(w.Named("rank_share", Where(none, rows, share)), dtype);
}

std::optional<Variable> WholeWriter::Factor(const Writer& w, const Part& part, DType dtype) const {
  if (part.kind == PartKind::kSum) return Counts(w, dtype);
  if (part.kind == PartKind::kMean && !part.weight.empty())
    return ShareOfElements(w, part.weight, dtype);
  return ShareOfRows(w, dtype);
}

// A mean over no elements may be a nan, which counts as nothing.
WholeWriter::Weighted WholeWriter::Weigh(const Writer& w, const std::string& name,
                                         const Part& part) const {
  const Variable x = w.Var(name);
  const auto factor = Factor(w, part, x.dtype());
  if (!factor) return {name, factor};
  Variable own = w.Named(name, x * *factor);
  if (part.kind == PartKind::kMean && IsFloating(x.dtype())) {
    const Variable zeros = ZerosLike(x);
    const Variable weights = zeros + *factor;
    const Variable none = Equal(weights, zeros);
    own = w.Named(name, Where(none, zeros, own));
  }
  return {own.name(), factor};
}

// --- rewriting ---

const OpDesc& WholeWriter::LastForwardWriter(const std::string& name) const {
  const OpDesc* last = nullptr;
  for (const OpDesc* writer : std::as_const(root_).Uses(name).writers)
    if (HasForwardRole(*writer)) last = writer;
  if (!last) throw InternalError("no forward op writes " + name);
  return *last;
}

std::string WholeWriter::WholeOf(const std::string& name, const Part& part) {
  if (auto at = whole_.find(name); at != whole_.end()) return at->second.name;
  Weighted whole = inserter_.After(LastForwardWriter(name), kForward, [&](const Writer& w) {
    const Weighted own = Weigh(w, name, part);
    return Weighted{SumOverRanks(w, w.Var(own.name)).name(), own.factor};
  });
  return whole_.emplace(name, std::move(whole)).first->second.name;
}

// Each rank holds its rows' share of d(whole), and the shares add up to d(whole); d(whole) /
// d(value) is the factor.
void WholeWriter::Rewrite(const PartRead& read) {
  Weighted now;
  if (read.whole) {
    WholeOf(read.name, parts_.Of(read.name));
    now = whole_.at(read.name);
  } else {
    now = inserter_.Before(*read.op, kForward,
                           [&](const Writer& w) { return Weigh(w, read.name, read.part); });
  }
  ReplaceRead(root_, read, parts_, now.name);
  for (const PartGradient& into : parts_.GradientsInto(*read.op, read.name)) {
    inserter_.After(*into.writer, kBackward, [&](const Writer& w) {
      if (read.whole) SumInPlace(w, {into.name}, options_.ring_id);
      if (now.factor) ScaleInPlace(w, into.name, *now.factor);
    });
  }
}

Part WholeWriter::Settle(const std::string& name) {
  const std::vector<PartRead> reads = parts_.ReadsOf(name);
  Part part = parts_.Of(name);
  for (const PartRead& read : reads) {
    const auto kept = kept_.find(read);
    if (kept == kept_.end() || part.kind == PartKind::kUnknown) continue;
    part = UnknownPart(*read.op, fmt::format("reads {} of the rank's rows, as it does for {}",
                                             Quote(read.name), Quote(kept->second)));
  }
  for (const PartRead& read : reads) {
    if (rewritten_.count(read)) continue;
    if (part.kind == PartKind::kUnknown) {
      kept_.emplace(read, name);
    } else {
      Rewrite(read);
      rewritten_.insert(read);
    }
  }
  return part;
}

// A variable that the job names as the weight of the loss must have the rank's part of the batch,
// and have it before the loss.
Part WholeWriter::DeclaredPartOf(const std::string& loss) {
  const Part declared = DeclaredPart(options_.loss_weight);
  const std::string& weight = declared.weight;
  if (weight.empty()) return declared;
  const VarDesc* var = root_.FindVar(weight);
  if (!var) {
    Refuse(fmt::format("loss_weight must be ROWS, SUM or a variable of the program, got {}",
                       Quote(weight)));
  }
  const PartKind kind = parts_.Of(weight).kind;
  const bool has_elements = kind == PartKind::kRows || kind == PartKind::kUnknown;
  const size_t made = root_.IndexOf(LastForwardWriter(loss));
  const auto is_late = [&](const OpDesc* writer) {
    return !HasForwardRole(*writer) || root_.IndexOf(*writer) > made;
  };
  const auto writers = std::as_const(root_).Uses(weight).writers;
  const bool counts = has_elements ? !var->shape().IsKnown()
                                   : kind == PartKind::kSum && Settle(weight).kind == kind;
  if (!counts || std::any_of(writers.begin(), writers.end(), is_late)) {
    Refuse(
        fmt::format("loss_weight {} does not show how much of the batch a rank has; name a "
                    "variable with an open dimension, or a sum over the rows, that is computed "
                    "before {}",
                    Quote(weight), Quote(loss)));
  }
  return declared;
}

Part WholeWriter::SettleOrThrow(const std::string& loss) {
  const Part part = Settle(loss);
  if (part.kind != PartKind::kUnknown) return part;
  if (!options_.loss_weight.empty()) return DeclaredPartOf(loss);
  Refuse(fmt::format(
      "how the ranks' values of {} combine is unknown: {}; say it with distribute {{ loss_weight: "
      "\"ROWS\" }} (or \"SUM\", or the name of a variable whose elements count)",
      Quote(loss), part.reason));
}

std::map<std::string, std::string> WholeWriter::WholeOfWanted(const Names& losses, Names* unknown) {
  std::map<std::string, std::string> whole;
  for (const std::string& name : options_.wanted) {
    Part part = parts_.Of(name);
    if (Contains(losses, name))
      part = SettleOrThrow(name);
    else if (part.kind != PartKind::kUnknown)
      part = Settle(name);
    if (part.kind == PartKind::kUnknown) unknown->push_back(name);
    if (part.IsNumber() && !part.MeanOfRows()) whole[name] = WholeOf(name, part);
  }
  return whole;
}

std::map<std::string, std::string> InsertWholeValues(ProgramDesc& program, const Names& losses,
                                                     const AllReduceOptions& options,
                                                     Names* unknown) {
  const EditGuard guard(program);
  const OpRegistry& ops = OpsOf(options);
  const PartValues parts(program, ops);
  OpInserter inserter(program, ops);
  const auto whole = WholeWriter(program, parts, options, &inserter).WholeOfWanted(losses, unknown);
  inserter.Apply();
  return whole;
}

}  // namespace coracle::inline internal
