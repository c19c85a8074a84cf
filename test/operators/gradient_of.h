#pragma once
// Gradients and values of single ops at chosen places: where inputs are extreme, or
// hold infinities.

#include <coracle/backward/backward.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Declares a variable for each input, named as its slot. Returns the slots.
inline SlotList DeclareInputs(BlockDesc& block,
                              const std::vector<std::pair<std::string, Tensor>>& inputs) {
  SlotList slots;
  for (const auto& [name, value] : inputs) {
    VarDesc& var = block.Var(name);
    var.SetShape(value.shape());
    var.SetDType(value.dtype());
    slots.push_back({name, {name}});
  }
  return slots;
}

// An output, and the gradient of its sum by the input `slot`.
struct ValueAndGradient {
  Tensor value, gradient;
};
inline ValueAndGradient Differentiate(const std::string& type, const AttrList& attrs,
                                      const std::vector<std::pair<std::string, Tensor>>& inputs,
                                      const std::string& slot, const std::string& output = "Out",
                                      KernelMode kernels = KernelMode::kReference) {
  ProgramDesc program;
  const Writer writer{program.Root(), DefaultOps()};
  VarValues values = {inputs.begin(), inputs.end()};
  const SlotList slots = DeclareInputs(program.Root(), inputs);
  SlotList outputs;
  for (const SlotDef& def : DefaultOps().Get(type).outputs)
    if (def.name == output || def.intermediate || !def.optional)
      outputs.push_back({def.name, {"made " + def.name}});
  writer.Append(type, slots, outputs, attrs);
  const Variable out = writer.Var("made " + output);
  const std::string gradient = Gradients({out}, {Variable::Of(program.Root(), slot)}).at(0);
  InterpretOptions options;
  options.kernels = kernels;
  Interpret(program.Root(), DefaultOps(), values, options);
  return {std::get<Tensor>(values.at(out.name())), std::get<Tensor>(values.at(gradient))};
}

inline Tensor GradientOf(const std::string& type, const AttrList& attrs,
                         const std::vector<std::pair<std::string, Tensor>>& inputs,
                         const std::string& slot, const std::string& output = "Out",
                         KernelMode kernels = KernelMode::kReference) {
  return Differentiate(type, attrs, inputs, slot, output, kernels).gradient;
}

// The elements of a float32 or float64 tensor.
inline std::vector<double> NumbersOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

// An output of an op with kernels of any kind.
inline Tensor ValueOf(const std::string& type, const AttrList& attrs,
                      const std::vector<std::pair<std::string, Tensor>>& inputs,
                      const std::string& output = "Out") {
  ProgramDesc program;
  const Writer writer{program.Root(), DefaultOps()};
  VarValues values = {inputs.begin(), inputs.end()};
  const SlotList slots = DeclareInputs(program.Root(), inputs);
  const Variable out = writer.Make(type, slots, attrs, output);
  Interpret(program.Root(), DefaultOps(), values);
  return std::get<Tensor>(values.at(out.name()));
}

// Compares each number with an expected one by their quotient. The smallest numbers of the dtype
// may differ by one.
inline void ExpectSameNumbers(const Tensor& got, const std::vector<double>& expected,
                              double tolerance) {
  const std::vector<double> numbers = NumbersOf(got);
  ASSERT_EQ(numbers.size(), expected.size());
  const double smallest = got.dtype() == DType::kFloat64
                              ? std::numeric_limits<double>::denorm_min()
                              : static_cast<double>(std::numeric_limits<float>::denorm_min());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(numbers[i], expected[i], tolerance * std::abs(expected[i]) + smallest) << i;
}

}  // namespace coracle
