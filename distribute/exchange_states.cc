#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/exchange_states.h>
#include <coracle/distribute/forward_states.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/freeze.h>
#include <fmt/format.h>

namespace coracle {
namespace {

class Exchanger {
 public:
  Exchanger(ProgramDesc& main, const AllReduceOptions& options, OpInserter* inserter)
      : main_(main), root_(main.Root()), options_(options), inserter_(*inserter) {}

  void Average(const OpDesc& behind, const VarDesc& state);
  // Whether a center_loss, and nothing else, moves the state: then it does so for all ranks' rows.
  bool MoveCenters(const OpDesc& behind, const VarDesc& state);

 private:
  void Append(const std::string& type, SlotList inputs, const std::string& out,
              AttrList attrs = {}) {
    inserter_.Behind(*behind_,
                     MakeOp(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs), kForward));
  }
  std::string Declare(const std::string& prefix, DType dtype, const Shape& shape) {
    const std::string name = main_.UniqueName(prefix);
    VarDesc& var = root_.Var(name);
    var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
    var.SetStopGradient(true);
    return name;
  }
  std::string Make(const std::string& type, SlotList inputs, DType dtype, const Shape& shape,
                   AttrList attrs = {}) {
    const std::string out = Declare("state_" + type, dtype, shape);
    Append(type, std::move(inputs), out, std::move(attrs));
    return out;
  }
  std::string CastTo(const std::string& from, DType to) {
    const VarDesc& var = VarOf(root_, from);
    if (var.dtype() == to) return from;
    return Make("cast", {{"X", {from}}}, to, var.shape(), CastAttrs(var.dtype(), to));
  }
  // Of the rank's rows in those of all.
  std::string Share(DType dtype) {
    if (!options_.share.empty()) return CastTo(options_.share, dtype);
    return Make("fill_constant", {}, dtype, {1}, FillAttrs({1}, dtype, 1.0 / options_.nranks));
  }
  OpDesc* CenterLossOf(const OpDesc& op, const std::string& centers);

  ProgramDesc& main_;
  BlockDesc& root_;
  const AllReduceOptions& options_;
  OpInserter& inserter_;
  const OpDesc* behind_ = nullptr;
};

// 16-bit floats as float32.
void Exchanger::Average(const OpDesc& behind, const VarDesc& state) {
  behind_ = &behind;
  const DType kept = state.dtype();
  const DType dtype = kept == DType::kFloat64 ? kept : DType::kFloat32;
  const std::string sum = CastTo(state.name(), dtype);
  Append("scale", {{"X", {sum}}, {"ScaleTensor", {Share(dtype)}}}, sum);
  inserter_.Behind(behind, SumOf({sum}, options_.ring_id, kForward));
  if (dtype != kept) Append("cast", {{"X", {sum}}}, state.name(), CastAttrs(dtype, kept));
}

OpDesc* Exchanger::CenterLossOf(const OpDesc& op, const std::string& centers) {
  const std::vector<std::string> only{centers};
  if (op.type() != "center_loss" || op.block() != &root_ || op.Output("CentersOut") != only ||
      op.Input("Centers") != only || std::as_const(root_).Uses(centers).writers.size() != 1)
    return nullptr;
  OpDesc* found = nullptr;
  root_.ForEachOp([&](OpDesc& each) { found = &each == &op ? &each : found; });
  return found;
}

// centers[c] += rate / (1 + n_c) sum of SampleCenterDiff over the n_c rows of class c, as the
// kernel does it, where rows are those of all ranks: of a one-hot matrix H of the labels n is the
// sum of the rows, and H' SampleCenterDiff are the sums.
bool Exchanger::MoveCenters(const OpDesc& behind, const VarDesc& state) {
  const DType dtype = state.dtype();
  OpDesc* op = CenterLossOf(behind, state.name());
  if (!op || (dtype != DType::kFloat32 && dtype != DType::kFloat64)) return false;
  behind_ = op;
  const int64_t classes = state.shape()[0], width = state.shape()[1];
  if (!op->HasOutput("SampleCenterDiff"))
    op->SetOutput("SampleCenterDiff", {Declare("state_diff", dtype, {-1, width})});
  op->SetAttr("need_update", false);
  const std::string label = op->Input("Label").at(0);
  const std::string ids = Make("reshape", {{"X", {label}}}, VarOf(root_, label).dtype(), {-1},
                               {{"shape", std::vector<int32_t>{-1}}});
  std::string hot = Make("one_hot_v2", {{"X", {ids}}}, DType::kFloat32, {-1, classes},
                         {{"depth", static_cast<int32_t>(classes)}});
  hot = CastTo(hot, dtype);
  if (!options_.share.empty()) {  // rows that do not count are no rows
    const std::string counts = Make("sign", {{"X", {Share(dtype)}}}, dtype, {1});
    Append("scale", {{"X", {hot}}, {"ScaleTensor", {counts}}}, hot);
  }
  const std::string n =
      Make("reduce_sum", {{"X", {hot}}}, dtype, {classes}, {{"dim", std::vector<int32_t>{0}}});
  const std::string sums = Make("matmul_v2", {{"X", {hot}}, {"Y", op->Output("SampleCenterDiff")}},
                                dtype, state.shape(), {{"trans_x", true}});
  inserter_.Behind(*op, SumOf({n, sums}, options_.ring_id, kForward));
  Append("scale", {{"X", {n}}}, n, {{"bias", 1.0f}});
  Append("elementwise_div", {{"X", {sums}}, {"Y", {n}}}, sums, {{"axis", int32_t{0}}});
  Append("elementwise_mul", {{"X", {sums}}, {"Y", op->Input("CenterUpdateRate")}}, sums);
  Append("elementwise_add", {{"X", {state.name()}}, {"Y", {sums}}}, state.name());
  return true;
}

// Rows that do not count are in no statistics of all ranks.
void ShareStatistics(ProgramDesc& main, const std::string& share) {
  if (share.empty()) return;
  main.ForEachOp([&](OpDesc& op) {
    if (!op.type().starts_with("sync_batch_norm") || HasFixedStatistics(op) || op.HasInput("Share"))
      return;
    if (op.block() != &main.Root()) {
      ThrowInvalid(fmt::format("distribute: {} within a block would count the rows of ranks that "
                               "have none; take it out of the block, or take batch_norm",
                               op.type()),
                   "  " + Locate(op));
    }
    if (!main.Root().FindVar(share)) DeclareShare(main.Root(), share, DType::kFloat32);
    op.SetInput("Share", {share});
  });
}

}  // namespace

void ExchangeStates(ProgramDesc& main, const AllReduceOptions& options, OpInserter* inserter,
                    AllReduceReport* report) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  ForwardStates found = FindForwardStates(main, ops);
  report->local = std::move(found.statistics);
  report->own = std::move(found.own);
  if (!found.states.empty() && !options.share.empty() && !main.Root().FindVar(options.share))
    DeclareShare(main.Root(), options.share, DType::kFloat32);
  ShareStatistics(main, options.share);
  Exchanger exchanger(main, options, inserter);
  for (const auto& [name, last] : found.states) {
    const VarDesc& state = VarOf(main.Root(), name);
    if (exchanger.MoveCenters(*last, state)) continue;
    exchanger.Average(*last, state);
    report->averaged.push_back(name);
  }
}

AllReduceReport InsertStateExchanges(ProgramDesc& program, const AllReduceOptions& options) {
  const EditGuard guard(program);
  AllReduceReport report;
  OpInserter inserter;
  ExchangeStates(program, options, &inserter, &report);
  Insert(inserter, program, options.ops ? *options.ops : DefaultOps());
  return report;
}

}  // namespace coracle
