#pragma once
// FloatModel: the inference program that is quantised, prepared and in floating point.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct FloatModel {
  ProgramDesc program;
  Scope parameters;
  std::vector<std::string> feeds, fetches;

  FloatModel() = default;
  FloatModel(FloatModel&&) = default;
  FloatModel& operator=(FloatModel&&) = default;
  FloatModel Copy() const;  // tensors share their elements

  // The float32 value of a parameter that no op writes; nullptr for any other variable.
  const Tensor* Weight(const std::string& name) const;
};

// Folds batch_norm and constant factors into the products around them, replaces joined ops by their
// parts and activations that are written out by one op, computes constants, and puts the bias of a
// convolution into its slot. Throws kInvalidArgument for a
// program that trains, that fetches nothing, or that holds quantised numbers already.
FloatModel PrepareFloatModel(const ProgramDesc& program, const Scope& parameters,
                             const OpRegistry& ops);

// The tensors of a scope under the same names, with shared elements.
Scope SharedCopy(const Scope& scope);

// Adds a constant with a new name to the root block and to `parameters`: a persistable variable
// that is not trained. Returns the name, which begins with `prefix`.
std::string AddConstant(ProgramDesc& program, Scope& parameters, const std::string& prefix,
                        Tensor value);

}  // namespace coracle::inline internal
