// The programs of the phases of training with quantisation.

#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/quantize/fake_ops.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>

namespace coracle {
namespace {

using OpList = std::vector<std::unique_ptr<OpDesc>>;

// An op in place of another, with its role and its place in the step.
std::unique_ptr<OpDesc> InPlaceOf(const OpDesc& op, const std::string& type, SlotList inputs,
                                  SlotList outputs, AttrList attrs = {}) {
  for (const NamedAttr& attr : op.attrs())
    if (IsBookkeepingAttr(attr.name)) attrs.push_back(attr);
  return std::make_unique<OpDesc>(type, std::move(inputs), std::move(outputs), std::move(attrs));
}

std::unique_ptr<OpDesc> Copy(const OpDesc& op, const std::string& from, const std::string& to) {
  return InPlaceOf(op, "assign", {{"X", {from}}}, {{"Out", {to}}});
}

// Passes X through, and follows its range: `in` and `out` are the slots with the moving average.
std::unique_ptr<OpDesc> Observer(const OpDesc& op, SlotList in, SlotList out) {
  in.push_back({"X", op.Input("X")});
  out.push_back({"Out", op.Output("Out")});
  return InPlaceOf(op, "moving_average_abs_max_scale", std::move(in), std::move(out),
                   {{"moving_rate", op.GetAttr<float>("moving_rate", 0.9f)}, {"is_test", false}});
}

// The average that the op itself has, whatever the names of its variables are.
std::unique_ptr<OpDesc> ObserverOfAverage(const OpDesc& op) {
  SlotList in, out;
  for (const char* slot : {"InScale", "InAccum", "InState", "Largest"})
    if (op.HasInput(slot)) in.push_back({slot, op.Input(slot)});
  for (const char* slot : {"OutScale", "OutAccum", "OutState"})
    if (op.HasOutput(slot)) out.push_back({slot, op.Output(slot)});
  return Observer(op, std::move(in), std::move(out));
}

// The op that observes in place of one that rounds.
std::unique_ptr<OpDesc> Observing(const OpDesc& op, bool test) {
  const std::string &x = op.Input("X")[0], &out = op.Output("Out")[0];
  const FakeKind kind = FakeKindOf(op);
  if (kind == FakeKind::kAverage && !op.GetAttr<bool>("is_test", false))
    return ObserverOfAverage(op);
  const bool weight = kind != FakeKind::kLearned || op.GetAttr<int32_t>("quant_axis", -1) >= 0;
  // An op of backward computes again what was observed before.
  if (weight || test || HasRole(op, kBackward)) return Copy(op, x, out);
  const RangeNames names(WeightOfStep(op.Input("Step")[0]));
  return Observer(
      op, {{"InScale", {names.range}}, {"InAccum", {names.sum}}, {"InState", {names.count}}},
      {{"OutScale", {names.range}}, {"OutAccum", {names.sum}}, {"OutState", {names.count}}});
}

// The gradients of an op that passes its input through.
void AppendPassedGradients(const OpDesc& op, OpList* list) {
  if (op.HasOutput("X@GRAD"))
    list->push_back(Copy(op, op.Input("Out@GRAD")[0], op.Output("X@GRAD")[0]));
  if (op.HasOutput("Step@GRAD"))
    list->push_back(InPlaceOf(op, "fill_zeros_like", {{"X", op.Input("Step")}},
                              {{"Out", op.Output("Step@GRAD")}}));
}

bool HasBackward(const BlockDesc& root) {
  bool found = false;
  root.ForEachOp([&](const OpDesc& op) { found |= HasRole(op, kBackward); });
  return found;
}

void Observe(BlockDesc& root) {
  const bool test = !HasBackward(root);
  OpList list;
  for (std::unique_ptr<OpDesc>& op : root.ReleaseOps()) {
    if (IsLearnedGrad(*op))
      AppendPassedGradients(*op, &list);
    else if (FakeKindOf(*op) != FakeKind::kNone)
      list.push_back(Observing(*op, test));
    else
      list.push_back(std::move(op));
  }
  root.SetOps(std::move(list));
}

// Lets norms use their running statistics, in backward too.
void FreezeStatistics(BlockDesc& root, const OpRegistry& ops) {
  std::map<std::string, std::pair<std::string, std::string>> statistics;  // by the gain
  for (size_t i = 0; i < root.NumOps(); ++i) {
    OpDesc& op = root.op(i);
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || !spec->FindAttr("use_global_stats") || !op.HasInput("Scale")) continue;
    op.SetAttr("use_global_stats", true);
    const std::string& gain = op.Input("Scale")[0];
    if (op.HasInput("Mean") && op.HasInput("Variance")) {
      statistics[gain] = {op.Input("Mean")[0], op.Input("Variance")[0]};
    } else if (const auto found = statistics.find(gain); found != statistics.end()) {
      op.SetInput("Mean", {found->second.first});
      op.SetInput("Variance", {found->second.second});
    }
  }
}

}  // namespace

ProgramDesc ProgramOfPhase(const ProgramDesc& program, QuantizePhase phase, const OpRegistry& ops) {
  ProgramDesc copy = program;
  BlockDesc& root = copy.Root();
  if (phase == QuantizePhase::kObserve) Observe(root);
  if (phase != QuantizePhase::kFreeze) return copy;
  FreezeStatistics(root, ops);
  for (size_t i = 0; i < root.NumOps(); ++i)
    if (FakeKindOf(root.op(i)) == FakeKind::kAverage) root.op(i).SetAttr("is_test", true);
  return copy;
}

ProgramDesc InitializeLearnedSteps(const ProgramDesc& program, const OpRegistry& ops) {
  ProgramDesc result;
  BlockDesc& root = result.Root();
  const Writer w(root, ops, {.prefix = "first_step"});
  const auto declare = [&](const std::string& name) {
    if (!root.FindVar(name)) root.AppendVar(*program.Root().FindVar(name));
    return w.Var(name);
  };
  std::set<std::string> done;
  program.Root().ForEachOp([&](const OpDesc& op) {
    if (FakeKindOf(op) != FakeKind::kLearned || HasRole(op, kBackward)) return;
    const std::string& step = op.Input("Step")[0];
    if (!done.insert(step).second) return;
    declare(step);
    const double most = std::exp2(op.GetAttr<int32_t>("bit_length", 8) - 1) - 1;
    const auto axis = op.GetAttr<int32_t>("quant_axis", -1);
    Variable size;
    if (axis < 0) {
      size = declare(RangeNames(WeightOfStep(step)).range) / most;
    } else {
      const Variable weight = declare(WeightOfStep(step));
      std::vector<int32_t> others;
      for (int32_t i = 0; i < weight.shape().rank(); ++i)
        if (i != axis) others.push_back(i);
      const Variable mean = w.Make("reduce_mean", {{"X", {Abs(weight).name()}}}, {{"dim", others}});
      size = mean * (2 / std::sqrt(most));
    }
    // Where all values are 0, any step will do.
    const Variable some = size + Cast(Equal(size, ZerosLike(size)), DType::kFloat32);
    w.Into(step, "assign", {{"X", {some.name()}}});
  });
  return result;
}

}  // namespace coracle
