#pragma once
// Random quantised programs, and the comparison of their fast integer kernels with the ops that
// they replace.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/test/fuzz/choices.h>
#include <coracle/test/fuzz/program_check.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// A program in the form that ONNX calls QDQ, of one to five layers, with frozen weights.
struct QuantizedCase {
  ProgramDesc program;
  // The same layers, each of which reads feeds of its own: a layer that reads `q` in `program`
  // reads `q.fed` here. So its result can be compared without the errors of the layers before it.
  ProgramDesc apart;
  Scope scope;
  std::map<std::string, Tensor> feeds;
  std::vector<std::string> results;  // of the layers
};
QuantizedCase MakeQuantizedCase(Choices& choose);

// Runs the program with all passes, on fast and on reference kernels, and its layers one by one
// without passes on reference kernels. Integers may differ by one (a value close to the middle of
// two integers), floats in their last digits. Counts the integer ops that the passes made in
// `integer_ops`, by type.
std::optional<Finding> CheckQuantizedCase(const QuantizedCase& made, Choices& choose,
                                          std::map<std::string, uint64_t>* integer_ops);

}  // namespace coracle
