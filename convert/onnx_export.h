#pragma once
// Inference programs as ONNX models. docs/onnx_export.md lists the ops.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>

namespace coracle {

inline constexpr int kLeastOnnxOpset = 13;
inline constexpr int kLatestOnnxOpset = 22;

struct OnnxExportOptions {
  int opset = 17;  // from kLeastOnnxOpset to kLatestOnnxOpset
  // A larger model keeps its parameters in the file PATH.data in the same folder. Protobuf's own
  // limit is 2 GiB.
  uint64_t max_model_bytes = uint64_t{2'000'000'000};
};

// Writes `program` to `path` as an ONNX model with its parameters, whose elements are not copied.
// Inputs are the variables of the feed ops, outputs those of the fetch ops (without such ops, those
// found by InputNames and OutputNames), with their names, dtypes and shapes; a dim of -1 gets a
// name. Parameters keep their names, and so does every variable whose name is still free.
//
// Throws the errors of VerifyOrThrow, kUnimplemented for an op or an attr value without a
// counterpart in ONNX, for training ops and for LoD, kNotFound for a parameter without a value, and
// the errors of writing a file. Nothing is written then.
void ExportOnnx(const std::string& path, const ProgramDesc& program, const Scope& parameters,
                const OnnxExportOptions& options = {});

}  // namespace coracle
