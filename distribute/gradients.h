#pragma once
// Finds the gradients of parameters and sums them over the ranks, in buckets. Internal to the
// folder distribute/.

#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/op/op_inserter.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// A gradient of a parameter in the root block.
struct ParameterGradient {
  std::string name;
  size_t complete = 0;  // index of the last op of backward that uses it
  // If gradients are accumulated: their persistable sum, and the op that runs the block which is
  // run once for an update.
  std::string sum = {};
  const OpDesc* once = nullptr;

  const std::string& exchanged() const { return sum.empty() ? name : sum; }
};

// Gradients that are exchanged together.
struct OpenBucket {
  GradientBucket bucket;
  DType dtype = DType::kFloat32;
  size_t complete = 0;
  const OpDesc* once = nullptr;
};

// The gradients of parameters (op_role_var of backward ops), in the order in which backward
// completes them. Throws kInvalidArgument if there are none, and if accumulated gradients are read
// outside of a conditional block.
std::vector<ParameterGradient> FindGradients(const ProgramDesc& main, const OpRegistry& ops);

// Divides gradients into buckets of one dtype and at least `mb` million bytes, in their order.
// Throws kInvalidArgument for a size that is negative or infinite.
std::vector<OpenBucket> MakeBuckets(const ProgramDesc& main,
                                    const std::vector<ParameterGradient>& gradients, double mb);

// Sums the bucket after the op that completes its last gradient; a c_sync_comm_stream waits for it
// before the first op that uses one. Accumulated gradients are summed in the block that runs once
// for an update.
void SumBucket(const ProgramDesc& main, const OpenBucket& bucket, int ring_id,
               OpInserter* inserter);

}  // namespace coracle::inline internal
