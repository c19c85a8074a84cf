#pragma once
// Fast kernels of elementwise ops that can tell their formulas, so that a group of such ops can run
// on registers.

#include <coracle/framework/op/op_spec.h>
#include <coracle/operators/kernels/simd.h>

#include <vector>

namespace coracle {

// out = f(a) or f(a, b) of float32 tensors, element by element; an operand of one element is
// repeated. Without lanes: out = a.
struct LaneFormula {
  simd::Lanes lanes;
  simd::Params params;
  TensorArg a, b, out;
};

// What is inside the Kernel of such an op (std::function::target finds it).
struct LaneKernel {
  std::vector<LaneFormula> formulas;  // in order; one may read the results of those before it
  Kernel loop;                        // does the same in memory

  void operator()(Workspace& ws) const { loop(ws); }
};

}  // namespace coracle
