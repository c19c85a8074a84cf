#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/largest_values.h>
#include <coracle/distribute/part_values.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>

#include <limits>
#include <map>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

Variable LongestSequence(const Writer& w, const Variable& x) {
  const Variable table = w.Make("lod_rank_table", {{"X", {x.name()}}});
  return w.Make("max_sequence_len", {{"RankTable", {table.name()}}});
}

Variable LargestLength(const Writer& w, const Variable& lengths) {
  Variable largest = Max(lengths);
  if (IsFloating(lengths.dtype())) largest = w.Make("ceil", {{"X", {largest.name()}}});
  return Cast(largest, DType::kInt64);
}

// A nan becomes an infinity, which all ranks see. Without elements, the largest value is -inf.
Variable LargestMagnitude(const Writer& w, const Variable& x) {
  const Variable largest = Max(Abs(x));
  const Variable infinity =
      FillConstant(w, largest.dtype(), std::numeric_limits<double>::infinity());
  return Where(Less(largest, infinity), largest, infinity);
}

// An optional input that gives an op the largest value. `of_rank` finds it in a rank's X.
struct LargestInput {
  const char* slot;
  const char* name;  // of the exchanged value
  Variable (*of_rank)(const Writer& w, const Variable& x);
  bool of_rows_that_count;
};
constexpr LargestInput kLargestInputs[] = {
    {"PaddedLengthTensor", "longest_sequence", LongestSequence, false},
    {"MaxLenTensor", "longest_sequence", LargestLength, false},
    {"Largest", "largest_of_ranks", LargestMagnitude, true},
};

// The input that an op lacks which mixes rows; nullptr for other ops.
const LargestInput* MissingInput(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  if (!spec || RowEffectOf({op, *spec, "Out"}).rule != RowRule::kMixes) return nullptr;
  for (const LargestInput& input : kLargestInputs)
    if (spec->FindInput(input.slot)) return &input;
  return nullptr;
}

Variable LargestOfRanks(const Writer& w, ProgramDesc& program, const std::string& x,
                        const LargestInput& input, const AllReduceOptions& options) {
  Variable own = input.of_rank(w, w.Var(x));
  if (input.of_rows_that_count && !options.share.empty()) {
    DeclareShareUnlessThere(program.Root(), options.share, DTypeOfShare(program));
    own = Where(Greater(w.Var(options.share), 0.0), own, FillConstant(w, own.dtype(), -1));
  }
  return w.Named(input.name, w.Make("c_allreduce_max", {{"X", {own.name()}}},
                                    {{"ring_id", int32_t{options.ring_id}}}));
}

}  // namespace

void AgreeOnLargest(ProgramDesc& program, const AllReduceOptions& options) {
  const OpRegistry& ops = OpsOf(options);
  const PartValues parts(program, ops);
  OpInserter inserter(program, ops);
  using Reader = std::pair<const LargestInput*, std::string>;
  std::map<Reader, std::string> of_variable;  // by the variable that the op reads
  std::map<Names, std::string> of_outputs;    // by the outputs of the op
  program.Root().ForEachOp([&](OpDesc& op) {
    const LargestInput* input = MissingInput(op, ops);
    if (!input) return;
    // A copy that computes the op again gets the same value. Its input may be a copy, too.
    const auto copied = of_outputs.find(op.GetAttr<Names>(kRecomputedFromAttr, {}));
    if (copied != of_outputs.end()) return op.SetInput(input->slot, {copied->second});
    const std::string x = op.Input("X").at(0);
    if (parts.Of(x).kind == PartKind::kSame) return;
    std::string of_op;
    std::string& largest =
        program.Root().Uses(x).writers.size() > 1 ? of_op : of_variable[{input, x}];
    if (largest.empty()) {
      largest = inserter.Before(op, kForward, [&](const Writer& w) {
        return LargestOfRanks(w, program, x, *input, options).name();
      });
    }
    of_outputs[OutputNames(op)] = largest;
    op.SetInput(input->slot, {largest});
  });
  inserter.Apply();
}

}  // namespace coracle::inline internal
