#pragma once
// Fast kernels of elementwise ops that expose their formulas, so that a group of such ops can run
// in registers.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/simd.h>

#include <vector>

namespace coracle::inline internal {

// out = f(a) or f(a, b) of float32 tensors, element by element; an operand of one element is
// repeated. Without lanes: out = a.
struct LaneFormula {
  simd::Lanes lanes;
  simd::Params params;
  TensorArg a, b, out;
};

// The callable inside the Kernel of such an op (std::function::target finds it).
struct LaneKernel {
  std::vector<LaneFormula> formulas;  // in order; a formula may read earlier results
  Kernel loop;                        // computes the same from and to memory

  void operator()(Workspace& ws) const { loop(ws); }
};

}  // namespace coracle::inline internal
