#pragma once
// RenameVariables: variables of a program under other names.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

using NamePairs = std::vector<std::pair<std::string, std::string>>;  // (old, new)

struct RenameOptions {
  // Also what is named after a variable with an @: x@GRAD, x@GRAD@RENAME@..., x@RECOMPUTED. Of x
  // these become y@GRAD and so on where x becomes y.
  bool derived = false;
};

// The pairs for each variable of which some part matches a regular expression (RE2): each match is
// replaced by `with`, in which \1 stands for the first group and \0 for the match. Throws
// kInvalidArgument for a wrong expression or replacement, kNotFound if no name matches. Feeds' and
// fetches' holders keep their names.
NamePairs PairsByRegex(const ProgramDesc& program, const std::string& regex,
                       const std::string& with);

struct Renamed {
  NamePairs names;  // all that were renamed, derived ones included, in the order of the program
  // Outputs of random ops among them, by new name: such an op draws by the name of its output, so
  // that it draws other numbers now.
  std::vector<std::string> drawn;
};

// Renames variables wherever they stand: declarations and slots of all blocks, attrs that name
// variables. A variable that several blocks declare is renamed in all of them. Names may be
// exchanged. Throws, before anything is changed, kNotFound for an old name that no block declares,
// kAlreadyExists for a new one that another variable has, or two of them would get, and
// kInvalidArgument for a new name that is empty or @EMPTY@, and for feeds' and fetches' holders.
// Linear in the size of the program.
Renamed RenameVariables(ProgramDesc& program, const NamePairs& names, const OpRegistry& ops,
                        const RenameOptions& options = {});

// Moves the values in the scope to their new names.
void RenameValues(const NamePairs& names, Scope& scope);

}  // namespace coracle
