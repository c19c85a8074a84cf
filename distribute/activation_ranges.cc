#include <coracle/distribute/activation_ranges.h>
#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/part_values.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/operators/operators.h>

#include <limits>
#include <map>

namespace coracle::inline internal {
namespace {

constexpr const char* kSlot = "Largest";

// Whether the op takes the largest value from its own rows.
bool FollowsOwnRows(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->FindInput(kSlot) && !op.HasInput(kSlot) &&
         !spec->AttrOf<bool>(op, "is_test");
}

Variable LargestOfOwnRows(const Writer& w, BlockDesc& root, const std::string& name,
                          const AllReduceOptions& options) {
  const Variable largest = Max(Abs(w.Var(name)));
  const DType dtype = largest.dtype();
  // A nan becomes an infinity, which all ranks see. Without elements, the largest value is -inf.
  const Variable infinity = FillConstant(w, dtype, std::numeric_limits<double>::infinity());
  const Variable counted = Where(Less(largest, infinity), largest, infinity);
  if (options.share.empty()) return counted;
  const std::string gradient = LossGradients(root.program()).at(0)->Output("Out").at(0);
  DeclareShareUnlessThere(root, options.share, VarOf(root, gradient).dtype());
  return Where(Greater(w.Var(options.share), 0.0), counted, FillConstant(w, dtype, -1));
}

}  // namespace

void AgreeOnRanges(ProgramDesc& program, const AllReduceOptions& options) {
  const OpRegistry& ops = OpsOf(options);
  BlockDesc& root = program.Root();
  const PartValues parts(program, ops);
  OpInserter inserter(program, ops);
  std::map<std::vector<std::string>, std::string> agreed;  // by the outputs of the op
  root.ForEachOp([&](OpDesc& op) {
    if (!FollowsOwnRows(op, ops)) return;
    // A copy that computes the op again gets the same value.
    const auto copied = agreed.find(op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {}));
    if (copied != agreed.end()) return op.SetInput(kSlot, {copied->second});
    const std::string x = op.Input("X").at(0);
    if (parts.Of(x).kind == PartKind::kSame) return;
    const std::string name = inserter.Before(op, kForward, [&](const Writer& w) {
      const Variable own = LargestOfOwnRows(w, root, x, options);
      const Variable all =
          w.Make("c_allreduce_max", {{"X", {own.name()}}}, {{"ring_id", int32_t{options.ring_id}}});
      return w.Named("largest_of_ranks", all).name();
    });
    agreed[OutputNames(op)] = name;
    op.SetInput(kSlot, {name});
  });
  inserter.Apply();
}

}  // namespace coracle::inline internal
