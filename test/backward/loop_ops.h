#pragma once
// t_loop: an op that runs a sub-block a number of times, with a gradient made of gradient
// blocks, and the plainest interpreter of programs of it: the contract between backward/ and
// what runs sub-blocks.

#include <coracle/test/backward/test_ops.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

// Adds t_loop and t_loop_grad. X: variables around the sub-block that it reads; Out: those that it
// writes; Scopes: what backward needs of each run. Attrs sub_block, times.
void RegisterLoop(OpRegistry& ops);
const OpRegistry& LoopOps();  // TestOps with t_loop

struct LoopEnvironment {
  VarValues values;
  std::map<std::string, std::vector<LoopEnvironment>> frames;  // by the variable in Scopes
};

void RunWithLoops(const BlockDesc& block, LoopEnvironment& env);

// Compares env[grad] of each pair with central differences of the sum of the elements of `loss`.
void ExpectLoopGradients(const TestProgram& test, const std::vector<ParamAndGrad>& pairs,
                         const std::string& loss = "loss");

}  // namespace coracle
