#pragma once
// Writes quantised programs: pairs of affine_quantize and affine_dequantize at activations, and
// affine_dequantize of integer weights.

#include <coracle/quantize/layer_parameters.h>

#include <map>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct QuantizedParts {
  const FloatModel& model;
  const QuantSelection& selection;
  const std::vector<LayerParameters>& parameters;  // of selection.layers
  const ByteScales& scales;                        // of the variables in selection.range_of
  const QuantizeOptions& options;
  const OpRegistry& ops;
};

// The program in which all layers are quantised. Variables of the float program keep their names.
FloatModel QuantizedProgram(const QuantizedParts& parts);

// The float program, with a quantised copy of each layer, which reads values in floating point.
struct ProgramWithCopies {
  FloatModel model;
  std::map<std::string, std::string> copy_of;  // the copy's output, by the output of the layer
};
ProgramWithCopies FloatProgramWithCopies(const QuantizedParts& parts);

// Moves the bias of each convolution into a sum after it: kernels of Paddle have no such slot.
void SplitConvolutionBiases(FloatModel* model, const OpRegistry& ops);

// Lets products with float32 weights compute in bfloat16. They are the ones that are not quantised.
void ComputeInBfloat16(FloatModel* model, const OpRegistry& ops);

// Removes variables and parameters that no op reads or writes.
void RemoveUnusedVariables(FloatModel* model);

}  // namespace coracle::inline internal
