#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/whole_writer.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coracle {

namespace {

// What copies that compute a variable again call it.
std::set<std::string> CopiesOf(const std::string& name, const BlockDesc& block) {
  std::set<std::string> copies;
  block.ForEachOp([&](const OpDesc& op) {
    const auto from = op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {});
    if (from.empty()) return;
    const std::vector<std::string> outputs = OutputNames(op);
    for (size_t i = 0; i < std::min(from.size(), outputs.size()); ++i)
      if (from[i] == name) copies.insert(outputs[i]);
  });
  return copies;
}

}  // namespace

std::string WholeWriter::Make(const Place& place, const std::string& type, SlotList inputs,
                              AttrList attrs, DType dtype, const std::string& hint) {
  const std::string name = program_.UniqueName(hint);
  VarDesc& var = root_.Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, {1}, 0});
  var.SetStopGradient(true);
  const OpDesc op =
      MakeOp(type, std::move(inputs), {{"Out", {name}}}, std::move(attrs), place.role);
  place.before ? inserter_.Before(place.op, op) : inserter_.Behind(place.op, op);
  return name;
}

std::string WholeWriter::CastTo(const Place& place, const std::string& name, DType from, DType to) {
  return from == to ? name : Make(place, "cast", {{"X", {name}}}, CastAttrs(from, to), to, name);
}

std::string WholeWriter::SumOverRanks(const Place& place, const std::string& name, DType dtype) {
  return Make(place, "c_allreduce_sum", {{"X", {name}}}, {{"ring_id", int32_t{options_.ring_id}}},
              dtype, name + "@WHOLE");
}

std::string WholeWriter::Constant(const Place& place, double value, DType dtype) {
  return Make(place, "fill_constant", {}, FillAttrs({1}, dtype, value), dtype, "rank_share");
}

// The rank's share of the rows.
std::string WholeWriter::Share(const Place& place, DType dtype) {
  if (options_.share.empty()) return Constant(place, 1.0 / options_.nranks, dtype);
  if (!root_.FindVar(options_.share)) DeclareShare(root_, options_.share, dtype);
  return CastTo(place, options_.share, VarOf(root_, options_.share).dtype(), dtype);
}

// 1, or 0 for a rank whose rows do not count; "" where all count.
std::string WholeWriter::Counts(const Place& place, DType dtype) {
  if (options_.share.empty()) return "";
  if (!root_.FindVar(options_.share))
    DeclareShare(root_, options_.share, IsFloating(dtype) ? dtype : DType::kFloat32);
  const DType of_share = VarOf(root_, options_.share).dtype();
  const std::string sign =
      Make(place, "sign", {{"X", {options_.share}}}, {}, of_share, "rank_has_rows");
  return CastTo(place, sign, of_share, dtype);
}

// The part's weight in those of all ranks. Where no rank has elements all parts are alike, a nan or
// what the op makes of none: they weigh by rows, and the whole is what one rank has.
std::string WholeWriter::ShareOf(const PartValue& part, const Place& place, DType dtype) {
  std::string own;
  if (part.counted) {
    own = CastTo(place, part.weight, VarOf(root_, part.weight).dtype(), DType::kFloat64);
  } else {
    own = Make(place, "size", {{"Input", {part.weight}}}, {}, DType::kInt64, "rank_elements");
    own = CastTo(place, own, DType::kInt64, DType::kFloat64);
  }
  if (const std::string counts = Counts(place, DType::kFloat64); !counts.empty()) {
    own = Make(place, "elementwise_mul", {{"X", {own}}, {"Y", {counts}}}, {}, DType::kFloat64,
               "rank_weight");
  }
  const std::string all = SumOverRanks(place, own, DType::kFloat64);
  const std::string zero = Constant(place, 0, DType::kFloat64);
  const std::string none =
      Make(place, "equal", {{"X", {all}}, {"Y", {zero}}}, {}, DType::kBool, "rank_weights");
  std::string share = Make(place, "elementwise_div", {{"X", {own}}, {"Y", {all}}}, {},
                           DType::kFloat64, "rank_share");
  share = Make(place, "where",
               {{"Condition", {none}}, {"X", {Share(place, DType::kFloat64)}}, {"Y", {share}}}, {},
               DType::kFloat64, "rank_share");
  return CastTo(place, share, DType::kFloat64, dtype);
}

std::string WholeWriter::FactorAt(const PartValue& part, const Place& place, DType dtype) {
  if (part.kind == PartKind::kSum) return Counts(place, dtype);
  if (part.kind == PartKind::kMean && !part.weight.empty()) return ShareOf(part, place, dtype);
  return Share(place, dtype);
}

std::string WholeWriter::Factor(const PartValue& part, DType dtype, const OpDesc& behind,
                                int role) {
  return FactorAt(part, {behind, role}, dtype);
}

const OpDesc& WholeWriter::LastForwardWriter(const std::string& name) const {
  const OpDesc* last = nullptr;
  for (const OpDesc* writer : std::as_const(root_).Uses(name).writers)
    if ((RoleOf(*writer) & ~kLoss) == kForward) last = writer;
  if (!last) throw InternalError("no forward op writes " + name);
  return *last;
}

// A part without elements may be a nan, which counts as nothing.
WholeWriter::Weighed WholeWriter::Weigh(const std::string& name, const PartValue& part,
                                        const Place& place) {
  const VarDesc& var = VarOf(root_, name);
  const DType dtype = var.dtype();
  const std::string factor = FactorAt(part, place, dtype);
  if (factor.empty()) return {name, factor};
  std::string own =
      Make(place, "elementwise_mul", {{"X", {name}}, {"Y", {factor}}}, {}, dtype, name);
  if (part.kind == PartKind::kMean && IsFloating(dtype)) {
    std::string zero, weight = factor;
    if (var.shape() == Shape{1}) {
      zero = Constant(place, 0, dtype);
    } else {
      zero = Make(place, "fill_zeros_like", {{"X", {name}}}, {}, dtype, "rank_zeros");
      weight = Make(place, "elementwise_add", {{"X", {zero}}, {"Y", {factor}}}, {}, dtype,
                    "rank_weights");
    }
    const std::string counts =
        Make(place, "not_equal", {{"X", {weight}}, {"Y", {zero}}}, {}, DType::kBool, "rank_counts");
    own = Make(place, "where", {{"Condition", {counts}}, {"X", {own}}, {"Y", {zero}}}, {}, dtype,
               name);
  }
  return {own, factor};
}

std::string WholeWriter::WholeOf(const std::string& name) {
  if (auto it = whole_.find(name); it != whole_.end()) return it->second.name;
  const Place place{LastForwardWriter(name), kForward};
  const auto [own, factor] = Weigh(name, parts_.Of(name), place);
  const std::string whole = SumOverRanks(place, own, VarOf(root_, name).dtype());
  whole_[name] = {whole, factor};
  return whole;
}

void WholeWriter::LeaveOutRowsThatDoNotCount(const std::string& grad, const OpDesc& writer) {
  const std::string counts = Counts({writer, kBackward}, VarOf(root_, grad).dtype());
  if (counts.empty()) return;
  inserter_.Behind(writer, MakeOp("scale", {{"X", {grad}}, {"ScaleTensor", {counts}}},
                                  {{"Out", {grad}}}, {}, kBackward));
}

// The op, gradient ops of it, and copies that compute it again.
void WholeWriter::Rewrite(const PartRead& read) {
  Weighed now;
  if (read.whole) {
    now.name = WholeOf(read.name);
    now.factor = whole_[read.name].factor;
  } else {
    now = Weigh(read.name, read.part, {*read.op, kForward, true});
  }
  const std::vector<const OpDesc*>& gradients = parts_.GradientOpsOf(*read.op);
  const std::vector<std::string> outputs = OutputNames(*read.op);
  std::set<std::string> names = CopiesOf(read.name, root_);
  names.insert(read.name);
  for (const std::string& old : names) {
    const auto readers = root_.Uses(old).readers;
    for (OpDesc* reader : std::vector<OpDesc*>(readers.begin(), readers.end())) {
      const bool is_copy =
          reader->type() == read.op->type() &&
          reader->GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {}) == outputs;
      if (reader == read.op || is_copy ||
          std::find(gradients.begin(), gradients.end(), reader) != gradients.end())
        reader->RenameInput(old, now.name);
    }
  }
  RewriteGradients(read, now.factor);
}

// Of d whole each rank has the part that its rows make, of which the sum is the whole's; and
// d whole / d value is the factor.
void WholeWriter::RewriteGradients(const PartRead& read, const std::string& factor) {
  for (const auto& [gradient, writer] : parts_.GradientsInto(*read.op, read.name)) {
    if (read.whole) inserter_.Behind(*writer, SumOf({gradient}, options_.ring_id, kBackward));
    if (factor.empty()) continue;
    inserter_.Behind(*writer, MakeOp("scale", {{"X", {gradient}}, {"ScaleTensor", {factor}}},
                                     {{"Out", {gradient}}}, {}, kBackward));
  }
}

PartValue WholeWriter::Settle(const std::string& name) {
  const std::vector<PartRead> reads = parts_.ReadsOf(name);
  PartValue part = parts_.Of(name);
  for (const PartRead& read : reads) {
    if (auto kept = kept_.find(read); kept != kept_.end() && part.kind != PartKind::kUnknown)
      part = {.kind = PartKind::kUnknown,
              .reason = fmt::format("{} reads {} of the rank's part, as it does for {}",
                                    read.op->type(), Quote(read.name), Quote(kept->second))};
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

std::string WholeWriter::Complaint(const std::string& name, const PartValue& part) {
  if (part.kind != PartKind::kUnknown) return "";
  return fmt::format(
      "{} of the ranks' parts weighs by their rows, which may not be that of the whole batch: {}",
      Quote(name), part.reason);
}

WholeValues WholeWriter::WholeOf(const std::vector<std::string>& wanted) {
  WholeValues values;
  for (const std::string& name : wanted) {
    const PartValue part = Settle(name);
    if (const std::string line = Complaint(name, part); !line.empty())
      values.unknown.push_back(line);
    if (part.IsNumber() && !part.MeanOfRows() && !values.of.count(name))
      values.of[name] = WholeOf(name);
  }
  return values;
}

WholeValues InsertWholeValues(ProgramDesc& program, const std::vector<std::string>& wanted,
                              const WholeValueOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  const PartValues parts(program, ops);
  OpInserter inserter;
  WholeValues values = WholeWriter(program, parts, options, &inserter).WholeOf(wanted);
  Insert(inserter, program, ops);
  return values;
}

}  // namespace coracle
