#pragma once
// Post-training quantisation: makes a program of 8-bit integers from an inference program in
// floating point and sample data. docs/quantization.md explains the methods.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>
#include <coracle/quantize/ranges.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

// What is quantised.
enum class QuantScheme : int32_t {
  kStatic,      // weights, and activations with the ranges of the samples
  kDynamic,     // weights, and activations with the range that they have in each run
  kWeightOnly,  // weights: products compute in floating point
};

// For whom the program is written.
enum class QuantForm : int32_t {
  kOnnx,    // uint8 activations with zero points, int32 biases: ONNX Runtime's QDQ form
  kPaddle,  // symmetric int8 activations
};

// Whether factors move from the channels of activations to weights, which changes no result but
// makes both easier to quantise.
enum class Equalization : int32_t {
  kAuto,  // for each activation what gives the smallest error on the samples
  kNone,
  kCrossLayer,  // weights of neighbours get equal ranges for each channel between them
  kSmooth,      // SmoothQuant: channels of activations get ranges nearer to each other
};

struct QuantizeOptions {
  QuantScheme scheme = QuantScheme::kStatic;
  RangeMethod method = RangeMethod::kMinMax;
  double percentile = 0.9999;  // for RangeMethod::kPercentile
  int32_t weight_bits = 8;     // or 4
  int64_t block_size = 64;     // weights that share a scale, for 4 bits
  QuantForm form = QuantForm::kOnnx;
  // For QuantForm::kPaddle with 8 bits and static ranges: Paddle's quantize_linear and
  // dequantize_linear instead of affine ops.
  bool linear_ops = false;
  Equalization equalization = Equalization::kAuto;
  bool correct_bias = true;
  bool keep_ends = false;                // the first and the last layer stay in floating point
  bool products_of_activations = false;  // also products of two activations, as in attention
  bool bfloat16 = false;                 // products that stay in floating point compute in bfloat16
  // A regular expression (RE2). A layer stays in floating point if it matches part of the name of
  // its output or its weight. "": none does.
  std::string exclude = {};
  CompileOptions compile = {};  // for the runs on samples
};

// Calls `use` with the feeds of each batch of samples, in the order of InputNames. Each call of the
// function gives the same batches.
using CalibrationFeeds =
    std::function<void(const std::function<void(const std::vector<Tensor>& feeds)>& use)>;

// One op of the quantised program.
struct LayerReport {
  std::string output;  // the variable with its result, after bias and activation
  std::string type;
  bool quantized = true;
  bool is_product = true;  // false: an op between products
  // Signal-to-noise ratios of the output against floating point in dB, over all samples: 10
  // log10(sum y^2 / sum (y - y')^2). Infinite if equal, nan if the output is 0 everywhere.
  double own = 0;                              // if only this op were quantised
  double total = 0;                            // in the quantised program
  uint64_t bytes_before = 0, bytes_after = 0;  // of its weight with the scales
};

struct QuantizedModel {
  ProgramDesc program;
  Scope parameters;
  std::vector<LayerReport> layers;  // in the order of the program
  double output = 0;                // the signal-to-noise ratio of its outputs; see `total`
  // The choices of the equalisation: "none", "smooth 0.5", "3 of smooth 0.5, 1 of cross_layer".
  std::string equalization;
};

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
