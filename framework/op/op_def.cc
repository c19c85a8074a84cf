#include <coracle/framework/base/error.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/kernel_choice.h>
#include <coracle/framework/op/op_def.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {

OpDef& OpDef::Doc(std::string text) {
  spec_.doc = std::move(text);
  return *this;
}

OpDef& OpDef::AddInput(std::string name, std::string doc, bool optional, bool variadic) {
  spec_.inputs.push_back({std::move(name), std::move(doc), optional, variadic, false, false, {}});
  return *this;
}

OpDef& OpDef::AddOutput(std::string name, std::string doc, bool optional, bool variadic,
                        bool intermediate) {
  spec_.outputs.push_back(
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
  spec_.attrs.push_back(std::move(attr));
  return *this;
}

OpDef& OpDef::Range(std::optional<double> min, std::optional<double> max) {
  spec_.attrs.back().min = min;
  spec_.attrs.back().max = max;
  return *this;
}

OpDef& OpDef::OneOf(std::vector<std::string> values) {
  spec_.attrs.back().one_of = std::move(values);
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

OpDef& OpDef::NotDifferentiable(std::string reason) {
  spec_.gradient_kind = GradientKind::kNotDifferentiable;
  spec_.no_gradient_reason = std::move(reason);
  return *this;
}

OpDef& OpDef::NoGradient(std::string reason) {
  spec_.gradient_kind = GradientKind::kNoRule;
  spec_.no_gradient_reason = std::move(reason);
  return *this;
}

OpDef& OpDef::ForbidGradient(std::string reason) {
  spec_.gradient_kind = GradientKind::kForbidden;
  spec_.no_gradient_reason = std::move(reason);
  return *this;
}

OpDef& OpDef::KeepsOutputs(std::vector<std::string> output_slots) {
  for (const std::string& name : output_slots) {
    if (!spec_.FindOutput(name))
      throw InternalError(fmt::format("{}: KeepsOutputs names no output {}", spec_.type, name));
  }
  spec_.keeps_outputs = std::move(output_slots);
  return *this;
}

OpDef& OpDef::GradientOp(std::vector<std::string> forward_slots) {
  return Gradient(
      [slots = std::move(forward_slots)](GradientContext& g) { g.AppendGradientOp(slots); });
}

SlotDef& OpDef::InputNamed(const std::string& name, const char* trait) {
  auto it = std::find_if(spec_.inputs.begin(), spec_.inputs.end(),
                         [&](const SlotDef& s) { return s.name == name; });
  if (it == spec_.inputs.end())
    throw InternalError(fmt::format("{}: {} names no input {}", spec_.type, trait, name));
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
  spec_.kernel_type_slot = std::move(slot);
  return *this;
}

OpDef& OpDef::Fast(PrepareFn fn) {
  spec_.fast = std::move(fn);
  return *this;
}

OpDef& OpDef::Inplace(std::string input, std::string output) {
  spec_.inplace.emplace_back(std::move(input), std::move(output));
  return *this;
}

OpDef& OpDef::Alias(std::string input, std::string output) {
  spec_.alias.emplace_back(std::move(input), std::move(output));
  return *this;
}

OpDef& OpDef::ImageLayout(std::string attr, std::vector<std::string> slots) {
  spec_.layout_attr = std::move(attr);
  spec_.layout_slots = std::move(slots);
  return *this;
}

OpDef& OpDef::Elementwise() {
  spec_.elementwise = true;
  return *this;
}

OpDef& OpDef::MultiTensor(std::vector<std::string> shared_slots) {
  spec_.multi_tensor = true;
  spec_.shared_slots = std::move(shared_slots);
  return *this;
}

OpDef& OpDef::RunTimeShape() {
  spec_.run_time_shape = true;
  return *this;
}

OpDef& OpDef::LodFrom(std::string input) {
  InputNamed(input, "LodFrom");
  spec_.lod_slot = std::move(input);
  return *this;
}

OpDef& OpDef::LodUnlessAxis(std::string attr) {
  spec_.lod_axis = std::move(attr);
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

OpDef& OpDef::Random() {
  spec_.random = true;
  return *this;
}

OpDef& OpDef::SideEffect() {
  spec_.side_effect = true;
  return *this;
}

OpDef& OpDef::NamesFile(std::string attr, std::string unless) {
  spec_.file_attr = std::move(attr);
  spec_.no_file_attr = std::move(unless);
  return *this;
}

OpDef& OpDef::Kind(OpKind kind) {
  spec_.kind = kind;
  return *this;
}

OpDef& OpDef::AttrsOf(std::string type) {
  attrs_of_.emplace_back(spec_.attrs.size(), std::move(type));
  return *this;
}

OpDef& OpDef::Constraint(std::string id, std::string text) {
  spec_.constraints.push_back({std::move(id), std::move(text), ""});
  return *this;
}

OpDef& OpDef::ConstraintsOf(std::string type, std::vector<std::string> ids) {
  for (std::string& id : ids) spec_.constraints.push_back({std::move(id), "", type});
  return *this;
}

OpDef& OpDef::Reference(PrepareFn fn) {
  spec_.reference = std::move(fn);
  return *this;
}

OpDef& OpDef::SetReference(std::vector<DType> dtypes, std::vector<PrepareFn> kernels) {
  spec_.kernel_dtypes = dtypes;
  spec_.reference = [dtypes = std::move(dtypes),
                     kernels = std::move(kernels)](const PrepareContext& context) {
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

OpDef& OpDef::Float32Slots(std::vector<std::string> slots) {
  spec_.float32_slots = std::move(slots);
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
  const auto number = [](const ConstraintDef& c) { return std::stoi(c.id.substr(1)); };
  std::stable_sort(spec_.constraints.begin(), spec_.constraints.end(),
                   [&](const auto& a, const auto& b) { return number(a) < number(b); });
  return std::move(spec_);
}

}  // namespace coracle
