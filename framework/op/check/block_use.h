#pragma once
// BlockUse: how a block uses variables that it does not declare, for all code that runs sub-blocks.

#include <coracle/framework/ir/program.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct BlockUse {
  // Non-persistable variables of enclosing blocks that the block or a block nested in it reads or
  // writes, sorted by name. In a gradient block this excludes the variables of `reads_saved`.
  std::vector<std::string> captured;
  std::vector<bool> written;  // parallel to captured: a run of the block may change it
  // Variables declared outside, persistable or not, that a run of the block may write, sorted
  // by name.
  std::vector<std::string> writes;
  // Persistable variables, declared in any block, that the block or a block nested in it writes,
  // sorted by name. All blocks share persistable variables.
  std::vector<std::string> writes_persistable;
  // Variables whose values in each run the gradient blocks of this block read: declared in the
  // block, or declared outside and written by it. Sorted by name, the order of StepScopes::Step.
  std::vector<std::string> saved;
  // In a gradient block: the entries of the forward block's `saved` that it reads, as
  // (name, index).
  std::vector<std::pair<std::string, size_t>> reads_saved;
  bool has_gradient = false;  // a block that can be run is its gradient block
  bool reached = false;       // is the root block, or run by an op of a reached block
};

// Returns the uses of each block, by index. Takes time linear in the size of the program times the
// nesting depth. The program's block references must have been verified.
std::vector<BlockUse> FindBlockUses(const ProgramDesc& program);

// The variables of enclosing blocks that the ops of the block read (or write), each once, in order
// of first use: the slots of the op that runs the block.
std::vector<std::string> OuterReads(const BlockDesc& block);
std::vector<std::string> OuterWrites(const BlockDesc& block);

}  // namespace coracle::inline internal
