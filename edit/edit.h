#pragma once
// Changes whole programs: renames variables, extracts a part, merges two programs, changes shapes,
// saves the result of the compiler, and quantises.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

inline namespace internal {
struct PassRun;  // passes/pass.h
}

// RenameVariables: gives variables of a program other names.

using NamePairs = std::vector<std::pair<std::string, std::string>>;  // (old, new)

struct RenameOptions {
  // Also renames variables named after another with an @ (x@GRAD, x@GRAD@RENAME@..., x@RECOMPUTED):
  // if x becomes y, these become y@GRAD and so on.
  bool derived = false;
};

// The pairs for all variables whose name contains a match of a regular expression (RE2). Replaces
// each match by `with`, in which \1 is the first group and \0 the whole match. Throws
// kInvalidArgument for an invalid expression or replacement, kNotFound if no name matches. Does not
// rename the holders of feeds and fetches.
NamePairs PairsByRegex(const ProgramDesc& program, const std::string& regex,
                       const std::string& with);

struct Renamed {
  NamePairs names;  // all renamed variables, also derived ones, in the order of the program
  // The new names of renamed outputs of random ops. Such an op draws by the name of its output, so
  // it now draws other numbers.
  std::vector<std::string> drawn;
};

// Renames variables in declarations and slots of all blocks and in attrs that name variables. A
// variable that several blocks declare is renamed in all of them. Names may be exchanged. Throws
// before it changes anything: kNotFound for an old name that no block declares, kAlreadyExists for
// a new name that another variable has or that two of them would get, and kInvalidArgument for a
// new name that is empty or @EMPTY@, and for the holders of feeds and fetches. Linear in the size
// of the program.
Renamed RenameVariables(ProgramDesc& program, const NamePairs& names, const OpRegistry& ops,
                        const RenameOptions& options = {});

// Renames the values in the scope.
void RenameValues(const NamePairs& names, Scope& scope);

// ExtractProgram: extracts the part of a program that computes some variables from others.

struct ExtractOptions {
  // Variables of the root block that are the inputs of the part. Empty: the program's own
  // inputs that the outputs depend on. An input that an op computes means its last value; an input
  // that has a value before the first op means that value.
  std::vector<std::string> inputs = {};
  std::vector<std::string> outputs = {};  // what the part computes; at least one
};

struct ExtractedProgram {
  ProgramDesc program;  // has feed and fetch ops for inputs and outputs, in their order
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> unused_inputs;  // given, but no output depends on them
};

// Makes a program of the ops that the outputs depend on, with their sub-blocks, parameters and
// other variables. Names do not change, so random ops draw the same numbers. Removes blocks that
// no op runs any more, but leaves them empty if later blocks draw random numbers, which depend on
// a block's index. (If a call of a function is dropped, blocks in functions that are still called
// may draw other numbers.) Drops an op if all its outputs are overwritten before they are read.
// Fetches outputs that are selected rows as dense copies, under new names. Linear in the size of
// the program.
//
// Throws kNotFound for a name that the root block lacks. Throws kInvalidArgument if an output
// depends on a variable that is neither computed nor an input (the details show the path from it to
// the output), if needed ops read an earlier value of an input or write it, and for variables that
// cannot be fed or fetched.
ExtractedProgram ExtractProgram(const ProgramDesc& program, const ExtractOptions& options,
                                const OpRegistry& ops);

// MergePrograms: merges two programs into one, in which outputs of the first feed the second.

struct MergeOptions {
  // (variable of the first program, input of the second). Empty: pairs each input of the second
  // program with the output of the first that has its name; if that fails, pairs all outputs and
  // inputs in order, provided that their number and types match.
  NamePairs connections = {};
  // Prepended to names of the second program that the first one also has; repeatedly if such a name
  // exists too.
  std::string prefix = "b.";
};

struct MergedProgram {
  ProgramDesc program;
  NamePairs connections;
  NamePairs renamed;   // variables of the second program: (name there, name here)
  std::string prefix;  // the prefix that some of these got; "" if no name clashed
  // The feed and fetch ops. Inputs: all of the first program, then the unconnected ones of the
  // second. Outputs: the unconnected variables that the first program fetches, then the outputs of
  // the second. For a program without feed (fetch) ops, these are the variables that its ops read
  // before any op writes them (that ops write and none reads).
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> notes;  // sentences that describe how the merged program differs
};

// Appends the ops of the second program, and the blocks of both. A connected input is replaced by
// the output, or becomes a copy of it if ops of the second program write it. Throws
// kInvalidArgument if the connections are ambiguous or types do not match, kNotFound for unknown
// names, kAlreadyExists if names clash and the prefix is empty, and the errors of VerifyOrThrow for
// the result. Linear in the size of the programs.
MergedProgram MergePrograms(const ProgramDesc& first, const ProgramDesc& second,
                            const OpRegistry& ops, const MergeOptions& options = {});

// Changes the shapes of a program's inputs and infers the shapes of all other variables.

using InputShapes = std::vector<std::pair<std::string, Shape>>;

// Declares inputs with these shapes (-1: unknown) and runs the shape rules of all ops again, so
// that the other variables get the resulting types. Visits a sub-block where an op runs it; a
// dimension that differs between the rounds of a loop, or the calls of a function, becomes -1.
// Persistable variables keep their shapes. Linear in the size of the program, except for loops
// whose shapes change.
//
// Throws the error of an op's shape rule that does not accept the shapes, kNotFound for a name that
// the root block lacks, kInvalidArgument for a variable that is not a dense tensor, is persistable
// or is written by an op that is not a feed op, and the errors of VerifyOrThrow. If it throws, the
// program does not change.
void DeclareShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops);

// The same for shapes that the program may be fed. Also throws kInvalidArgument, without changing
// the program, for a shape that a variable with need_check_feed does not allow.
void SetShapes(ProgramDesc& program, const InputShapes& shapes, const OpRegistry& ops);

// Optimizes a program with the compiler's passes and returns a program that can be saved.

struct OptimizeOptions {
  // For inference: treats parameters that no op writes as constants, so that ops on them are
  // computed now and a batch_norm is folded into the convolution before it. Needs their values. If
  // false (for training), parameters do not change.
  bool freeze_parameters = true;
  // Only these passes, unless `compile` disables them; empty: all. Throws kNotFound for an
  // unknown name.
  std::vector<std::string> passes = {};
  // Only passes whose result Paddle understands. See IsPaddlePass.
  bool paddle_only = false;
  CompileOptions compile = {};
};

struct OptimizedProgram {
  ProgramDesc program;  // has the feed and fetch ops of the original
  // The known values of its persistable variables: the given ones and constants that passes made.
  Scope parameters;
};

// Compiles `program` for these feeds and fetches (empty: its own feed and fetch ops) and
// returns the result, without unused variables. The result computes the same, up to rounding in the
// last bits, and may be compiled again. It depends on this machine: filters are widened if products
// of bfloat16 are slow here. Throws the errors of Executor::Prepare; with paddle_only, throws
// kUnimplemented if the result has a type of op that neither the program had nor these passes make.
// `observer` sees each pass; it is for Coracle's own code.
OptimizedProgram OptimizeProgram(const ProgramDesc& program, const Scope& parameters,
                                 const std::vector<std::string>& feeds = {},
                                 const std::vector<std::string>& fetches = {},
                                 const OptimizeOptions& options = {},
                                 const std::function<void(const PassRun&)>& observer = {},
                                 const OpRegistry& ops = DefaultOps());

// Whether the result of the pass means the same to Paddle: the same types of ops, with slots and
// attrs that all its kernels support. For example, not all of its kernels support a convolution
// with a bias, a residual, an activation or channels last, an fc with an activation, or an update
// of several parameters.
bool IsPaddlePass(const std::string& pass);

// --- post-training quantisation, as `coracle quantize` does it ---

// How the range of an activation is chosen from its values in the samples.
enum class RangeMethod : int32_t {
  kMinMax,      // from the smallest to the largest value
  kPercentile,  // leaves out the most extreme values: a share of 1 - percentile at each end
  kEntropy,     // the smallest Kullback-Leibler divergence of the quantised distribution
  kMse,         // the smallest mean squared error of the quantised values
};

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

// Makes a program that computes with integers of 8 (or weights of 4) bits from an inference program
// in floating point. Finds the ranges of activations on the samples, moves factors between channels
// and weights, rounds weights, and corrects biases for the mean error of rounding. The result has
// affine_quantize and affine_dequantize ops (QuantizeOptions::linear_ops: Paddle's), which the
// compiler joins with the products; SaveInferenceModel and ExportOnnx (convert.h) write it. Neither
// `program` nor `parameters` changes.
//
//   const auto samples = [&](const auto& use) {
//     for (const Tensor& images : batches) use({images});
//   };
//   Scope scope;
//   InferenceModel model = LoadInferenceModel("digits", scope);
//   QuantizedModel int8 = QuantizeModel(model.program, scope, samples);
//   ExportOnnx("digits_int8.onnx", int8.program, int8.parameters);
//
// Without samples (an empty function), weights alone are quantised, or activations in each run, as
// `options.scheme` says; nothing is measured. The samples are given several times. Throws
// kInvalidArgument for options that contradict each other, for a program that trains or is
// quantised already, that has no product to quantise, or whose samples give no batch, kOutOfRange
// if a value is nan or infinite, and the errors of Executor::Prepare and Run.
QuantizedModel QuantizeModel(const ProgramDesc& program, const Scope& parameters,
                             const CalibrationFeeds& samples, const QuantizeOptions& options = {},
                             const OpRegistry& ops = DefaultOps());

}  // namespace coracle
