#pragma once
// The order of an update: what its stages share, and blocks that run only where guards hold.

#include <coracle/backward/backward.h>
#include <coracle/framework/op/writer.h>

#include <list>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// A block that is being filled. Without guards it is `outer` itself; with them it is the sub-block
// of one conditional_block, which Close appends to `outer`. See AppendGuarded.
class GuardedBlock {
 public:
  GuardedBlock(BlockDesc& outer, const std::vector<std::string>& guards);
  BlockDesc& block() const { return *block_; }
  void Close();

 private:
  BlockDesc* block_;
  std::optional<Writer> outer_;  // of the conditional_block
  std::string condition_;
};

// One update being appended. Each stage finds the gradients as the stages before left them, and
// appends to the innermost block that is open.
struct UpdateStep {
  UpdateStep(BlockDesc& block, ProgramDesc& startup, const std::vector<ParamAndGrad>& pairs);

  BlockDesc& block() const { return open.back().block(); }
  // What later stages append runs only where all of these hold too.
  void RunOnlyIf(const std::vector<std::string>& guards);
  void Close();  // all blocks, the innermost first

  ProgramDesc& startup;
  const std::vector<ParamAndGrad> pairs;  // as backward left them
  std::vector<ParamAndGrad> gradients;    // as the last stage left them, in the same order
  std::vector<std::string> clip_guards;   // what clips say against the update
  bool clipped = false;                   // some gradient is another one than before the clips
  std::list<GuardedBlock> open;
};

// Appends to `block` a second look at gradients that clips have made, and adds what it finds to
// the bool [1] variable `overflow`. Returns the variable that holds where none was found.
std::string CheckClipped(BlockDesc& block, const std::vector<ParamAndGrad>& clipped,
                         const std::string& overflow);

}  // namespace coracle
