#pragma once
// ExplainGradient: why a variable has a gradient, or where the path to it ends.

#include <coracle/backward/backward.h>

#include <string>
#include <vector>

namespace coracle {

// One op on the way back from the variable that is differentiated.
struct GradientStep {
  std::string from, to;   // the gradient of `from`, an output, gives one to `to`, an input
  std::string op;         // "mul, op 3 of block 0, from net.pbtxt:7:1"
  std::string from_slot;  // "" for what only the op's sub-block writes
  std::string to_slot;    // "" for what only the op's sub-block reads
  std::string obstacle;   // why no gradient passes here; "" when it does
  int depth = 0;          // 1 and more: inside the sub-block of the step before
};

struct GradientExplanation {
  std::string of, wrt;
  std::string gradient;  // the name that backward gives it; "" when there is none
  bool depends = false;  // some chain of ops leads from `wrt` to `of`
  // From `of` to `wrt`, the way with the fewest obstacles.
  std::vector<GradientStep> path;
  std::string reason;  // why there is no gradient: the first obstacle, or an error of backward
  // The ops and slots whose contributions are summed, "mul, op 3 of block 0, X".
  std::vector<std::string> contributions;

  std::string ToString() const;  // lines of text
};

// Explains d(of) / d(wrt); both may be of any shape. The program is not changed. Throws kNotFound
// for an unknown name.
GradientExplanation ExplainGradient(const ProgramDesc& program, const std::string& of,
                                    const std::string& wrt, const BackwardOptions& options = {});

}  // namespace coracle
