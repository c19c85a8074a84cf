#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/part_values.h>
#include <coracle/distribute/sequence_lengths.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>

#include <map>

namespace coracle::inline internal {
namespace {

// An optional input that gives the padded length, and how the longest sequence of X is found.
struct LengthSlot {
  const char* name;
  bool from_elements;  // X holds lengths; otherwise it has sequences
};
constexpr LengthSlot kLengthSlots[] = {{"PaddedLengthTensor", false}, {"MaxLenTensor", true}};

// The slot of an op whose rows mix because it pads to the longest sequence; nullptr for other ops.
const LengthSlot* MissingLength(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  if (!spec || RowEffectOf({op, *spec, "Out"}).rule != RowRule::kMixes) return nullptr;
  for (const LengthSlot& slot : kLengthSlots)
    if (spec->FindInput(slot.name)) return &slot;
  return nullptr;
}

Variable LargestOf(const Writer& w, const Variable& lengths) {
  Variable largest = Max(lengths);
  if (IsFloating(lengths.dtype())) largest = w.Make("ceil", {{"X", {largest.name()}}});
  return Cast(largest, DType::kInt64);
}

Variable LongestSequenceOf(const Writer& w, const Variable& x) {
  const Variable table = w.Make("lod_rank_table", {{"X", {x.name()}}});
  return w.Make("max_sequence_len", {{"RankTable", {table.name()}}});
}

Variable LongestOfAllRanks(const Writer& w, const std::string& x, const LengthSlot& slot,
                           int ring_id) {
  const Variable own = slot.from_elements ? LargestOf(w, w.Var(x)) : LongestSequenceOf(w, w.Var(x));
  return w.Named("longest_sequence",
                 w.Make("c_allreduce_max", {{"X", {own.name()}}}, {{"ring_id", int32_t{ring_id}}}));
}

}  // namespace

void AgreeOnLengths(ProgramDesc& program, const AllReduceOptions& options) {
  const OpRegistry& ops = OpsOf(options);
  const PartValues parts(program, ops);
  OpInserter inserter(program, ops);
  using Reader = std::pair<const LengthSlot*, std::string>;
  std::map<Reader, std::string> longest;                    // by the variable that the op reads
  std::map<std::vector<std::string>, std::string> lengths;  // by the outputs of the op
  program.Root().ForEachOp([&](OpDesc& op) {
    const LengthSlot* slot = MissingLength(op, ops);
    if (!slot) return;
    // A copy that computes the op again gets the same length. Its input may be a copy, too.
    const auto copied = lengths.find(op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {}));
    if (copied != lengths.end()) return op.SetInput(slot->name, {copied->second});
    const std::string x = op.Input("X").at(0);
    if (parts.Of(x).kind == PartKind::kSame) return;
    std::string length;
    std::string& of_x = program.Root().Uses(x).writers.size() > 1 ? length : longest[{slot, x}];
    if (of_x.empty()) {
      of_x = inserter.Before(op, kForward, [&](const Writer& w) {
        return LongestOfAllRanks(w, x, *slot, options.ring_id).name();
      });
    }
    lengths[OutputNames(op)] = of_x;
    op.SetInput(slot->name, {of_x});
  });
  inserter.Apply();
}

}  // namespace coracle::inline internal
