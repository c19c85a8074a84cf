#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/attr_limits.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <fmt/format.h>

#include <map>
#include <memory>

namespace coracle::inline internal {
namespace {

const char* HowToMakeDense(const VarMeta& meta) {
  return meta.type == VarType::kSelectedRows
             ? "; get_tensor_from_selected_rows makes a dense tensor of it"
             : "";
}

void RequireTaken(const OpSpec& spec, const InferContext& context) {
  for (const SlotDef& slot : spec.inputs) {
    const auto& args = context.op().Input(slot.name);
    for (size_t i = 0; i < args.size(); ++i) {
      if (IsEmptyName(args[i])) continue;
      const VarMeta& meta = context.Input(slot.name, i);
      if (slot.Takes(meta.type)) continue;
      ThrowInvalid(fmt::format("{}: input {} must be a dense tensor, and {} is {}{}", spec.type,
                               slot.name, QuoteVar(args[i]), meta.ToString(), HowToMakeDense(meta)),
                   "  " + Locate(context.op()));
    }
  }
}

// Refuses strings where the op takes none, and selected rows of strings everywhere.
void RequireStringsTaken(const OpSpec& spec, const InferContext& context) {
  const OpDesc& op = context.op();
  ForEachPosition(op.inputs(), [&](const std::string& name, const std::string& slot, size_t i) {
    if (IsEmptyName(name)) return;
    const VarMeta& meta = context.Input(slot, i);
    const bool rows = meta.type == VarType::kSelectedRows;
    if (meta.dtype != DType::kString || (spec.TakesStrings() && !rows)) return;
    throw Error(
        ErrorCode::kUnimplemented,
        fmt::format("{}: the op takes no {}, and input {} is {}", spec.type,
                    rows ? "selected rows of strings" : "strings", slot, DescribeVar(name, meta)),
        "  " + Locate(op));
  });
}

// Refuses operands without a kernel as soon as their types are known, not only when the op runs.
void RequireKernel(const OpSpec& spec, const InferContext& context, const KernelOperand& from) {
  const VarMeta* meta = from.output ? context.DeclaredOutput(from.slot) : &context.Input(from.slot);
  // The element type of an array is known only when its elements are.
  if (!meta || meta->type == VarType::kLoDTensorArray) return;
  if (spec.HasLoopFor(IsHalf(meta->dtype) ? DType::kFloat32 : meta->dtype)) return;
  const OpDesc& op = context.op();
  const std::string& name = (from.output ? op.Output(from.slot) : op.Input(from.slot))[0];
  ThrowInvalid(fmt::format("{}: there is no kernel for {} {} = {}; supported: {}", spec.type,
                           from.output ? "output" : "input", from.slot, DescribeVar(name, *meta),
                           NamesOf(spec.kernel_dtypes)),
               "  " + Locate(op));
}

// Requires every slot that is not shared to hold one variable per item, or none. Several items must
// all be dense and have the same dtype.
void RequireItems(const OpSpec& spec, size_t items, const InferContext& context) {
  const OpDesc& op = context.op();
  const auto fail = [&](const std::string& what) {
    ThrowInvalid(fmt::format("{}: {}", spec.type, what), "  " + Locate(op));
  };
  const auto count = [&](const Slot& slot) {
    const size_t wanted = spec.IsShared(slot.name) ? 1 : items;
    if (slot.args.empty() || slot.args.size() == wanted) return;
    fail(fmt::format("{} holds {} variables where {} are needed, one for each item", slot.name,
                     slot.args.size(), wanted));
  };
  for (const Slot& slot : op.inputs()) count(slot);
  for (const Slot& slot : op.outputs()) count(slot);
  if (items == 1) return;
  ForEachPosition(op.inputs(), [&](const std::string& name, const std::string& slot, size_t i) {
    if (IsEmptyName(name)) fail(fmt::format("{} lacks item {}", slot, i));
    const VarMeta &first = context.Input(slot), &meta = context.Input(slot, i);
    if (meta.type == VarType::kLoDTensor && meta.dtype == first.dtype) return;
    fail(fmt::format("the items must be dense tensors of one dtype; {} is {} and {} is {}",
                     QuoteVar(op.Input(slot)[0]), first.ToString(), QuoteVar(name),
                     meta.ToString()));
  });
}

// The types of the inputs of the given op, from which passes made the op of `now`.
class GivenTypes : public MetaTable {
 public:
  GivenTypes(const OpDesc& given, const InferContext& now) {
    const ProgramOrigins& origins = ScopedOrigins::Current();
    ForEachPosition(given.inputs(),
                    [&](const std::string& name, const std::string& slot, size_t i) {
                      if (IsEmptyName(name)) return;
                      const std::vector<std::string>& args = now.op().Input(slot);
                      complete_ &= i < args.size();
                      if (complete_) metas_[name] = origins.MetaOf(args[i], now.Input(slot, i));
                    });
  }
  bool complete() const { return complete_; }

  const VarMeta* Find(const std::string& name) const override {
    const auto found = metas_.find(name);
    return found == metas_.end() ? nullptr : &found->second;
  }
  void Set(const std::string&, const VarMeta&) override {}
  bool exact() const override { return true; }

 private:
  std::map<std::string, VarMeta> metas_;
  bool complete_ = true;
};

void CheckAndInfer(InferContext& context);

// If a pass has reordered the axes of an op's variables, the rule refuses shapes and axes that the
// caller does not know. Throws the rule's error for the given op instead.
void RefuseAsGiven(const InferContext& now) {
  std::shared_ptr<const OpDesc> given;
  now.op().ForEachOutput([&](const std::string& name) {
    const VarOrigin* origin = ScopedOrigins::Current().Find(name);
    if (origin && !given) given = origin->writer;
  });
  if (!given || given->type() != now.op().type()) return;
  try {
    GivenTypes types(*given, now);
    InferContext context(now.spec(), *given, types);
    if (types.complete()) CheckAndInfer(context);
  } catch (const NeedsValue&) {
  } catch (const NeedsLod&) {
  }
}

void CheckAndInfer(InferContext& context) {
  const OpSpec& spec = context.spec();
  RequireLimits(spec, context.op());
  if (spec.kind == OpKind::kCompute && !spec.TakesAnyValue()) RequireTaken(spec, context);
  if (!spec.shape_only) RequireStringsTaken(spec, context);
  const size_t items = spec.NumItems(context.op());
  if (spec.multi_tensor) RequireItems(spec, items, context);
  KernelOperand from;
  if (!spec.kernel_dtypes.empty()) from = FindKernelOperand(spec, context.op());
  if (!from.slot.empty() && !from.output) RequireKernel(spec, context, from);
  for (size_t i = 0; spec.infer && i < items; ++i) {
    InferContext item = context.Item(i);
    spec.infer(item);
  }
  if (!from.slot.empty() && from.output) RequireKernel(spec, context, from);
}

}  // namespace

void RunInfer(InferContext& context) {
  try {
    CheckAndInfer(context);
  } catch (const Error&) {
    RefuseAsGiven(context);
    throw;
  }
}

void RunGradient(const OpSpec& spec, GradientContext& context) {
  if (!spec.gradient) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: has no gradient: {}", spec.type, spec.no_gradient_reason),
                "  " + Locate(context.op()));
  }
  if (spec.NumItems(context.op()) > 1) {
    throw Error(
        ErrorCode::kUnimplemented,
        fmt::format("{}: has no gradient with several items; use an op for each", spec.type),
        "  " + Locate(context.op()));
  }
  spec.gradient(context);
  // Among several results, a rule may ignore one that no wanted gradient depends on; but an
  // intermediate result depends on everything that the op computes.
  for (const Slot& slot : context.op().outputs()) {
    const SlotDef* def = spec.FindOutput(slot.name);
    if (def && def->intermediate) context.RequireAsked(slot);
  }
}

}  // namespace coracle::inline internal
