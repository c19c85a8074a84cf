#include <coracle/framework/base/text.h>
#include <coracle/inspect/op_text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {

std::string GradientText(const OpSpec& def) {
  switch (def.gradient_kind) {
    case GradientKind::kRule:
      break;
    case GradientKind::kNotDifferentiable:
      return "none, its outputs count as constants: " + def.no_gradient_reason;
    case GradientKind::kNoRule:
      return "none: " + def.no_gradient_reason;
    case GradientKind::kForbidden:
      return "an error: " + def.no_gradient_reason;
  }
  if (def.Expands()) return "that of the ops that it expands to";
  const OpSpec* grad = DefaultOps().Find(def.type + "_grad");
  if (!grad) return "composed of other ops";
  return "by the op " + grad->type + (grad->HasGradient() ? ", which has a gradient itself" : "");
}

std::string LodText(const OpSpec& def) {
  if (def.makes_lod) return "its kernel makes that of the outputs";
  if (def.no_lod) return "the outputs have none";
  if (def.block.runs != BlockRuns::kNone) return "as the ops of its block say";
  if (def.inputs.empty() || def.outputs.empty()) return "";
  const std::string& source = def.lod_slot.empty() ? def.inputs[0].name : def.lod_slot;
  const std::string axis = def.lod_axis.empty() ? "" : ", unless " + def.lod_axis + " names axis 0";
  return "that of " + source + ", for outputs with as many rows" + axis;
}

std::string RowsText(const OpSpec& def) {
  if (!def.rows.text.empty()) return def.rows.text;
  if (def.block.runs != BlockRuns::kNone) return "as the ops of its block say";
  RowRule rule = def.rows.effect.rule;
  if (rule == RowRule::kUndeclared && def.kind == OpKind::kCompute) rule = RowRule::kEach;
  switch (rule) {
    case RowRule::kUndeclared:
      return "";
    case RowRule::kEach:
      if (def.axes == AxesAttr::kAxes && !def.elementwise)
        return fmt::format("each by itself, unless {} names their axis", def.axes_attr);
      if (def.axes == AxesAttr::kFrom)
        return fmt::format("each by itself, if their axis is before {}", def.axes_attr);
      return "each by itself";
    case RowRule::kMoves:
      return "moved";
    case RowRule::kMixes:
      return "mixed";
    case RowRule::kSum:
      return "summed";
    case RowRule::kMean:
      return "averaged over " + def.rows.effect.of;
    case RowRule::kSame:
      return "outputs are equal on all ranks";
    case RowRule::kStatistic:
      return "a running statistic";
  }
  return "";
}

std::string SoftLabelsText(const OpSpec& def) {
  const std::string slots = Join(def.soft_label_slots, " or ");
  return def.soft_label_attr.empty() ? slots : slots + ", if " + def.soft_label_attr;
}

namespace {

// Whether a constraint says that the inputs must be strings.
bool TakesOnlyStrings(const OpSpec& def) {
  return std::any_of(def.constraints.begin(), def.constraints.end(), [](const ConstraintDef& c) {
    return std::string_view(c.text).ends_with(" must be strings");
  });
}

}  // namespace

std::string DTypesText(const OpSpec& def) {
  if (!def.HasReferenceKernel() && !def.Expands()) return "";
  if (def.kernel_dtypes.empty()) return TakesOnlyStrings(def) ? "string" : "any";
  std::vector<std::string> names;
  for (DType dtype : def.kernel_dtypes) names.emplace_back(ToString(dtype));
  std::string text = Join(names, ", ");
  if (!def.kernel_type_slot.empty()) text += " (of " + def.kernel_type_slot + ")";
  if (def.HasLoopFor(DType::kFloat32) && !def.HasLoopFor(DType::kFloat16))
    text += "; float16 and bfloat16 are computed in float32";
  return text;
}

std::string KernelsText(const OpSpec& def) {
  if (def.Expands()) return "none, it expands to " + Join(def.expands_to, ", ");
  if (!def.HasReferenceKernel()) return "none";
  return def.HasFastKernel() ? "reference, fast" : "reference";
}

std::string InplaceText(const OpSpec& def) {
  std::vector<std::string> pairs;
  for (const auto& [input, output] : def.inplace) pairs.push_back(input + " and " + output);
  return Join(pairs, ", ");
}

std::string SlotTraits(const SlotDef& slot) {
  std::string traits;
  if (slot.variadic)
    traits += slot.optional ? ", none or more" : ", one or more";
  else if (slot.optional)
    traits += ", optional";
  if (slot.intermediate) traits += ", intermediate";
  if (slot.no_gradient) traits += ", no gradient";
  return traits.empty() ? "" : traits.substr(2);
}

std::string Brief(const std::string& doc, size_t most) {
  size_t end = doc.find(". ");
  while (end != doc.npos && end > 0 && doc[end - 1] == '.') end = doc.find(". ", end + 1);
  std::string text = end == doc.npos ? doc : doc.substr(0, end + 1);
  if (!text.empty() && text.back() == '.') text.pop_back();
  if (text.size() > most) text.replace(most - 3, text.npos, "...");
  return text;
}

std::string AttrLimits(const AttrDef& attr) {
  std::string text;
  if (attr.min) text += fmt::format(", at least {}", *attr.min);
  if (attr.max) text += fmt::format(", at most {}", *attr.max);
  if (!attr.one_of.empty()) text += fmt::format(", one of \"{}\"", Join(attr.one_of, "\", \""));
  return text;
}

}  // namespace coracle::inline internal
