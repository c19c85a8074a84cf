#include <coracle/distribute/exchange_ops.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/role.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <map>

namespace coracle::inline internal {

void Refuse(const std::string& what) { ThrowInvalid("distribute: " + what); }

void Refuse(const OpDesc& op, const std::string& what) {
  ThrowInvalid("distribute: " + what, "  " + Locate(op));
}

const OpRegistry& OpsOf(const AllReduceOptions& options) {
  return options.ops ? *options.ops : DefaultOps();
}

std::vector<std::string> OutputNames(const OpDesc& op) {
  std::vector<std::string> names;
  ForEachPosition(op.outputs(), [&](const std::string& name) { names.push_back(name); });
  return names;
}

bool IsConstant(const OpDesc& op) {
  return op.type() == "fill_constant" && !op.AnyInput([](const std::string&) { return true; });
}

const VarDesc& VarOf(const BlockDesc& block, const std::string& name) {
  if (const VarDesc* var = block.FindVarRecursive(name)) return *var;
  throw Error(ErrorCode::kNotFound,
              fmt::format("distribute: block {} has no var {}", block.idx(), Quote(name)));
}

VarDesc& DeclareDense(BlockDesc& block, const std::string& name, DType dtype, const Shape& shape) {
  VarDesc& var = block.Var(name);
  var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
  var.SetStopGradient(true);
  return var;
}

std::vector<const OpDesc*> LossGradients(const ProgramDesc& main) {
  std::vector<const OpDesc*> ops;
  main.Root().ForEachOp([&](const OpDesc& op) {
    if (IsBackward(op) && HasRole(op, kLoss) && IsConstant(op)) ops.push_back(&op);
  });
  return ops;
}

DType DTypeOfShare(const ProgramDesc& main) {
  const std::vector<const OpDesc*> losses = LossGradients(main);
  return losses.empty() ? DType::kFloat32
                        : VarOf(main.Root(), losses[0]->Output("Out").at(0)).dtype();
}

namespace {

void RequireFed(const VarDesc& share, const BlockDesc& root) {
  const std::string must = fmt::format("the share {} must be fed, and ", Quote(share.name()));
  if (share.persistable()) Refuse(must + "is persistable");
  for (const OpDesc* writer : root.Uses(share.name()).writers)
    if (!IsFeed(*writer)) Refuse(*writer, must + writer->type() + " writes it");
}

}  // namespace

void DeclareShare(BlockDesc& root, const std::string& name, DType dtype) {
  if (const VarDesc* var = root.FindVar(name)) {
    RequireFed(*var, root);
    if (var->dtype() == dtype && var->shape() == Shape{1}) return;
    Refuse(fmt::format("the share {} must be {}[1], it is {}", Quote(name), ToString(dtype),
                       var->meta().ToString()));
  }
  DeclareDense(root, name, dtype, {1}).SetNeedCheckFeed(true);
}

void DeclareShareUnlessThere(BlockDesc& root, const std::string& name, DType dtype) {
  if (!root.FindVar(name)) DeclareShare(root, name, dtype);
}

Variable ShareOfRows(const Writer& w, BlockDesc& root, const std::string& share, int nranks,
                     DType dtype) {
  if (share.empty()) return w.Named("rank_share", FillConstant(w, dtype, 1.0 / nranks));
  DeclareShareUnlessThere(root, share, dtype);
  return Cast(w.Var(share), dtype);
}

namespace {

struct Filled {
  const OpDesc* last = nullptr;  // the last op of the root block that writes it
  bool constant = true;
};

// The variables that the startup program writes, by name.
std::map<std::string, Filled> FilledBy(const ProgramDesc& startup) {
  std::map<std::string, Filled> filled;
  startup.Root().ForEachOp([&](const OpDesc& outer) {
    ForEachOpRunBy(outer, [&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        Filled& var = filled[name];
        var.last = &outer;
        var.constant &= &op == &outer && IsConstant(op);
      });
    });
  });
  return filled;
}

}  // namespace

std::vector<std::string> BroadcastParameters(const ProgramDesc& main, const ProgramDesc& startup,
                                             int ring_id, OpInserter* inserter) {
  std::vector<std::string> names;
  for (const auto& [name, filled] : FilledBy(startup)) {
    const VarDesc* in_main = main.Root().FindVar(name);
    const VarDesc* var = startup.Root().FindVar(name);
    if (!var) var = in_main;
    if (!var || var->type() != VarType::kLoDTensor) continue;
    if (!var->persistable() && !(in_main && in_main->persistable())) continue;
    if (filled.constant && !(in_main && in_main->is_parameter())) continue;
    names.push_back(name);
    inserter->After(*filled.last, kForward, [&](const Writer& w) {
      ExchangeInPlace(w, "c_broadcast", {names.back()}, ring_id);
    });
  }
  return names;
}

void ScaleInPlace(const Writer& w, const std::string& name, const Variable& factor) {
  w.Into(name, "scale", {{"X", {name}}, {"ScaleTensor", {factor.name()}}});
}

void SumInPlace(const Writer& w, const std::vector<std::string>& names, int ring_id) {
  ExchangeInPlace(w, names.size() > 1 ? "c_coalesced_allreduce_sum" : "c_allreduce_sum", names,
                  ring_id);
}

void ExchangeInPlace(const Writer& w, const std::string& type,
                     const std::vector<std::string>& names, int ring_id) {
  w.Append(type, {{"X", names}}, {{"Out", names}}, {{"ring_id", int32_t{ring_id}}});
}

}  // namespace coracle::inline internal
