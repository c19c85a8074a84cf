#pragma once
// RenameVariables: gives variables of a program other names.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

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

}  // namespace coracle
