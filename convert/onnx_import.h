#pragma once
// ONNX models as programs. docs/onnx.md lists the op types and what each of them becomes.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <map>
#include <string>
#include <string_view>

namespace coracle {

struct OnnxImportOptions {
  // Shapes of inputs by their names, in place of what the model says: fixed ones make constants of
  // what it computes from them. A dim of -1 is left open. Throws kNotFound for a name that is no
  // input, kInvalidArgument where a dim contradicts the model.
  std::map<std::string, Shape> input_shapes = {};
  // Values of inputs, which then are constants and not fed.
  std::map<std::string, Tensor> input_values = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps(); must live as long as the program's use
};

// The program of an ONNX model (a .onnx file, ModelProto) whose ops are Paddle's, with feed and
// fetch ops for the graph's inputs and outputs in their order; an input that has an initializer is
// a constant. Initializers that ops read become persistable variables, whose values go to `scope`;
// those of floats are parameters unless an op writes them. External data is read from the file's
// folder only. Variables have the names of ONNX's values where these are free and usable.
//
// A tensor of rank 0 is one of shape [1] in the program. uint16 and uint32 are held as int32 and
// int64. What the program computes is what ONNX says; a model is never imported in part.
//
// Throws, with the node's name, op type and version in the first line: kUnimplemented for an op
// type, version, attribute, type or shape that no ops of Coracle express, kInvalidArgument for a
// model that is wrong in itself, kDataLoss for a damaged file, and what the thread's ResourceLimits
// throw. `scope` is then as it was.
InferenceModel ImportOnnx(const std::string& path, Scope& scope,
                          const OnnxImportOptions& options = {});
// The program for these inputs, by name: where the model needs the value of an input to be known
// (axes, sizes) or the shape of one, it takes them from here. What is not among feed_names of the
// result is part of the program. Throws as ImportOnnx does.
InferenceModel ImportOnnxFor(const std::string& path, const std::map<std::string, Tensor>& inputs,
                             Scope& scope, const OnnxImportOptions& options = {});
// What a model is fed with: a program of feed ops alone, whose variables are the inputs.
ProgramDesc OnnxInputs(const std::string& path);
// ImportOnnx of a file's bytes without external data; `source` names them in errors.
InferenceModel ParseOnnx(std::string_view bytes, const std::string& source, Scope& scope,
                         const OnnxImportOptions& options = {});

// Lets LoadInferenceModel, and with it program layers and jobs, read .onnx files, as they do in the
// command. No other thread may load a model meanwhile.
void RegisterOnnxReader();

}  // namespace coracle
