#include <coracle/framework/base/error.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

AttrDef& LastAttr(OpSpec& spec, const char* trait) {
  if (spec.attrs.empty())
    throw InternalError(fmt::format("{}: {} follows no attr", spec.type, trait));
  return spec.attrs.back();
}

}  // namespace

NameList::NameList(std::initializer_list<std::string_view> names)
    : names_(names.begin(), names.end()) {}
NameList::NameList(std::vector<std::string> names) : names_(std::move(names)) {}
NameList::~NameList() = default;

OpDef::OpDef(std::string_view type) { spec_.type = type; }
OpDef::OpDef(const OpDef&) = default;
OpDef::OpDef(OpDef&&) noexcept = default;
OpDef& OpDef::operator=(const OpDef&) = default;
OpDef& OpDef::operator=(OpDef&&) noexcept = default;
OpDef::~OpDef() = default;

OpDef& OpDef::Doc(std::string_view text) {
  spec_.doc = text;
  return *this;
}

OpDef& OpDef::AddInput(std::string_view name, std::string_view doc, bool optional, bool variadic) {
  spec_.inputs.push_back(
      {std::string(name), std::string(doc), optional, variadic, false, false, {}});
  return *this;
}

OpDef& OpDef::AddOutput(std::string_view name, std::string_view doc, bool optional, bool variadic,
                        bool intermediate) {
  spec_.outputs.push_back(
      {std::string(name), std::string(doc), optional, variadic, intermediate, false, {}});
  return *this;
}

OpDef& OpDef::Input(std::string_view n, std::string_view d) { return AddInput(n, d, false, false); }
OpDef& OpDef::OptionalInput(std::string_view n, std::string_view d) {
  return AddInput(n, d, true, false);
}
OpDef& OpDef::VariadicInput(std::string_view n, std::string_view d) {
  return AddInput(n, d, false, true);
}
OpDef& OpDef::OptionalVariadicInput(std::string_view n, std::string_view d) {
  return AddInput(n, d, true, true);
}
OpDef& OpDef::Output(std::string_view n, std::string_view d) {
  return AddOutput(n, d, false, false, false);
}
OpDef& OpDef::OptionalOutput(std::string_view n, std::string_view d) {
  return AddOutput(n, d, true, false, false);
}
OpDef& OpDef::VariadicOutput(std::string_view n, std::string_view d) {
  return AddOutput(n, d, false, true, false);
}
OpDef& OpDef::OptionalVariadicOutput(std::string_view n, std::string_view d) {
  return AddOutput(n, d, true, true, false);
}
OpDef& OpDef::IntermediateOutput(std::string_view n, std::string_view d) {
  return AddOutput(n, d, true, false, true);
}

OpDef& OpDef::AddAttr(std::string_view name, AttrType type, const Attribute* default_value,
                      std::string_view doc) {
  AttrDef& attr = spec_.attrs.emplace_back();
  attr.name = name;
  attr.type = type;
  if (default_value) attr.default_value = *default_value;
  attr.doc = doc;
  return *this;
}

OpDef& OpDef::Range(std::optional<double> min, std::optional<double> max) {
  AttrDef& attr = LastAttr(spec_, "Range");
  attr.min = min;
  attr.max = max;
  return *this;
}

OpDef& OpDef::OneOf(const NameList& values) {
  LastAttr(spec_, "OneOf").one_of = values;
  return *this;
}

OpDef& OpDef::Infer(InferFn fn) {
  spec_.infer = std::move(fn);
  return *this;
}

OpDef& OpDef::Gradient(GradientFn fn) {
  spec_.gradient = std::move(fn);
  return *this;
}

OpDef& OpDef::NotDifferentiable(std::string_view reason) {
  spec_.gradient_kind = GradientKind::kNotDifferentiable;
  spec_.no_gradient_reason = reason;
  return *this;
}

OpDef& OpDef::NoGradient(std::string_view reason) {
  spec_.gradient_kind = GradientKind::kNoRule;
  spec_.no_gradient_reason = reason;
  return *this;
}

OpDef& OpDef::ForbidGradient(std::string_view reason) {
  spec_.gradient_kind = GradientKind::kForbidden;
  spec_.no_gradient_reason = reason;
  return *this;
}

OpDef& OpDef::KeepsOutputs(const NameList& output_slots, std::string_view attr, bool value) {
  for (const std::string& name : output_slots) {
    if (!spec_.FindOutput(name))
      throw InternalError(fmt::format("{}: KeepsOutputs names no output {}", spec_.type, name));
  }
  spec_.keeps_outputs = output_slots;
  spec_.keeps_attr = attr;
  spec_.keeps_value = value;
  return *this;
}

OpDef& OpDef::GradientOp(const NameList& forward_slots) {
  const std::vector<std::string>& slots = forward_slots;
  return Gradient([slots](GradientContext& g) { g.AppendGradientOp(slots); });
}

SlotDef& OpDef::InputNamed(std::string_view name, const char* trait) {
  auto it = std::find_if(spec_.inputs.begin(), spec_.inputs.end(),
                         [&](const SlotDef& s) { return s.name == name; });
  if (it == spec_.inputs.end())
    throw InternalError(fmt::format("{}: {} names no input {}", spec_.type, trait, name));
  return *it;
}

OpDef& OpDef::NoGradientTo(const NameList& input_slots) {
  for (const std::string& name : input_slots) InputNamed(name, "NoGradientTo").no_gradient = true;
  return *this;
}

OpDef& OpDef::Takes(VarType type, const NameList& input_slots) {
  for (const std::string& name : input_slots) InputNamed(name, "Takes").takes.push_back(type);
  return *this;
}

OpDef& OpDef::KernelTypeFrom(std::string_view slot) {
  spec_.kernel_type_slot = slot;
  return *this;
}

OpDef& OpDef::Fast(PrepareFn fn) {
  spec_.fast = std::move(fn);
  return *this;
}

OpDef& OpDef::Expands(const NameList& types, ExpandFn fn) {
  spec_.expands_to = types;
  spec_.expand = std::move(fn);
  spec_.kernel_dtypes = {DType::kFloat32, DType::kFloat64};
  return *this;
}

OpDef& OpDef::Inplace(std::string_view input, std::string_view output) {
  spec_.inplace.emplace_back(input, output);
  return *this;
}

OpDef& OpDef::Alias(std::string_view input, std::string_view output) {
  spec_.alias.emplace_back(input, output);
  return *this;
}

OpDef& OpDef::ImageLayout(std::string_view attr, const NameList& slots) {
  spec_.layout_attr = attr;
  spec_.layout_slots = slots;
  return *this;
}

OpDef& OpDef::Elementwise() {
  spec_.elementwise = true;
  return *this;
}

OpDef& OpDef::Rows(RowRule rule, std::string_view of) {
  spec_.rows.effect = RowEffect(rule, of);
  return *this;
}

OpDef& OpDef::Rows(RowsFn fn, std::string_view text) {
  spec_.rows.fn = std::move(fn);
  spec_.rows.text = text;
  return *this;
}

OpDef& OpDef::Tables(const NameList& input_slots) {
  spec_.rows.tables = input_slots;
  return *this;
}

OpDef& OpDef::Linear(const NameList& input_slots) {
  spec_.rows.linear.push_back(input_slots);
  return *this;
}

OpDef& OpDef::Axes(std::string_view attr, AxesAttr kind) {
  spec_.permutes = true;
  spec_.axes = attr.empty() ? AxesAttr::kNone : kind;
  spec_.axes_attr = attr;
  return *this;
}

OpDef& OpDef::WorksAlong(std::string_view attr, AxesAttr kind) {
  spec_.axes = kind;
  spec_.axes_attr = attr;
  return *this;
}

OpDef& OpDef::Scores(const NameList& slots) {
  spec_.score_slots = slots;
  return *this;
}

OpDef& OpDef::SoftLabels(const NameList& inputs, std::string_view attr) {
  for (const std::string& name : inputs) InputNamed(name, "SoftLabels");
  spec_.soft_label_slots = inputs;
  spec_.soft_label_attr = attr;
  return *this;
}

OpDef& OpDef::EachImage() {
  spec_.each_image = true;
  return *this;
}

OpDef& OpDef::MultiplyAdds(const NameList& factors, MultiplyAddsFn fn) {
  spec_.factor_slots = factors;
  spec_.multiply_adds = std::move(fn);
  return *this;
}

OpDef& OpDef::MultiTensor(const NameList& shared_slots) {
  spec_.multi_tensor = true;
  spec_.shared_slots = shared_slots;
  return *this;
}

OpDef& OpDef::RunTimeShape() {
  spec_.run_time_shape = true;
  return *this;
}

OpDef& OpDef::LodFrom(std::string_view input) {
  InputNamed(input, "LodFrom");
  spec_.lod_slot = input;
  return *this;
}

OpDef& OpDef::LodUnlessAxis(std::string_view attr) {
  spec_.lod_axis = attr;
  return *this;
}

OpDef& OpDef::NoLod() {
  spec_.no_lod = true;
  return *this;
}

OpDef& OpDef::MakesLod() {
  spec_.makes_lod = true;
  return *this;
}

OpDef& OpDef::ShapeOnly() {
  spec_.shape_only = true;
  return *this;
}

OpDef& OpDef::Strings() {
  spec_.strings = true;
  return *this;
}

OpDef& OpDef::Random() {
  spec_.random = true;
  return *this;
}

OpDef& OpDef::ForRanks() {
  spec_.for_ranks = true;
  return *this;
}

OpDef& OpDef::SideEffect() {
  spec_.side_effect = true;
  return *this;
}

OpDef& OpDef::NamesFile(std::string_view attr, std::string_view unless) {
  spec_.file_attr = attr;
  spec_.no_file_attr = unless;
  return *this;
}

OpDef& OpDef::Kind(OpKind kind) {
  spec_.kind = kind;
  return *this;
}

OpDef& OpDef::AttrsOf(std::string_view type) {
  attrs_of_.emplace_back(spec_.attrs.size(), type);
  return *this;
}

OpDef& OpDef::Constraint(std::string_view id, std::string_view text) {
  spec_.constraints.push_back({std::string(id), std::string(text), ""});
  return *this;
}

OpDef& OpDef::ConstraintsOf(std::string_view type, const NameList& ids) {
  for (const std::string& id : ids) spec_.constraints.push_back({id, "", std::string(type)});
  return *this;
}

OpDef& OpDef::Reference(PrepareFn fn) {
  spec_.reference = std::move(fn);
  return *this;
}

OpDef& OpDef::SetReference(std::initializer_list<DType> dtypes,
                           std::initializer_list<PrepareFn> kernels) {
  spec_.kernel_dtypes = dtypes;
  spec_.reference = [dtypes = std::vector(dtypes),
                     kernels = std::vector(kernels)](const PrepareContext& context) {
    const auto found = std::find(dtypes.begin(), dtypes.end(), KernelDType(context));
    if (found == dtypes.end()) ThrowNoKernel(context);
    return kernels[static_cast<size_t>(found - dtypes.begin())](context);
  };
  return *this;
}

OpDef& OpDef::ComputesIn(OpPrecision precision) {
  spec_.precision = precision;
  return *this;
}

OpDef& OpDef::Float32Slots(const NameList& slots) {
  spec_.float32_slots = slots;
  return *this;
}

OpDef& OpDef::RunsBlock(BlockTrait trait) {
  spec_.block = std::move(trait);
  return *this;
}

OpDef& OpDef::TakesAnyValue() {
  spec_.takes_any_value = true;
  return *this;
}

OpSpec OpDef::Resolve(const std::function<const OpSpec*(const std::string&)>& find) && {
  const auto other = [&](const std::string& type) -> const OpSpec& {
    if (const OpSpec* found = find(type)) return *found;
    throw InternalError(
        fmt::format("{}: takes a part of its declaration from the unknown {}", spec_.type, type));
  };
  for (auto it = attrs_of_.rbegin(); it != attrs_of_.rend(); ++it) {
    const std::vector<AttrDef>& attrs = other(it->second).attrs;
    spec_.attrs.insert(spec_.attrs.begin() + static_cast<std::ptrdiff_t>(it->first), attrs.begin(),
                       attrs.end());
  }
  for (ConstraintDef& constraint : spec_.constraints) {
    if (constraint.like.empty()) continue;
    const ConstraintDef* from = other(constraint.like).FindConstraint(constraint.id);
    if (!from) {
      throw InternalError(fmt::format("{}: takes the unknown constraint {} from {}", spec_.type,
                                      constraint.id, constraint.like));
    }
    constraint.text = from->text;
    if (!from->like.empty()) constraint.like = from->like;
  }
  // The gradient op shares the forward op's tables and axes, and mixes rows if the forward op does.
  if (spec_.type.ends_with("_grad")) {
    const OpSpec* forward = find(spec_.type.substr(0, spec_.type.size() - 5));
    if (forward && spec_.axes == AxesAttr::kNone && spec_.FindAttr(forward->axes_attr)) {
      spec_.axes = forward->axes;
      spec_.axes_attr = forward->axes_attr;
    }
    if (forward && spec_.rows.tables.empty()) spec_.rows.tables = forward->rows.tables;
    if (forward && forward->rows.effect.rule == RowRule::kMixes && !spec_.rows.fn)
      spec_.rows.effect = RowRule::kMixes;
  }
  const auto number = [](const ConstraintDef& c) { return std::stoi(c.id.substr(1)); };
  std::stable_sort(spec_.constraints.begin(), spec_.constraints.end(),
                   [&](const auto& a, const auto& b) { return number(a) < number(b); });
  return std::move(spec_);
}

}  // namespace coracle
