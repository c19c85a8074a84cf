#pragma once
// Loading of values for a model's variables, by name, from a file of another run.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/scope.h>

#include <string>
#include <vector>

namespace coracle {

struct WeightsReport {
  std::string file;
  std::vector<std::string> loaded;
  std::vector<std::string> mismatched;    // of another shape or dtype in the file
  std::vector<std::string> not_in_file;   // keep the values that they have
  std::vector<std::string> not_in_model;  // of the file

  // "weights FILE: 6 of 8 variables loaded; not in the file: ...; not in the model: ...".
  std::string ToString() const;
};

// Copies the values of `names`, persistable variables of `program`, into `scope`. `file` is a
// snapshot or a directory of them (of its optimizer's state nothing is taken), a saved model (its
// .pdmodel or .pdiparams file, prefix or directory), or an .npz. Throws kInvalidArgument when
// nothing fits, and for a variable of another shape or dtype unless `skip_mismatched`.
WeightsReport LoadWeights(const std::string& file, const ProgramDesc& program,
                          const std::vector<std::string>& names, bool skip_mismatched,
                          Scope& scope);

}  // namespace coracle
