#pragma once
// BlockUse: what a block has to do with variables that it does not declare: for everyone
// who runs sub-blocks.

#include <coracle/framework/ir/program.h>

#include <string>
#include <vector>

namespace coracle {

struct BlockUse {
  // Variables of enclosing blocks, not persistable, that the block or one inside it reads or
  // writes; by name. In a gradient block variables of `reads_saved` are not among them.
  std::vector<std::string> captured;
  std::vector<bool> written;  // by captured: a run of the block may change it
  // Not persistable or persistable, declared outside: what a run of the block may write; by name.
  std::vector<std::string> writes;
  // Persistable variables, wherever they are declared, that the block or one inside it writes; by
  // name. All blocks have them in common.
  std::vector<std::string> writes_persistable;
  // Variables whose values of each run the gradient blocks of this block read: declared in it, or
  // outside and written by it; by name. The order is that of StepScopes::Step.
  std::vector<std::string> saved;
  // In a gradient block: the indices in the forward block's `saved` that it reads,
  // with their names.
  std::vector<std::pair<std::string, size_t>> reads_saved;
  bool has_gradient = false;  // some block that can be run is its gradient block
  bool reached = false;       // the root block, or run by an op of a reached block
};

// By block. Linear in the size of the program times the depth of nesting. The program's block
// references must have been verified.
std::vector<BlockUse> FindBlockUses(const ProgramDesc& program);

// The variables around a block that its ops read (or write), each once, in that order: the slots of
// the op that runs the block.
std::vector<std::string> OuterReads(const BlockDesc& block);
std::vector<std::string> OuterWrites(const BlockDesc& block);

}  // namespace coracle
