#pragma once
// A tree of the gradient paths from one variable to all variables that it depends on: the result of
// ExplainGradient for every variable of a program, in linear time.

#include <coracle/backward/backward.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

// A step and the place of its op.
struct PlacedGradientStep {
  GradientStep step;
  int block = 0;
  size_t op = 0;
};

struct GradientTreeStep : PlacedGradientStep {
  int32_t next = -1;  // the step whose `to` is this step's `from`; -1: `from` is the root
  // For an op with a sub-block: the steps inside it, in order.
  std::vector<PlacedGradientStep> inside = {};
};

struct GradientTree {
  std::string of;
  std::vector<GradientTreeStep> steps;
  // Maps a variable to the step that ends at the value whose gradient would count as
  // the variable's.
  std::unordered_map<std::string, int32_t> starts;
  // Maps a parameter to the number of op inputs whose contributions its gradient sums.
  std::unordered_map<std::string, int32_t> contributions;
};

// Following `next` from starts[x] gives the path of ExplainGradient(program, of, x) in reverse.
// Throws kNotFound for an unknown name, and the errors of ExplainGradient.
GradientTree MakeGradientTree(const ProgramDesc& program, const std::string& of,
                              const BackwardOptions& options = {});

}  // namespace coracle::inline internal
