// Checks of the gradient ops that a rule has appended.

#include <coracle/backward/gradient_ops.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/check/flow_types.h>
#include <fmt/format.h>

namespace coracle::inline internal {
namespace {

// The declared types of a block's variables. Refuses to infer others.
class DeclaredTypes : public FlowTypes {
 public:
  using FlowTypes::FlowTypes;
  void Set(const std::string& name, const VarMeta& meta) override {
    const VarMeta* declared = Find(name);
    if (!declared ||
        (declared->dtype == meta.dtype && declared->shape.CompatibleWith(meta.shape))) {
      return;
    }
    ThrowInvalid(fmt::format("{} is declared {}, but the value written to it is {}", Quote(name),
                             declared->ToString(), meta.ToString()));
  }
};

// Types declared in a file may contradict its ops, and then operands of gradient ops contradict
// each other. In that case the file is at fault, not the gradient rule.
void RefuseContradiction(const BlockDesc& block, const OpDesc& op, const OpRegistry& ops) {
  DeclaredTypes types(block);
  try {
    types.InferOrThrow(ops.Get(op.type()), op);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    throw error.WithPrefix("no gradient of " + op.type());
  }
  if (op.type().ends_with("_grad")) {
    ThrowInvalid(
        fmt::format("no gradient of {}: the types of its operands do not match", op.type()));
  }
}

}  // namespace

void GradientOps::ThrowUnlisted(const OpDesc& op, const char* verb, std::string_view name) {
  ThrowInvalid(
      fmt::format("{}: {} {} {} in its sub-block without having it in any of its slots, so "
                  "its gradient cannot pass",
                  run_.who, op.type(), verb, Quote(name)),
      "  " + Locate(op));
}

// Requires a gradient to have the shape and dtype of its variable; dims that the rule left unknown
// are copied from the variable.
void GradientOps::CheckContract(const Request& request, const OpDesc& forward, const OpDesc& op) {
  VarDesc& gradient = *block().FindVar(*request.name);
  const VarMeta& wanted = graph_.MetaOf(request.version);
  const VarMeta& got = gradient.meta();
  // Elements of an array have individual types.
  if (wanted.type == VarType::kLoDTensorArray) return;
  if (got.dtype != wanted.dtype || !got.shape.CompatibleWith(wanted.shape)) {
    RefuseContradiction(block(), forward, graph_.ops());
    const std::string name(graph_.VarOf(request.version).name);
    const VarDesc* declared = block().FindVarRecursive(name);
    if (declared && !(declared->meta() == wanted)) {
      ThrowInvalid(
          fmt::format("no gradient of {}: the var {} is declared {}, and an op makes it {}",
                      forward.type(), Quote(name), declared->meta().ToString(), wanted.ToString()),
          "  " + Locate(forward));
    }
    ThrowBrokenRule(
        forward, fmt::format("{} yields {} for the gradient of input {} {}, which is {}", op.type(),
                             got.ToString(), *request.slot, Quote(name), wanted.ToString()));
  }
  any_sparse_ |= got.type == VarType::kSelectedRows;
  if (got.type == VarType::kLoDTensor && !got.shape.IsKnown()) gradient.SetMeta(wanted);
}

// Requires an op <forward>_grad to have as many gradients in a slot as the forward op
// has variables.
void GradientOps::CheckCount(const OpDesc& forward, const OpDesc& op) {
  if (op.type() != forward.type() + "_grad") return;
  for (const Slot& slot : forward.inputs()) {
    const size_t count = op.Output(GradName(slot.name)).size();
    if (count == 0 || count == slot.args.size()) continue;
    ThrowBrokenRule(forward, fmt::format("{} has {} gradients for the {} variables of input {}",
                                         op.type(), count, slot.args.size(), slot.name));
  }
}

void GradientOps::ThrowBrokenRule(const OpDesc& forward, const std::string& what) {
  const std::string message = fmt::format("gradient rule of {}: {}", forward.type(), what);
  if (overridden_) ThrowInvalid(message, "  " + Locate(forward));
  throw InternalError(fmt::format("{}, {}", message, Locate(forward)));
}

void GradientOps::RequireWritten(size_t first_op) {
  std::vector<bool> written(target_.NumVars() - first_var_, false);
  auto read = [&](const OpDesc& op, const std::string& name) {
    const VarDesc* var = target_.FindVar(name);
    if (!var || var->index() < first_var_ || written[var->index() - first_var_]) return;
    // The state of a callback (clips of loss scaling have some) gets its value from the
    // startup program.
    if (var->persistable()) return;
    if (arriving_.count(name) || run_.saved.Writes(name)) return;
    ThrowInvalid(fmt::format("{}: {} reads {}, and no op before it writes that", run_.who,
                             op.type(), Quote(name)),
                 "  " + Locate(op));
  };
  for (size_t i = first_op; i < target_.NumOps(); ++i) {
    const OpDesc& op = target_.op(i);
    op.ForEachInput([&](const std::string& name) { read(op, name); });
    for (int idx : op.SubBlocks()) {
      const auto reads = run_.outer_reads.find(idx);
      if (reads == run_.outer_reads.end()) continue;
      for (const std::string& name : reads->second) read(op, name);
    }
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = target_.FindVar(name);
      if (var && var->index() >= first_var_) written[var->index() - first_var_] = true;
    });
  }
}

}  // namespace coracle::inline internal
