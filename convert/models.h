#pragma once
// Reads ONNX models and programs of Paddle 3 (PIR) as programs, and writes inference programs as
// ONNX models. The pages docs/onnx.md, docs/onnx_export.md and docs/pir.md list the op types.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace coracle {

struct OnnxImportOptions {
  // Shapes of inputs by name, which replace those of the model: fixed shapes turn values computed
  // from them into constants. A dim of -1 is left open. Throws kNotFound for a name that is not an
  // input, kInvalidArgument if a dim contradicts the model.
  std::map<std::string, Shape> input_shapes = {};
  // Values of inputs, which become constants and are not fed.
  std::map<std::string, Tensor> input_values = {};
  // nullptr: DefaultOps(). It must outlive the use of the program.
  const OpRegistry* ops = nullptr;
};

// Imports an ONNX model (a .onnx file, ModelProto) as a program of Paddle's ops, with feed and
// fetch ops for the graph's inputs and outputs in order; an input with an initializer is a
// constant. Initializers that ops read become persistable variables with values in `scope`;
// floating-point ones are parameters unless an op writes them. External data is read only from the
// file's folder. Variables have the names of ONNX's values if these are free and usable.
//
// A tensor of rank 0 has the shape [1] in the program. uint16 and uint32 are held as int32 and
// int64. The program computes what ONNX specifies. A model is never imported in part,
// except that a branch of an If whose condition is not known may be one that cannot run: a run that
// takes it stops, and a warning says so.
//
// Throws, with the node's name, op type and version in the first line: kUnimplemented for an op
// type, version, attribute, type or shape without counterpart in Coracle, kInvalidArgument for an
// invalid model, kDataLoss for a damaged file, and the errors of the thread's ResourceLimits.
// `scope` is unchanged then.
InferenceModel ImportOnnx(const std::string& path, Scope& scope,
                          const OnnxImportOptions& options = {});
// Imports a model for these inputs, by name: if the import needs the value of an input (axes,
// sizes) or its shape, it is taken from here. Inputs that are not in feed_names of the result have
// become part of the program. Throws like ImportOnnx.
InferenceModel ImportOnnxFor(const std::string& path, const std::map<std::string, Tensor>& inputs,
                             Scope& scope, const OnnxImportOptions& options = {});
// The inputs of a model: a program that has only feed ops, whose variables are the inputs.
ProgramDesc OnnxInputs(const std::string& path);
// ImportOnnx of a file's bytes without external data; `source` names them in errors.
InferenceModel ParseOnnx(std::string_view bytes, const std::string& source, Scope& scope,
                         const OnnxImportOptions& options = {});

// Lets LoadInferenceModel, and thus program layers and jobs, read .onnx files, as the command does.
// Must not run while another thread loads a model.
void RegisterOnnxReader();

// Inference programs as ONNX models. docs/onnx_export.md lists the ops.

inline constexpr int kLeastOnnxOpset = 13;
inline constexpr int kDefaultOnnxOpset = 17;
inline constexpr int kLatestOnnxOpset = 22;

struct OnnxExportOptions {
  // From kLeastOnnxOpset to kLatestOnnxOpset; an op that needs a later one is refused. 0: the
  // lowest one from kDefaultOnnxOpset on that has what the program needs. A program with constant
  // integers of 4 bits gets at least 21, which stores them in 4 bits.
  int opset = 0;
  // A larger model keeps its parameters in the file PATH.data in the same folder. Protobuf's own
  // limit is 2 GiB.
  uint64_t max_model_bytes = uint64_t{2'000'000'000};
  // The model takes one sequence a run: all rows of a tensor that has LoD in the program. Ops on
  // sequences are refused without it.
  bool one_sequence = false;
  std::map<std::string, std::string> metadata = {};  // entries of the model's metadata_props
};

// Writes `program` to `path` as an ONNX model with its parameters, whose elements are not copied.
// The feed ops give the model's inputs, and the fetch ops its outputs (without such ops, InputNames
// and OutputNames do), with their names, dtypes and shapes. A dim of -1 gets a name. Parameters
// keep their names, and so does every variable whose name is still free.
//
// Throws the errors of VerifyOrThrow, kUnimplemented for an op or an attr value without a
// counterpart in ONNX, for training ops and for LoD, kNotFound for a parameter without a value, and
// the errors of writing a file. Nothing is written then.
void ExportOnnx(const std::string& path, const ProgramDesc& program, const Scope& parameters,
                const OnnxExportOptions& options = {});

// The program in JSON text of Paddle 3 (inference.json), with its feed and fetch ops. Parameters
// keep their names, also those that no op reads, so that PersistableNames gives the order of the
// parameter file. Fetched values have the names of their fetch ops. `ops` of nullptr is
// DefaultOps(); it must outlive the use of the program.
//
// Throws kDataLoss for damaged text and for values that no op defines, kUnimplemented for an op,
// an attribute or a type without counterpart, with the op's number and layer in the first line, and
// the errors of shape rules.
ProgramDesc ParsePir(std::string_view text, const std::string& source,
                     const OpRegistry* ops = nullptr);
ProgramDesc ReadPir(const std::string& path);

// ReadPir, and the parameters from the .pdiparams file of the same name into `scope`.
InferenceModel ImportPir(const std::string& path, Scope& scope);

// The program in JSON text of Paddle 3. Throws kUnimplemented for an op, an attribute or a type
// without counterpart there, with the op's number and type in the first line.
std::string ProgramToPir(const ProgramDesc& program);
// Writes ProgramToPir to `path`, and the parameters in `parameters` to the .pdiparams file of the
// same name. Throws kNotFound for a parameter without a value; nothing is written then. A variable
// that the program sets and does not read, as a startup program does, needs no value.
void ExportPir(const std::string& path, const ProgramDesc& program, const Scope& parameters);

// Whether the file begins like such a program: other files end in .json too.
bool IsPirFile(const std::string& path);
bool LooksLikePir(std::string_view text);

// Lets LoadInferenceModel, and thus program layers and jobs, read inference.json, as the command
// does. Must not run while another thread loads a model.
void RegisterPirReader();

}  // namespace coracle
