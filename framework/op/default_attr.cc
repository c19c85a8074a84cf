#include <coracle/framework/op/op_registry.h>

#include <algorithm>
#include <string>
#include <unordered_set>

namespace coracle {
namespace {

// Attrs that choose an implementation, or that the op does not declare, do not affect the meaning
// of a program.
bool ChoosesImplementation(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "use_cudnn",        "use_mkldnn",        "use_quantizer",     "with_quant_attr",
      "mkldnn_data_type", "force_fp32_output", "workspace_size_MB", "exhaustive_search",
      "use_addto",        "x_data_format",     "y_data_format",     "force_cpu",
      "place_type",       "use_cudnn_rnn",     "is_test",           "data_format"};
  return names.count(name) > 0 || name.starts_with("Scale_") || name.starts_with("fuse_") ||
         name.starts_with("fused_");
}

// Whether a common attr has the value that its absence means.
bool IsUnsetCommon(const NamedAttr& attr) {
  if (attr.name == kOpRoleAttr) {
    const auto* role = std::get_if<int32_t>(&attr.value);
    return role && *role == kForward;
  }
  if (attr.name == kOpDeviceAttr || attr.name == kOpNamescopeAttr) {
    const auto* text = std::get_if<std::string>(&attr.value);
    return text && (text->empty() || *text == "/");
  }
  const auto* names = std::get_if<std::vector<std::string>>(&attr.value);
  return attr.name == kOpRoleVarAttr && names && names->empty();
}

}  // namespace

bool IsDefaultAttr(const OpRegistry& ops, const OpDesc& op, const NamedAttr& attr) {
  const OpSpec* def = ops.Find(op.type());
  const AttrDef* declared = def ? def->FindAttr(attr.name) : nullptr;
  if (!declared) return ChoosesImplementation(attr.name) || IsUnsetCommon(attr);
  if (!declared->default_value) return false;
  if (attr.value == *declared->default_value) return true;
  Attribute converted;
  return ConvertAttribute(attr.value, declared->type, &converted) &&
         converted == *declared->default_value;
}

namespace {

// Every variable of the slot is also an input of the op.
bool IsInPlace(const OpDesc& op, const Slot& slot) {
  return std::all_of(slot.args.begin(), slot.args.end(),
                     [&](const std::string& name) { return op.Reads(name); });
}

bool IsMinorOutput(const OpRegistry& ops, const OpDesc& op, const Slot& slot) {
  const OpSpec* spec = ops.Find(op.type());
  if (!spec || spec->outputs.empty() || spec->outputs.front().name == slot.name) return false;
  const SlotDef* declared = spec->FindOutput(slot.name);
  return declared && (declared->intermediate || IsInPlace(op, slot));
}

}  // namespace

PrintOptions ShortListing(const OpRegistry& ops) {
  PrintOptions options;
  options.hide_attr = [&ops](const OpDesc& op, const NamedAttr& attr) {
    return IsDefaultAttr(ops, op, attr);
  };
  options.hide_output = [&ops](const OpDesc& op, const Slot& slot) {
    return IsMinorOutput(ops, op, slot);
  };
  return options;
}

}  // namespace coracle
