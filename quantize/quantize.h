#pragma once
// Post-training quantisation: makes a program of 8-bit integers from an inference program in
// floating point and sample data. edit/edit.h has the options, the result, and QuantizeModel.
// docs/quantization.md explains the methods.

#include <coracle/edit/edit.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Quantises one program, perhaps several times with different layers in floating point.
class ModelQuantizer {
 public:
  // Prepares and calibrates. Without `feeds` (an empty function), weights alone are quantised, or
  // activations dynamically; nothing is measured, and biases are not corrected. Throws
  // kInvalidArgument for a program that trains or is quantised already, that has no op to quantise,
  // or whose samples give no batch, kOutOfRange if a value is nan or infinite, and the errors of
  // Executor::Prepare and Run.
  ModelQuantizer(const ProgramDesc& program, const Scope& parameters, const CalibrationFeeds& feeds,
                 const QuantizeOptions& options, const OpRegistry& ops = DefaultOps());
  ~ModelQuantizer();
  ModelQuantizer(const ModelQuantizer&) = delete;
  ModelQuantizer& operator=(const ModelQuantizer&) = delete;

  // The outputs of all products that are quantised unless they are excluded.
  std::vector<std::string> products() const;
  // Quantises all products but those with the outputs `in_float`. Without `measure`, the ratios of
  // the reports are nan.
  QuantizedModel Make(const std::set<std::string>& in_float = {}, bool measure = true) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Finds few layers that must stay in floating point so that `loss` (by how much the results of a
// quantised program are worse) is at most `max_loss`. `order` has the layers that lose most first.
//
// Tries the first 0, 1, 2, 4, ... of them, bisects the last step, then returns layer after layer to
// 8 bits if the loss stays small enough. Returns all layers if no choice is good enough.
std::set<std::string> FewestInFloat(
    const std::vector<std::string>& order, double max_loss,
    const std::function<double(const std::set<std::string>& in_float)>& loss);

}  // namespace coracle::inline internal
