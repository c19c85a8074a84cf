#pragma once
// Tensors as files: Paddle's LoDTensor and SelectedRows streams and the parameter files made of
// them.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/scope.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// One value of `bytes` at *offset, which is moved past it. Every count is checked against the bytes
// that are left before anything is allocated. `source` names the file in errors.
Tensor ParseTensor(std::string_view bytes, size_t* offset, const std::string& source);
SelectedRows ParseSelectedRows(std::string_view bytes, size_t* offset, const std::string& source);
void AppendTensor(const Tensor& tensor, std::string* bytes);
void AppendSelectedRows(const SelectedRows& rows, std::string* bytes);

// Names of the variables that parameter files hold: persistable, of a type that is saved, sorted by
// bytes.
std::vector<std::string> PersistableNames(const ProgramDesc& program);

// .pdiparams: the streams of `names` in the given order (PersistableNames for Paddle's files),
// without names.
void SaveCombined(const Scope& scope, const std::vector<std::string>& names,
                  const std::string& path);
// Each tensor's dtype and dims are checked against its VarDesc, so that a shifted file is reported
// by the first name that does not fit; bytes left over are an error too.
void LoadCombined(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& path, Scope& scope);
// One file per variable in a directory.
void SaveSeparate(const Scope& scope, const std::vector<std::string>& names,
                  const std::string& directory);
void LoadSeparate(const ProgramDesc& program, const std::vector<std::string>& names,
                  const std::string& directory, Scope& scope);
// A directory (separate files, or __params__ in it) or a combined file, whichever `path` is.
void LoadParameters(const ProgramDesc& program, const std::string& path, Scope& scope);

struct InferenceModel {
  ProgramDesc program;  // with its feed and fetch ops
  std::vector<std::string> feed_names;
  std::vector<std::string> fetch_names;
};

enum class InferenceLayout {
  kPdmodel,        // PATH.pdmodel and PATH.pdiparams
  kModelCombined,  // PATH/__model__ and PATH/__params__
  kModelSeparate,  // PATH/__model__ and one file per variable
};

// Prunes a copy of `program` to the fetches, sets is_test, adds feed and fetch ops, and writes it
// with its persistables.
void SaveInferenceModel(const std::string& path, const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches, const ProgramDesc& program,
                        const Scope& scope, InferenceLayout layout = InferenceLayout::kPdmodel);
// `path`: a directory with __model__ (or inference.pdmodel), a .pdmodel file, or the prefix of one.
InferenceModel LoadInferenceModel(const std::string& path, Scope& scope);

}  // namespace coracle
