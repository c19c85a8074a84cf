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
  // A model beyond this size keeps its parameters in the file PATH.data beside it. Protobuf's own
  // limit is 2 GiB.
  uint64_t max_model_bytes = uint64_t{2'000'000'000};
};

// Writes `program` to `path` as an ONNX model with its parameters, whose elements are not copied.
// Inputs are what the feed ops feed, outputs what the fetch ops fetch (or what InputNames and
// OutputNames find where there are none), with their names, dtypes and shapes; a dim of -1 gets a
// name. Parameters keep their names, and so does every variable whose name is still free.
//
// Throws what VerifyOrThrow throws, kUnimplemented for an op, or a value of an attr, that ONNX has
// no counterpart of, for training ops and for LoD, kNotFound for a parameter without a value, and
// what writing a file throws. Nothing is written then.
void ExportOnnx(const std::string& path, const ProgramDesc& program, const Scope& parameters,
                const OnnxExportOptions& options = {});

}  // namespace coracle
