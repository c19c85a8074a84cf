#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/context/gradient_stage.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/recomputed.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

// Index into the concatenated names of `slots`; -1 if the slot has no variable i.
ptrdiff_t IndexOf(const SlotList& slots, std::string_view name, size_t i) {
  size_t begin = 0;
  for (const Slot& slot : slots) {
    if (slot.name == name) return i < slot.args.size() ? static_cast<ptrdiff_t>(begin + i) : -1;
    begin += slot.args.size();
  }
  return -1;
}

const std::string& ArgAt(const SlotList& slots, const std::vector<std::string>& names,
                         std::string_view slot, size_t i) {
  static const std::string none;
  const ptrdiff_t index = IndexOf(slots, slot, i);
  return index < 0 ? none : names[static_cast<size_t>(index)];
}

// Attrs that concern only the forward op. Its name scope and its device apply to the gradient too.
bool IsOfForwardOp(const std::string& name) {
  if (name == kOpNamescopeAttr || name == kOpDeviceAttr) return false;
  return IsBookkeepingAttr(name) || name == kRecomputedFromAttr || name == kOuterReadsAttr ||
         name == kOuterInputsAttr;
}

}  // namespace

std::string GradientBlock::Find(const std::vector<Value>& values, std::string_view var) {
  for (const Value& value : values) {
    if (value.var == var) return value.gradient;
  }
  return "";
}

GradientContext::GradientContext(const OpRegistry& ops, Request request)
    : ops_(ops), request_(std::move(request)) {
  Required(request_.op, "the op of a GradientContext");
  Required(request_.block, "the block of a GradientContext");
  if (!request_.forward_op) request_.forward_op = request_.op;
}

GradientContext::~GradientContext() = default;

internal::GradientStage& GradientContext::GetStage() {
  if (stage_) return *stage_;
  std::string first = op().type();
  op().AnyInput([&](const std::string& name) {
    first = name;
    return true;
  });
  stage_ = std::make_unique<internal::GradientStage>(*request_.block, ops_, first + "@TERM");
  BlockDesc& block = stage_->block();
  for (const auto& [name, meta] : request_.saved) block.Var(name).SetMeta(meta);
  DeclareArrived(block);
  for (auto& appended : appended_) block.AppendOp(std::move(appended));
  appended_.clear();
  return *stage_;
}

std::string GradientContext::Input(std::string_view slot, size_t i) const {
  const auto& args = op().Input(slot);
  return i < args.size() && !IsEmptyName(args[i]) ? args[i] : "";
}

std::string GradientContext::Output(std::string_view slot, size_t i) const {
  const auto& args = op().Output(slot);
  return i < args.size() && !IsEmptyName(args[i]) ? args[i] : "";
}

const VarMeta& GradientContext::MetaOf(const std::string& name) const {
  for (const auto& [saved_name, meta] : request_.saved) {
    if (saved_name == name) return meta;
  }
  const VarDesc* var = request_.block->FindVarRecursive(name);
  if (!var) throw InternalError(fmt::format("gradient of {}: no var '{}'", op().type(), name));
  return var->meta();
}

bool GradientContext::HasOutputGrad(std::string_view slot, size_t i) const {
  NoteAsked(slot);
  return !IsEmptyName(ArgAt(op().outputs(), request_.output_grads, slot, i));
}

void GradientContext::NoteAsked(std::string_view slot) const {
  if (std::find(asked_.begin(), asked_.end(), slot) == asked_.end()) asked_.emplace_back(slot);
}

// A sparse gradient is declared with the type of its dense copy, which ops without sparse inputs
// get later.
void GradientContext::DeclareArrived(BlockDesc& block) const {
  size_t k = 0;
  ForEachPosition(op().outputs(), [&](const std::string& output) {
    const std::string& grad = request_.output_grads[k++];
    if (IsEmptyName(grad)) return;
    const VarDesc* var = block.FindVarRecursive(grad);
    if (var && var->type() == VarType::kLoDTensor) return;
    VarMeta meta = var ? var->meta() : MetaOf(output);
    if (meta.type == VarType::kSelectedRows) meta.type = VarType::kLoDTensor;
    block.Var(grad).SetMeta(meta);
  });
}

Variable GradientContext::In(std::string_view slot, size_t i) {
  return GetStage().writer().Var(Input(slot, i));
}

Variable GradientContext::Out(std::string_view slot, size_t i) {
  return GetStage().writer().Var(Output(slot, i));
}

Variable GradientContext::Grad(std::string_view slot, size_t i) {
  const ptrdiff_t index = IndexOf(op().outputs(), slot, i);
  if (index < 0) {
    throw InternalError(
        fmt::format("gradient of {}: asked for the gradient of output {}[{}], which does not exist",
                    op().type(), slot, i));
  }
  NoteAsked(slot);
  std::string& grad = request_.output_grads[static_cast<size_t>(index)];
  if (IsEmptyName(grad)) {  // later calls return the same zeros
    const std::string output = Output(slot, i);
    grad = Named(GradName(output) + "@ZERO", Make("fill_zeros_like", {{"X", {output}}})).name();
  }
  return GetStage().writer().Var(grad);
}

Variable GradientContext::Make(const std::string& type, SlotList inputs, AttrList attrs,
                               const std::string& output) {
  return GetStage().writer().Make(type, std::move(inputs), std::move(attrs), output);
}

Variable GradientContext::Named(const std::string& name, const Variable& made) {
  GetStage().SetName(made.name(), name);
  return made;
}

void GradientContext::Set(std::string_view slot, const Variable& gradient, size_t i) {
  if (!NeedsInputGrad(slot, i)) return;
  internal::GradientStage& stage = GetStage();
  if (stage.Made(gradient.name()))
    stage.Yield(gradient.name(), InputGrad(slot, i));
  else
    stage.writer().Append("assign", {{"X", {gradient.name()}}}, {{"Out", {InputGrad(slot, i)}}});
}

std::string GradientContext::OutputGrad(std::string_view slot, size_t i) {
  return HasOutputGrad(slot, i) ? ArgAt(op().outputs(), request_.output_grads, slot, i)
                                : Grad(slot, i).name();
}

std::vector<std::string> GradientContext::OutputGrads(std::string_view slot) {
  std::vector<std::string> names;
  for (size_t i = 0; i < op().Output(slot).size(); ++i) names.push_back(OutputGrad(slot, i));
  return names;
}

bool GradientContext::NeedsInputGrad(std::string_view slot, size_t i) const {
  return !IsEmptyName(ArgAt(op().inputs(), request_.input_grads, slot, i));
}

std::string GradientContext::InputGrad(std::string_view slot, size_t i) const {
  const std::string& name = ArgAt(op().inputs(), request_.input_grads, slot, i);
  return IsEmptyName(name) ? std::string(kEmptyVarName) : name;
}

bool GradientContext::NeedsKeptGrad(std::string_view slot, size_t i) const {
  return !request_.kept_grads.empty() &&
         !IsEmptyName(ArgAt(op().outputs(), request_.kept_grads, slot, i));
}

std::string GradientContext::KeptGrad(std::string_view slot, size_t i) const {
  if (!NeedsKeptGrad(slot, i)) return std::string(kEmptyVarName);
  return ArgAt(op().outputs(), request_.kept_grads, slot, i);
}

GradientBlock GradientContext::AppendGradientBlock(const GradientBlockRequest& request) const {
  if (!request_.gradient_block) {
    throw InternalError(
        fmt::format("gradient of {}: no gradient block can be made here", op().type()));
  }
  return request_.gradient_block(request);
}

std::string GradientContext::ForwardOutput(std::string_view slot, const VarMeta& meta) const {
  if (HasOutput(slot)) return Output(slot);
  if (!request_.forward_output)
    throw InternalError(fmt::format("gradient of {}: {} cannot be added", op().type(), slot));
  return request_.forward_output(slot, meta);
}

std::vector<std::string> GradientContext::InputGrads(std::string_view slot) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < op().Input(slot).size(); ++i) names.push_back(InputGrad(slot, i));
  return names;
}

OpDesc* GradientContext::Append(std::string type, SlotList inputs, SlotList outputs,
                                AttrList attrs) {
  auto op = std::make_unique<OpDesc>(std::move(type), std::move(inputs), std::move(outputs),
                                     std::move(attrs));
  if (!op->AnyOutput([](const std::string&) { return true; })) return nullptr;
  if (stage_) return &stage_->block().AppendOp(std::move(op));
  appended_.push_back(std::move(op));
  return appended_.back().get();
}

std::vector<std::unique_ptr<OpDesc>> GradientContext::ReleaseOps() {
  return stage_ ? stage_->ReleaseOps(request_.fresh_name) : std::move(appended_);
}

AttrList GradientContext::ForwardAttrs(std::initializer_list<const char*> names) const {
  const OpSpec& def = ops_.Get(op().type());
  AttrList attrs;
  for (const char* name : names) {
    Attribute value = def.AttrValue(op(), name);
    const AttrType type = def.FindAttr(name)->type;
    if (!ConvertAttribute(value, type, &value)) {
      ThrowInvalid(fmt::format("{}: attr {} must be {}, got {} {}", op().type(), name,
                               ToString(type), ToString(TypeOf(value)), ToString(value)),
                   "  " + Locate(op()));
    }
    attrs.push_back({name, std::move(value)});
  }
  return attrs;
}

AttrList GradientContext::ForwardAttrs(std::string_view type) const {
  const OpSpec& def = ops_.Get(type);
  AttrList attrs;
  for (const NamedAttr& attr : op().attrs()) {
    if (def.FindAttr(attr.name)) attrs.push_back(attr);
  }
  return attrs;
}

SlotList GradientContext::ForwardInputs(std::initializer_list<const char*> slots) const {
  SlotList inputs;
  for (const char* slot : slots) {
    if (HasInput(slot)) inputs.push_back({slot, Inputs(slot)});
  }
  return inputs;
}

std::string GradientContext::Temp(const std::string& hint) {
  return stage_ ? stage_->Placeholder(hint) : request_.fresh_name(hint);
}

void GradientContext::RequireAsked(const Slot& slot) const {
  if (std::find(asked_.begin(), asked_.end(), slot.name) != asked_.end()) return;
  for (size_t i = 0; i < slot.args.size(); ++i) {
    if (IsEmptyName(ArgAt(op().outputs(), request_.output_grads, slot.name, i))) continue;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: no gradient flows back through its output {}, and one arrived at "
                            "{}; stop it there (stop_gradient)",
                            op().type(), slot.name, Quote(slot.args[i])),
                "  " + Locate(op()));
  }
}

void GradientContext::AppendGradientOp(const std::vector<std::string>& forward_slots) {
  std::string type = op().type() + "_grad";
  const OpSpec& grad_def = ops_.Get(type);
  SlotList inputs, outputs;
  inputs.reserve(forward_slots.size() + op().outputs().size());
  outputs.reserve(op().inputs().size());
  for (const std::string& slot : forward_slots) {
    if (op().HasInput(slot))
      inputs.push_back({slot, op().Input(slot)});
    else if (op().HasOutput(slot))
      inputs.push_back({slot, op().Output(slot)});
  }
  for (const Slot& slot : op().outputs()) {
    std::string name = GradName(slot.name);
    if (!op().HasOutput(slot.name)) continue;
    const SlotDef* grad_slot = grad_def.FindInput(name);
    if (!grad_slot) {
      RequireAsked(slot);
      continue;
    }
    bool any = !grad_slot->optional;
    for (size_t i = 0; i < slot.args.size() && !any; ++i) any = HasOutputGrad(slot.name, i);
    if (!any) continue;
    inputs.push_back({std::move(name), OutputGrads(slot.name)});
  }
  size_t index = 0;
  for (const Slot& slot : op().inputs()) {
    const auto first = request_.input_grads.begin() + static_cast<ptrdiff_t>(index);
    const auto last = first + static_cast<ptrdiff_t>(slot.args.size());
    index += slot.args.size();
    if (std::all_of(first, last, [](const std::string& g) { return IsEmptyName(g); })) continue;
    std::string name = GradName(slot.name);
    if (!grad_def.FindOutput(name)) continue;
    outputs.push_back({std::move(name), std::vector<std::string>(first, last)});
    for (std::string& grad : outputs.back().args) {
      if (grad.empty()) grad = kEmptyVarName;
    }
  }
  AttrList attrs;
  attrs.reserve(op().attrs().size() + 2);  // room for op_role and op_role_var
  for (const NamedAttr& attr : op().attrs()) {
    if (!IsOfForwardOp(attr.name)) attrs.push_back(attr);
  }
  Append(std::move(type), std::move(inputs), std::move(outputs), std::move(attrs));
}

}  // namespace coracle
