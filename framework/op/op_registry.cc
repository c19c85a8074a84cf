#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/framework/op/op_registry.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coracle {
namespace {

template <class Defs>
void RequireDistinct(const OpSpec& def, const Defs& defs, const char* what) {
  std::set<std::string> names;
  for (const auto& d : defs) {
    if (!names.insert(d.name).second) {
      throw InternalError(fmt::format("{}: {} {} is declared twice", def.type, what, d.name));
    }
    if (d.doc.empty())
      throw InternalError(fmt::format("{}: {} {} has no doc", def.type, what, d.name));
  }
}

// Traits name slots and attrs that are declared.
void CheckTraits(const OpSpec& def) {
  const auto require = [&](bool declared, const char* trait, const std::string& name) {
    if (!declared)
      throw InternalError(fmt::format("{}: {} names the unknown {}", def.type, trait, name));
  };
  for (const std::string& slot : def.score_slots)
    require(def.FindInput(slot) || def.FindOutput(slot), "Scores", slot);
  const auto has_attr = [&](const std::string& name, std::initializer_list<AttrType> types) {
    const AttrDef* attr = def.FindAttr(name);
    return attr && std::find(types.begin(), types.end(), attr->type) != types.end();
  };
  require(def.soft_label_attr.empty() || has_attr(def.soft_label_attr, {AttrType::kBoolean}),
          "SoftLabels", def.soft_label_attr);
  require(def.axes == AxesAttr::kNone ||
              has_attr(def.axes_attr,
                       {AttrType::kInt, AttrType::kLong, AttrType::kInts, AttrType::kLongs}),
          "WorksAlong", def.axes_attr);
  if (def.permutes && def.axes == AxesAttr::kFrom)
    throw InternalError(fmt::format("{}: axes that follow another cannot be permuted", def.type));
}

void CheckDeclaration(const OpSpec& def) {
  if (def.type.empty()) throw InternalError("an OpDef needs the name of an op type");
  if (def.doc.empty()) throw InternalError(fmt::format("{}: an OpDef needs a doc", def.type));
  if (def.Expands() && (def.HasReferenceKernel() || def.HasFastKernel() || def.HasGradient() ||
                        !def.no_gradient_reason.empty())) {
    throw InternalError(fmt::format(
        "{}: an op that expands has the kernels and gradients of the ops that it joins", def.type));
  }
  if ((def.HasGradient() || def.Expands()) == !def.no_gradient_reason.empty()) {
    throw InternalError(
        fmt::format("{}: an OpDef needs either a gradient or a reason for having none", def.type));
  }
  RequireDistinct(def, def.inputs, "input");
  RequireDistinct(def, def.outputs, "output");
  RequireDistinct(def, def.attrs, "attr");
  std::set<std::string> ids;
  for (const ConstraintDef& constraint : def.constraints) {
    if (!ids.insert(constraint.id).second) {
      throw InternalError(
          fmt::format("{}: constraint {} is declared twice", def.type, constraint.id));
    }
  }
  for (const auto& [in, out] : def.inplace) {
    if (!def.FindInput(in) || !def.FindOutput(out)) {
      throw InternalError(
          fmt::format("{}: Inplace({}, {}) names an unknown slot", def.type, in, out));
    }
  }
  CheckTraits(def);
}

}  // namespace

void OpRegistry::Add(OpDef def) {
  const auto find = [&](const std::string& type) { return Find(type); };
  Add(std::move(def).Resolve(find));
}

void OpRegistry::Add(OpSpec spec) {
  CheckDeclaration(spec);
  if (Find(spec.type)) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("op type {} is already registered", Quote(spec.type)));
  }
  auto owned = std::make_unique<OpSpec>(std::move(spec));
  std::string_view key = owned->type;
  specs_.emplace(key, std::move(owned));
}

const OpSpec* OpRegistry::Find(std::string_view type) const {
  auto it = specs_.find(type);
  return it == specs_.end() ? nullptr : it->second.get();
}

const OpSpec& OpRegistry::Get(std::string_view type) const {
  if (const OpSpec* def = Find(type)) return *def;
  throw Error(ErrorCode::kNotFound, DescribeMissingOp(type, Types()));
}

std::vector<std::string> OpRegistry::Types() const {
  std::vector<std::string> types;
  for (const auto& [type, def] : specs_) types.emplace_back(type);
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace coracle
