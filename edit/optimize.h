#pragma once
// What the compiler makes of a program, as a program that can be saved.

#include <coracle/executor/executor.h>
#include <coracle/passes/pass.h>

#include <string>
#include <vector>

namespace coracle {

struct OptimizeOptions {
  // For inference: parameters that no op writes are constants, so that ops on them alone are
  // computed now and a batch_norm becomes part of the convolution before it. Needs their values.
  // Without it, as for training, parameters stay as they are.
  bool freeze_parameters = true;
  // Only these passes, of those that `compile` does not disable; empty: all. An unknown name throws
  // kNotFound.
  std::vector<std::string> passes = {};
  // Only passes that leave ops as Paddle knows them. See IsPaddlePass.
  bool paddle_only = false;
  CompileOptions compile = {};
};

struct OptimizedProgram {
  ProgramDesc program;  // with the feed and fetch ops of the original
  // The values of its persistable variables, as far as they are known: those given, and those of
  // constants that passes made.
  Scope parameters;
};

// Compiles `program` for these feeds and fetches (empty: those of its feed and fetch ops) and
// returns the result, without variables that no op uses any more. It computes the same, in the last
// bits perhaps not to the bit, and may be compiled again. It suits this machine: filters are
// widened where it computes products of bfloat16 slowly. `observer` sees each pass. Throws what
// Executor::Prepare does, and kUnimplemented under paddle_only, naming it, if the result has a type
// of op that neither the program had nor those passes make.
OptimizedProgram OptimizeProgram(const ProgramDesc& program, const Scope& parameters,
                                 const std::vector<std::string>& feeds = {},
                                 const std::vector<std::string>& fetches = {},
                                 const OptimizeOptions& options = {},
                                 const PassObserver& observer = {},
                                 const OpRegistry& ops = DefaultOps());

// Whether what the pass leaves means the same to Paddle: the same types of ops, with the slots and
// attrs that its kernels heed. A convolution with a bias, a residual, an activation or channels
// last is none for all of its kernels, nor is fc with an activation, nor an update of several
// parameters.
bool IsPaddlePass(const std::string& pass);

}  // namespace coracle
