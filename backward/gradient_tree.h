#pragma once
// The paths of gradients from one variable to all that it depends on, as a tree: what
// ExplainGradient tells for each variable of a program, in time that is linear in the program.

#include <coracle/backward/check_gradient.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

// A step and where its op is.
struct PlacedGradientStep {
  GradientStep step;
  int block = 0;
  size_t op = 0;
};

struct GradientTreeStep : PlacedGradientStep {
  int32_t next = -1;  // the step whose `to` is this one's `from`; -1: `from` is the root
  std::vector<PlacedGradientStep> inside = {};  // of an op with a sub-block: those in it, in order
};

struct GradientTree {
  std::string of;
  std::vector<GradientTreeStep> steps;
  // By variable: the step that ends at the value whose gradient would be the variable's own.
  std::unordered_map<std::string, int32_t> starts;
  // By parameter: from how many inputs of ops its gradient is summed.
  std::unordered_map<std::string, int32_t> contributions;
};

// Following `next` from starts[x] gives the path of ExplainGradient(program, of, x), from its end
// to its beginning. Throws kNotFound for an unknown name, and what ExplainGradient throws.
GradientTree MakeGradientTree(const ProgramDesc& program, const std::string& of,
                              const BackwardOptions& options = {});

}  // namespace coracle
