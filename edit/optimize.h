#pragma once
// Optimizes a program with the compiler's passes and returns a program that can be saved.

#include <coracle/executor/executor.h>
#include <coracle/passes/pass.h>

#include <string>
#include <vector>

namespace coracle {

struct OptimizeOptions {
  // For inference: treats parameters that no op writes as constants, so that ops on them are
  // computed now and a batch_norm is folded into the convolution before it. Needs their values. If
  // false (for training), parameters do not change.
  bool freeze_parameters = true;
  // Only these passes, unless `compile` disables them; empty: all. Throws kNotFound for an
  // unknown name.
  std::vector<std::string> passes = {};
  // Only passes whose result Paddle understands. See IsPaddlePass.
  bool paddle_only = false;
  CompileOptions compile = {};
};

struct OptimizedProgram {
  ProgramDesc program;  // has the feed and fetch ops of the original
  // The known values of its persistable variables: the given ones and constants that passes made.
  Scope parameters;
};

// Compiles `program` for these feeds and fetches (empty: its own feed and fetch ops) and
// returns the result, without unused variables. The result computes the same, up to rounding in the
// last bits, and may be compiled again. It depends on this machine: filters are widened if products
// of bfloat16 are slow here. `observer` sees each pass. Throws the errors of Executor::Prepare;
// with paddle_only, throws kUnimplemented if the result has a type of op that neither the program
// had nor these passes make.
OptimizedProgram OptimizeProgram(const ProgramDesc& program, const Scope& parameters,
                                 const std::vector<std::string>& feeds = {},
                                 const std::vector<std::string>& fetches = {},
                                 const OptimizeOptions& options = {},
                                 const PassObserver& observer = {},
                                 const OpRegistry& ops = DefaultOps());

// Whether the result of the pass means the same to Paddle: the same types of ops, with slots and
// attrs that all its kernels support. For example, not all of its kernels support a convolution
// with a bias, a residual, an activation or channels last, an fc with an activation, or an update
// of several parameters.
bool IsPaddlePass(const std::string& pass);

}  // namespace coracle
