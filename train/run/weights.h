#pragma once
// Loads the variables of a model, by name, from a file of another run.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>

#include <string>
#include <vector>

namespace coracle {

// The variables that were loaded, and those that were not.
struct WeightsReport {
  std::string file;
  std::vector<std::string> loaded;
  std::vector<std::string> mismatched;    // with another shape or dtype in the file
  std::vector<std::string> not_in_file;   // variables that keep their values
  std::vector<std::string> not_in_model;  // variables of the file

  // "weights FILE: 6 of 8 variables loaded; not in the file: ...; not in the model: ...".
  std::string ToString() const;
};

// Copies the values of `names`, persistable variables of `program`, into `scope`. The file of
// `weights` is a snapshot or a directory of them (the optimizer's state is ignored), a saved model
// (.pdmodel or .pdiparams file, prefix or directory), or an archive. Throws kInvalidArgument if
// nothing matches, and for a variable of another shape or dtype unless `skip_mismatched`.
WeightsReport LoadWeights(const WeightsConfig& weights, const ProgramDesc& program,
                          const std::vector<std::string>& names, Scope& scope);

}  // namespace coracle
