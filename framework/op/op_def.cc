#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/half_kernel.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <fmt/format.h>

namespace coracle {
namespace {

template <class Def>
const Def* FindByName(const std::vector<Def>& defs, std::string_view name) {
  for (const Def& def : defs) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

// Kernels of most ops know dense tensors only.
bool TakesAnyValue(const OpDef& def) {
  if (def.side_effect() || def.type() == "assign") return true;
  return std::any_of(def.attrs().begin(), def.attrs().end(),
                     [](const AttrDef& attr) { return attr.type == AttrType::kBlock; });
}

const char* HowToMakeDense(const VarMeta& meta) {
  return meta.type == VarType::kSelectedRows
             ? "; get_tensor_from_selected_rows makes a dense tensor of it"
             : "";
}

void RequireTaken(const OpDef& def, const InferContext& context) {
  for (const SlotDef& slot : def.inputs()) {
    const auto& args = context.op().Input(slot.name);
    for (size_t i = 0; i < args.size(); ++i) {
      if (IsEmptyName(args[i])) continue;
      const VarMeta& meta = context.Input(slot.name, i);
      if (slot.Takes(meta.type)) continue;
      ThrowInvalid(fmt::format("{}: input {} must be a dense tensor, and {} is {}{}", def.type(),
                               slot.name, Quote(args[i]), meta.ToString(), HowToMakeDense(meta)),
                   "  " + Locate(context.op()));
    }
  }
}

// The variable whose element type chooses the kernel; no slot when there is none.
struct KernelOperand {
  std::string_view slot;
  bool output = false;
};
KernelOperand FindKernelOperand(const OpDef& def, const OpDesc& op) {
  const auto holds = [](const std::vector<std::string>& args) {
    return !args.empty() && !IsEmptyName(args[0]);
  };
  if (const std::string& slot = def.kernel_type_slot(); !slot.empty()) {
    if (holds(op.Input(slot))) return {slot, false};
    if (holds(op.Output(slot))) return {slot, true};
  }
  for (const SlotDef& slot : def.inputs()) {
    if (holds(op.Input(slot.name))) return {slot.name, false};
  }
  for (const SlotDef& slot : def.outputs()) {
    if (holds(op.Output(slot.name))) return {slot.name, true};
  }
  return {};
}

std::string NamesOf(const std::vector<DType>& dtypes) {
  std::vector<std::string> names;
  names.reserve(dtypes.size());
  for (DType dtype : dtypes) names.emplace_back(ToString(dtype));
  return Join(names, ", ");
}

// Refuses what no kernel takes when the types are known, not when the op runs.
void RequireKernel(const OpDef& def, const InferContext& context, const KernelOperand& from) {
  const VarMeta* meta = from.output ? context.DeclaredOutput(from.slot) : &context.Input(from.slot);
  // The element type of an array is known when its elements are.
  if (!meta || meta->type == VarType::kLoDTensorArray) return;
  if (def.HasLoopFor(IsHalf(meta->dtype) ? DType::kFloat32 : meta->dtype)) return;
  const OpDesc& op = context.op();
  const std::string& name = (from.output ? op.Output(from.slot) : op.Input(from.slot))[0];
  ThrowInvalid(fmt::format("{}: there is no kernel for {} {} = {} {}; supported: {}", def.type(),
                           from.output ? "output" : "input", from.slot, Quote(name),
                           meta->ToString(), NamesOf(def.kernel_dtypes())),
               "  " + Locate(op));
}

// Every slot that is not shared holds a variable for each item, or none; of one dtype and dense
// where there are several.
void RequireItems(const OpDef& def, size_t items, const InferContext& context) {
  const OpDesc& op = context.op();
  const auto fail = [&](const std::string& what) {
    ThrowInvalid(fmt::format("{}: {}", def.type(), what), "  " + Locate(op));
  };
  const auto count = [&](const Slot& slot) {
    const size_t wanted = def.IsShared(slot.name) ? 1 : items;
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
                     Quote(op.Input(slot)[0]), first.ToString(), Quote(name), meta.ToString()));
  });
}

}  // namespace

DType internal::KernelDType(const PrepareContext& context) {
  const KernelOperand from = FindKernelOperand(context.def(), context.op());
  if (from.slot.empty())
    throw InternalError(
        fmt::format("{}: no slot tells the kernel's element type", context.op().type()));
  return from.output ? context.Output(from.slot).dtype : context.Input(from.slot).dtype;
}

void internal::ThrowNoKernel(const PrepareContext& context) {
  context.Unsupported(fmt::format("no kernel for {}; supported: {}", ToString(KernelDType(context)),
                                  NamesOf(context.def().kernel_dtypes())));
}

OpDef& OpDef::Doc(std::string text) {
  doc_ = std::move(text);
  return *this;
}

OpDef& OpDef::AddInput(std::string name, std::string doc, bool optional, bool variadic) {
  inputs_.push_back({std::move(name), std::move(doc), optional, variadic, false, false, {}});
  return *this;
}

OpDef& OpDef::AddOutput(std::string name, std::string doc, bool optional, bool variadic,
                        bool intermediate) {
  outputs_.push_back(
      {std::move(name), std::move(doc), optional, variadic, intermediate, false, {}});
  return *this;
}

OpDef& OpDef::Input(std::string n, std::string d) {
  return AddInput(std::move(n), std::move(d), false, false);
}
OpDef& OpDef::OptionalInput(std::string n, std::string d) {
  return AddInput(std::move(n), std::move(d), true, false);
}
OpDef& OpDef::VariadicInput(std::string n, std::string d) {
  return AddInput(std::move(n), std::move(d), false, true);
}
OpDef& OpDef::OptionalVariadicInput(std::string n, std::string d) {
  return AddInput(std::move(n), std::move(d), true, true);
}
OpDef& OpDef::Output(std::string n, std::string d) {
  return AddOutput(std::move(n), std::move(d), false, false, false);
}
OpDef& OpDef::OptionalOutput(std::string n, std::string d) {
  return AddOutput(std::move(n), std::move(d), true, false, false);
}
OpDef& OpDef::VariadicOutput(std::string n, std::string d) {
  return AddOutput(std::move(n), std::move(d), false, true, false);
}
OpDef& OpDef::OptionalVariadicOutput(std::string n, std::string d) {
  return AddOutput(std::move(n), std::move(d), true, true, false);
}
OpDef& OpDef::IntermediateOutput(std::string n, std::string d) {
  return AddOutput(std::move(n), std::move(d), true, false, true);
}

OpDef& OpDef::AddAttr(AttrDef attr) {
  attrs_.push_back(std::move(attr));
  return *this;
}

OpDef& OpDef::Range(std::optional<double> min, std::optional<double> max) {
  attrs_.back().min = min;
  attrs_.back().max = max;
  return *this;
}

OpDef& OpDef::OneOf(std::vector<std::string> values) {
  attrs_.back().one_of = std::move(values);
  return *this;
}

OpDef& OpDef::Infer(InferFn fn) {
  infer_ = std::move(fn);
  return *this;
}

OpDef& OpDef::Gradient(GradientFn fn) {
  gradient_ = std::move(fn);
  return *this;
}

OpDef& OpDef::NotDifferentiable(std::string reason) {
  gradient_kind_ = GradientKind::kNotDifferentiable;
  no_gradient_reason_ = std::move(reason);
  return *this;
}

OpDef& OpDef::NoGradient(std::string reason) {
  gradient_kind_ = GradientKind::kNoRule;
  no_gradient_reason_ = std::move(reason);
  return *this;
}

OpDef& OpDef::ForbidGradient(std::string reason) {
  gradient_kind_ = GradientKind::kForbidden;
  no_gradient_reason_ = std::move(reason);
  return *this;
}

OpDef& OpDef::KeepsOutputs(std::vector<std::string> output_slots) {
  for (const std::string& name : output_slots) {
    if (!FindOutput(name))
      throw InternalError(fmt::format("{}: KeepsOutputs names no output {}", type_, name));
  }
  keeps_outputs_ = std::move(output_slots);
  return *this;
}

OpDef& OpDef::GradientOp(std::vector<std::string> forward_slots) {
  return Gradient(
      [slots = std::move(forward_slots)](GradientContext& g) { g.AppendGradientOp(slots); });
}

SlotDef& OpDef::InputNamed(const std::string& name, const char* trait) {
  auto it = std::find_if(inputs_.begin(), inputs_.end(),
                         [&](const SlotDef& s) { return s.name == name; });
  if (it == inputs_.end())
    throw InternalError(fmt::format("{}: {} names no input {}", type_, trait, name));
  return *it;
}

OpDef& OpDef::NoGradientTo(const std::vector<std::string>& input_slots) {
  for (const std::string& name : input_slots) InputNamed(name, "NoGradientTo").no_gradient = true;
  return *this;
}

OpDef& OpDef::Takes(VarType type, const std::vector<std::string>& input_slots) {
  for (const std::string& name : input_slots) InputNamed(name, "Takes").takes.push_back(type);
  return *this;
}

OpDef& OpDef::KernelTypeFrom(std::string slot) {
  kernel_type_slot_ = std::move(slot);
  return *this;
}

OpDef& OpDef::Fast(PrepareFn fn) {
  fast_ = std::move(fn);
  return *this;
}

OpDef& OpDef::Inplace(std::string input, std::string output) {
  inplace_.emplace_back(std::move(input), std::move(output));
  return *this;
}

OpDef& OpDef::Alias(std::string input, std::string output) {
  alias_.emplace_back(std::move(input), std::move(output));
  return *this;
}

OpDef& OpDef::ImageLayout(std::string attr, std::vector<std::string> slots) {
  layout_attr_ = std::move(attr);
  layout_slots_ = std::move(slots);
  return *this;
}

OpDef& OpDef::Elementwise() {
  elementwise_ = true;
  return *this;
}

OpDef& OpDef::ValueInputs(std::vector<std::string> slots) {
  value_inputs_ = std::move(slots);
  return *this;
}

OpDef& OpDef::MultiTensor(std::vector<std::string> shared_slots) {
  multi_tensor_ = true;
  shared_slots_ = std::move(shared_slots);
  return *this;
}

OpDef& OpDef::RunTimeShape() {
  run_time_shape_ = true;
  return *this;
}

OpDef& OpDef::ShapeOnly() {
  shape_only_ = true;
  return *this;
}

OpDef& OpDef::Random() {
  random_ = true;
  return *this;
}

OpDef& OpDef::SideEffect() {
  side_effect_ = true;
  return *this;
}

OpDef& OpDef::NamesFile(std::string attr, std::string unless) {
  file_attr_ = std::move(attr);
  no_file_attr_ = std::move(unless);
  return *this;
}

std::optional<std::string> OpDef::FileOf(const OpDesc& op) const {
  if (!names_file()) return std::nullopt;
  Attribute value;
  auto given = [&](const std::string& name, AttrType type) {
    const Attribute* attr = op.FindAttr(name);
    return attr && ConvertAttribute(*attr, type, &value);
  };
  if (given(no_file_attr_, AttrType::kBoolean) && std::get<bool>(value)) return std::nullopt;
  return given(file_attr_, AttrType::kString) ? std::get<std::string>(std::move(value)) : "";
}

OpDef& OpDef::Kind(OpKind kind) {
  kind_ = kind;
  return *this;
}

const SlotDef* OpDef::FindInput(std::string_view name) const { return FindByName(inputs_, name); }
bool OpDef::SlotTakes(std::string_view input, VarType type) const {
  const SlotDef* slot = FindInput(input);
  // What the declaration says of a slot counts before the rule for the op.
  if (slot && !slot->takes.empty()) return slot->Takes(type);
  return TakesAnyValue(*this) || (slot && slot->Takes(type));
}
const SlotDef* OpDef::FindOutput(std::string_view name) const { return FindByName(outputs_, name); }
const AttrDef* OpDef::FindAttr(std::string_view name) const { return FindByName(attrs_, name); }

bool OpDef::UpdatesInPlace(const OpDesc& op, std::string_view name) const {
  for (const auto& [in, out] : inplace_) {
    const auto& ins = op.Input(in);
    const auto& outs = op.Output(out);
    for (size_t i = 0; i < ins.size() && i < outs.size(); ++i) {
      if (ins[i] == name && outs[i] == name) return true;
    }
  }
  return false;
}

bool OpDef::IsShared(std::string_view slot) const {
  return std::find(shared_slots_.begin(), shared_slots_.end(), slot) != shared_slots_.end();
}

size_t OpDef::NumItems(const OpDesc& op) const {
  if (!multi_tensor_) return 1;
  for (const SlotDef& slot : inputs_) {
    if (!IsShared(slot.name) && op.HasInput(slot.name)) return op.Input(slot.name).size();
  }
  return 1;
}

void OpDef::RunInfer(InferContext& context) const {
  if (kind_ == OpKind::kCompute && !TakesAnyValue(*this)) RequireTaken(*this, context);
  const size_t items = NumItems(context.op());
  if (multi_tensor_) RequireItems(*this, items, context);
  KernelOperand from;
  if (!kernel_dtypes_.empty()) from = FindKernelOperand(*this, context.op());
  if (!from.slot.empty() && !from.output) RequireKernel(*this, context, from);
  for (size_t i = 0; infer_ && i < items; ++i) {
    InferContext item = context.Item(i);
    infer_(item);
  }
  if (!from.slot.empty() && from.output) RequireKernel(*this, context, from);
}

void OpDef::RunGradient(GradientContext& context) const {
  if (!gradient_) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: has no gradient: {}", type_, no_gradient_reason_),
                "  " + Locate(context.op()));
  }
  if (NumItems(context.op()) > 1) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: has no gradient with several items; use an op for each", type_),
                "  " + Locate(context.op()));
  }
  gradient_(context);
}

bool OpDef::HasLoopFor(DType dtype) const {
  return std::find(kernel_dtypes_.begin(), kernel_dtypes_.end(), dtype) != kernel_dtypes_.end();
}

// In 16-bit floats: what has no loop for them, and arithmetic that has a fast one for float.
bool OpDef::ComputesInFloat(const PrepareContext& context, KernelMode mode) const {
  if (kernel_dtypes_.empty() || !IsHalf(internal::KernelDType(context))) return false;
  if (!HasLoopFor(internal::KernelDType(context))) return HasLoopFor(DType::kFloat32);
  return mode == KernelMode::kAuto && fast_ && elementwise_;
}

Kernel OpDef::Prepare(const PrepareContext& context, KernelMode mode) const {
  if (mode == KernelMode::kAuto && fast_) {
    if (Kernel kernel = fast_(context)) return kernel;
  }
  if (ComputesInFloat(context, mode)) return PrepareInFloat(context, mode);
  if (!reference_) context.Unsupported("has no kernel");
  return reference_(context);
}

const Attribute& OpDef::AttrValue(const OpDesc& op, std::string_view name) const {
  if (const Attribute* given = op.FindAttr(name)) return *given;
  const AttrDef* def = FindAttr(name);
  if (!def) throw InternalError(fmt::format("{}: attr {} is read but not declared", type_, name));
  if (!def->default_value) {
    ThrowInvalid(fmt::format("{}: attr {} is required", type_, name), "  " + Locate(op));
  }
  return *def->default_value;
}

void OpDef::ThrowAttrType(const OpDesc& op, std::string_view name, const Attribute& value,
                          AttrType wanted) const {
  ThrowInvalid(fmt::format("{}: attr {} must be {}, got {} {}", type_, name, ToString(wanted),
                           ToString(TypeOf(value)), ToString(value)),
               "  " + Locate(op));
}

std::string Locate(const OpDesc& op) {
  std::string text;
  if (const BlockDesc* block = op.block()) {
    text = fmt::format("op {} of block {}", block->IndexOf(op), block->idx());
  } else {
    text = fmt::format("op {}", op.type());
  }
  std::string site = op.creation_site();
  return site.empty() ? text : fmt::format("{}, from {}", text, site);
}

}  // namespace coracle
