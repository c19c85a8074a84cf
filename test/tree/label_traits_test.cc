// The declared traits of labels hold: a loss takes soft labels if, and only if, its gradient for a
// mixture of labels is the mixture of the labels' gradients.

#include <coracle/backward/backward.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/op_families.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace coracle::label_traits_test {

constexpr double kShare = 0.3;

Tensor Drawn(const Shape& shape, uint64_t seed, double from, double to) {
  const Philox random(seed, 0, 0);
  Tensor tensor = Tensor::Zeros(DType::kFloat64, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data<double>()[i] =
        from + (to - from) * double{random.UniformFloat(static_cast<uint64_t>(i))};
  }
  return tensor;
}

// A program that computes the gradients of a loss, all of whose inputs have one shape.
struct LossProgram {
  ProgramDesc program;
  std::vector<std::string> inputs;     // their slots, which are their names
  std::vector<std::string> gradients;  // of the inputs that have one
};

AttrList RequiredAttrs(const OpSpec& spec) {
  AttrList attrs;
  for (const AttrDef& attr : spec.attrs)
    if (!attr.default_value && attr.type == AttrType::kFloat) attrs.push_back({attr.name, 0.1F});
  if (!spec.soft_label_attr.empty()) attrs.push_back({spec.soft_label_attr, true});
  return attrs;
}

// nullopt if the op refuses such inputs, as losses of class indices do.
std::optional<LossProgram> MakeProgram(const OpSpec& spec, const std::string& label,
                                       const Shape& shape) {
  LossProgram made;
  BlockDesc& root = made.program.Root();
  SlotList slots;
  for (const SlotDef& slot : spec.inputs) {
    if (slot.optional) continue;
    root.Var(slot.name).SetMeta({VarType::kLoDTensor, DType::kFloat64, shape, 0});
    slots.push_back({slot.name, {slot.name}});
    made.inputs.push_back(slot.name);
  }
  try {
    const Writer writer(root, DefaultOps());
    SlotList outputs;
    for (const SlotDef& slot : spec.outputs)
      if (!slot.optional || slot.intermediate) outputs.push_back({slot.name, {"out_" + slot.name}});
    writer.Append(spec.type, slots, outputs, RequiredAttrs(spec));
    const auto result = std::find_if(spec.outputs.begin(), spec.outputs.end(),
                                     [](const SlotDef& slot) { return !slot.optional; });
    std::vector<Variable> wanted;
    for (const std::string& input : made.inputs)
      if (input != label) wanted.push_back(writer.Var(input));
    made.gradients = Gradients({writer.Var("out_" + result->name)}, wanted);
  } catch (const Error&) {
    return std::nullopt;
  }
  std::erase(made.gradients, "");
  if (made.gradients.empty()) return std::nullopt;
  return made;
}

// The gradients of all elements, one after the other.
std::vector<double> GradientsOf(const LossProgram& loss, const std::string& label,
                                const std::map<std::string, Tensor>& given, const Tensor& labels) {
  VarValues values;
  for (const std::string& input : loss.inputs)
    values[input] = input == label ? labels : given.at(input);
  Interpret(loss.program.Root(), DefaultOps(), values);
  std::vector<double> all;
  for (const std::string& name : loss.gradients) {
    const Tensor gradient = std::get<Tensor>(values.at(name)).Cast(DType::kFloat64);
    all.insert(all.end(), gradient.data<double>(), gradient.data<double>() + gradient.numel());
  }
  return all;
}

// Whether the property holds for predictions in [0, 1] and for larger ones. nullopt if the op does
// not take such labels, or has no gradient.
std::optional<bool> MixesLabels(const OpSpec& spec, const std::string& label) {
  for (const Shape& shape : {Shape{3, 4}, Shape{12, 1}}) {
    const auto loss = MakeProgram(spec, label, shape);
    if (!loss) continue;
    bool holds = true;
    for (const double size : {1.0, 4.0}) {
      std::map<std::string, Tensor> given;
      for (const std::string& input : loss->inputs)
        given[input] = Drawn(shape, given.size() + 7, size > 1 ? -size : 0.05, size - 0.05);
      const Tensor a = Drawn(shape, 1, 0, 1), b = Drawn(shape, 2, 0, 1);
      Tensor mixed = Tensor::Zeros(DType::kFloat64, shape);
      for (int64_t i = 0; i < mixed.numel(); ++i) {
        mixed.data<double>()[i] = kShare * a.data<double>()[i] + (1 - kShare) * b.data<double>()[i];
      }
      const auto of_a = GradientsOf(*loss, label, given, a);
      const auto of_b = GradientsOf(*loss, label, given, b);
      const auto of_mixed = GradientsOf(*loss, label, given, mixed);
      for (size_t i = 0; i < of_mixed.size(); ++i) {
        const double expected = kShare * of_a[i] + (1 - kShare) * of_b[i];
        if (std::isfinite(expected))
          holds &= std::abs(of_mixed[i] - expected) < 1e-9 * (1 + std::abs(expected));
      }
    }
    return holds;
  }
  return std::nullopt;
}

// The labels of these losses are codes: negative numbers are classes, too.
const std::set<std::string> kCodes = {"margin_rank_loss", "teacher_student_sigmoid_loss"};

TEST(LabelTraits, SoftLabelsAreDeclaredWhereMixturesAreRight) {
  std::set<std::string> soft, hard;
  for (const OpFamily& family : OpFamilies()) {
    if (family.name != "loss") continue;
    for (const std::string& type : family.types) {
      const OpSpec& spec = DefaultOps().Get(type);
      if (type.ends_with("_grad") || kCodes.count(type)) continue;
      for (const char* slot : {"Label", "Labels", "Target", "X", "Y"}) {
        const SlotDef* input = spec.FindInput(slot);
        const bool is_label = input && (input->no_gradient || slot == std::string("Y"));
        const bool declared =
            std::count(spec.soft_label_slots.begin(), spec.soft_label_slots.end(), slot) > 0;
        if (!is_label && !declared) continue;
        const auto mixes = MixesLabels(spec, slot);
        if (!mixes) continue;
        EXPECT_EQ(*mixes, declared) << type << " " << slot;
        (declared ? soft : hard).insert(type);
      }
    }
  }
  EXPECT_GE(soft.size(), 9u);
  EXPECT_GE(hard.size(), 5u);
}

// What is declared as soft is tested above.
TEST(LabelTraits, EveryDeclarationIsTested) {
  for (const std::string& type : DefaultOps().Types()) {
    const OpSpec& spec = DefaultOps().Get(type);
    for (const std::string& slot : spec.soft_label_slots) {
      if (spec.gradient_kind != GradientKind::kRule) continue;
      EXPECT_TRUE(MixesLabels(spec, slot).value_or(false)) << type << " " << slot;
    }
  }
}

}  // namespace coracle::label_traits_test
