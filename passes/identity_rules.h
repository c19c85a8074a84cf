#pragma once
// The ops that return their input. Internal to passes/.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <optional>
#include <string>

namespace coracle::inline internal {

// What a rule needs to know about variables.
struct VariableFacts {
  // The rank that a variable has in every run; -1 if it is not certain.
  std::function<int(const std::string&)> rank;
  // The dtype of a variable that does not change during a run; nullopt if it is not certain.
  std::function<std::optional<DType>(const std::string&)> dtype;
};

// The input whose value and LoD the op returns as its only output Out; "" if it does not.
std::string ReturnedInput(const OpDesc& op, const OpSpec& spec, const VariableFacts& facts);

// The op, a dropout with `is_test` that did not scale in training, is a multiplication by this
// factor of float32; nullopt for any other op.
std::optional<float> TestDropoutFactor(const OpDesc& op, const OpSpec& spec);

}  // namespace coracle::inline internal
