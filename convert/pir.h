#pragma once
// Programs of Paddle 3 (inference.json, PIR) as programs. docs/pir.md lists the ops.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <string_view>

namespace coracle {

// The program in JSON text of Paddle 3, with its feed and fetch ops. Parameters keep their names,
// also those that no op reads, so that PersistableNames gives the order of the parameter file.
// Fetched values have the names of their fetch ops. `ops` of nullptr is DefaultOps(); it must
// outlive the use of the program.
//
// Throws kDataLoss for damaged text and for values that no op defines, kUnimplemented for an op,
// an attribute or a type without counterpart, with the op's number and layer in the first line, and
// the errors of shape rules.
ProgramDesc ParsePir(std::string_view text, const std::string& source,
                     const OpRegistry* ops = nullptr);
ProgramDesc ReadPir(const std::string& path);

// ReadPir, and the parameters from the .pdiparams file of the same name into `scope`.
InferenceModel ImportPir(const std::string& path, Scope& scope);

// Whether the file begins like such a program: other files end in .json too.
bool IsPirFile(const std::string& path);
bool LooksLikePir(std::string_view text);

// Lets LoadInferenceModel, and thus program layers and jobs, read inference.json, as the command
// does. Must not run while another thread loads a model.
void RegisterPirReader();

}  // namespace coracle
