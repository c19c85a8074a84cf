#include <coracle/framework/op/gradient_context.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

const std::string& ArgAt(const SlotList& slots, std::string_view name, size_t i) {
  static const std::string none;
  for (const Slot& slot : slots) {
    if (slot.name == name) return i < slot.args.size() ? slot.args[i] : none;
  }
  return none;
}

// Attrs that say how the forward op was made, not what it computes.
bool IsBookkeeping(const std::string& name) {
  return name == kOpRoleAttr || name == kOpRoleVarAttr || name == kOpCallstackAttr;
}

}  // namespace

GradientContext::GradientContext(const OpRegistry& ops, Request request)
    : ops_(ops), request_(std::move(request)) {}

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
  return !IsEmptyName(ArgAt(request_.output_grads, slot, i));
}

std::string GradientContext::OutputGrad(std::string_view slot, size_t i) {
  const std::string& given = ArgAt(request_.output_grads, slot, i);
  if (!IsEmptyName(given)) return given;
  std::string output = Output(slot, i);
  std::string zero = Temp(GradName(output) + "@ZERO");
  Append("fill_zeros_like", {{"X", {output}}}, {{"Out", {zero}}});
  for (Slot& s : request_.output_grads) {
    if (s.name == slot && i < s.args.size())
      s.args[i] = zero;  // the next question gets the same one
  }
  return zero;
}

bool GradientContext::NeedsInputGrad(std::string_view slot, size_t i) const {
  return !IsEmptyName(ArgAt(request_.input_grads, slot, i));
}

std::string GradientContext::InputGrad(std::string_view slot, size_t i) const {
  const std::string& name = ArgAt(request_.input_grads, slot, i);
  return IsEmptyName(name) ? std::string(kEmptyVarName) : name;
}

std::vector<std::string> GradientContext::InputGrads(std::string_view slot) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < op().Input(slot).size(); ++i) names.push_back(InputGrad(slot, i));
  return names;
}

OpDesc* GradientContext::Append(std::string type, SlotList inputs, SlotList outputs,
                                AttrList attrs) {
  bool any = false;
  for (const Slot& slot : outputs) {
    any |= std::any_of(slot.args.begin(), slot.args.end(),
                       [](const std::string& a) { return !IsEmptyName(a); });
  }
  if (!any) return nullptr;
  appended_.push_back(std::make_unique<OpDesc>(std::move(type), std::move(inputs),
                                               std::move(outputs), std::move(attrs)));
  return appended_.back().get();
}

std::string GradientContext::Temp(const std::string& hint) { return request_.fresh_name(hint); }

void GradientContext::AppendGradientOp(const std::vector<std::string>& forward_slots) {
  std::string type = op().type() + "_grad";
  const OpDef& grad_def = ops_.Get(type);
  SlotList inputs, outputs;
  for (const std::string& slot : forward_slots) {
    if (op().HasInput(slot))
      inputs.push_back({slot, op().Input(slot)});
    else if (op().HasOutput(slot))
      inputs.push_back({slot, op().Output(slot)});
  }
  for (const Slot& slot : op().outputs()) {
    const SlotDef* grad_slot = grad_def.FindInput(GradName(slot.name));
    if (!grad_slot || !op().HasOutput(slot.name)) continue;
    std::vector<std::string> grads;
    bool any = false;
    for (size_t i = 0; i < slot.args.size(); ++i) any |= HasOutputGrad(slot.name, i);
    if (!any && grad_slot->optional) continue;
    for (size_t i = 0; i < slot.args.size(); ++i) grads.push_back(OutputGrad(slot.name, i));
    inputs.push_back({GradName(slot.name), std::move(grads)});
  }
  for (const Slot& slot : op().inputs()) {
    if (!grad_def.FindOutput(GradName(slot.name))) continue;
    std::vector<std::string> grads = InputGrads(slot.name);
    if (std::all_of(grads.begin(), grads.end(),
                    [](const std::string& g) { return IsEmptyName(g); }))
      continue;
    outputs.push_back({GradName(slot.name), std::move(grads)});
  }
  AttrList attrs;
  for (const NamedAttr& attr : op().attrs()) {
    if (!IsBookkeeping(attr.name)) attrs.push_back(attr);
  }
  Append(std::move(type), std::move(inputs), std::move(outputs), std::move(attrs));
}

}  // namespace coracle
